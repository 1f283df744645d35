"""A cross-encoder as judge of pairs (RocketQA, §3.3): its probabilities, and thresholds on them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from gnnretrieval.data.text_store import TextStore
from gnnretrieval.encoders.checkpoint import find_checkpoint
from gnnretrieval.encoders.pair_shards import PAIRS, seen_by_workers
from gnnretrieval.mining.judge_shards import JudgeShards, texts_of
from gnnretrieval.progress import progress
from gnnretrieval.settings import Settings
from gnnretrieval.shards.engines import Sharding, run_stage
from gnnretrieval.shards.stage import shard_directory
from gnnretrieval.storage.arrays import ArrayWriter, blocks, load_array, save_array
from gnnretrieval.storage.making import fingerprint, record_progress
from gnnretrieval.storage.places import scratch

if TYPE_CHECKING:
    from gnnretrieval.encoders.settings import CrossEncoderSettings

_FILE, _MANIFEST = "probabilities.npy", "probabilities.json"

Verdict = Literal["positive", "negative", "between"]


class JudgeSettings(Settings):
    """Cross-encoder and thresholds; base of the settings of :mod:`denoise` and :mod:`pseudo_label`.

    Attributes:
        cross_encoder: Name or path of the cross-encoder.
        pair_tokens: Maximum length of a pair in tokens.
        positive_threshold: Above this probability a candidate is a positive.
        negative_threshold: Below this probability a candidate is a negative.
    """

    cross_encoder: str
    pair_tokens: int = Field(192, ge=8)
    positive_threshold: float = Field(0.9, ge=0, le=1)
    negative_threshold: float = Field(0.1, ge=0, le=1)

    @model_validator(mode="after")
    def _thresholds_leave_room(self) -> Self:
        if not self.negative_threshold < self.positive_threshold:
            raise ValueError(
                f"negative_threshold = {self.negative_threshold} must be below "
                f"positive_threshold = {self.positive_threshold}"
            )
        return self

    @property
    def reads(self) -> CrossEncoderSettings:
        """Settings of the cross-encoder."""
        from gnnretrieval.encoders.settings import CrossEncoderSettings

        return CrossEncoderSettings(checkpoint=self.cross_encoder, max_tokens=self.pair_tokens)

    def verdict(self, probability: float) -> Verdict:
        """Verdict on a candidate with this probability; a value equal to a threshold is ``between``."""
        if probability > self.positive_threshold:
            return "positive"
        return "negative" if probability < self.negative_threshold else "between"


def probabilities_of(
    pairs: NDArray[np.int64],
    texts: TextStore,
    settings: JudgeSettings,
    directory: Path,
    device: str,
    shards: tuple[Path, Sharding] | None = None,
) -> NDArray[np.float32]:
    """The cross-encoder's probability of each pair ``(P,)`` float32.

    Pairs are sorted by passage, so that few passages are tokenised twice. Each block is written to disk when it is
    done: an interrupted run continues after its last block.

    Args:
        pairs: ``(P, 2)`` query and passage rows.
        texts: Their texts.
        settings: The cross-encoder.
        directory: The unfinished artifact, in which blocks are kept.
        device: Where to compute.
        shards: Directory of shards, and who runs them; None: the pairs are read here.
    """
    from gnnretrieval.encoders.cross_encoder import CrossEncoder  # importing transformers takes seconds

    if not len(pairs):
        return np.empty(0, dtype=np.float32)
    order = np.lexsort((pairs[:, 0], pairs[:, 1]))
    probabilities = np.empty(len(pairs), dtype=np.float32)
    if shards is not None:
        probabilities[order] = _in_shards(pairs[order], texts, settings, directory, device, *shards)
        return probabilities
    path, manifest = scratch(directory) / _FILE, scratch(directory) / _MANIFEST
    done = json.loads(manifest.read_text())["done"] if manifest.is_file() else 0
    encoder = CrossEncoder(settings.reads, device)
    with (
        ArrayWriter(path, (len(pairs),), np.float32, done) as writer,
        progress("cross-encoder", len(pairs), "pairs", done) as meter,
    ):
        for part in blocks(len(pairs) - done, PAIRS):
            block = pairs[order[done + part.start : done + part.stop]]
            encoded = encoder.encode_pairs(*texts_of(block, texts))
            writer.write(encoded.probabilities)
            writer.flush()
            record_progress(directory, manifest, {"done": done + part.stop})
            meter.advance(len(block))
    probabilities[order] = load_array(path, (len(pairs),), np.float32)
    return probabilities


def judged_beside(out: str | Path, inputs: Mapping[str, str], config: Mapping[str, Any]) -> Path:
    """Directory of the shards for the examples ``out`` that these inputs and settings determine."""
    return shard_directory(Path(out), fingerprint("judged", inputs, config)).resolve()


def _in_shards(
    pairs: NDArray[np.int64],
    texts: TextStore,
    settings: JudgeSettings,
    directory: Path,
    device: str,
    place: Path,
    sharding: Sharding,
) -> NDArray[np.float32]:
    path = scratch(directory) / "pairs.npy"
    save_array(path, pairs)
    stage = JudgeShards(
        settings=seen_by_workers(settings.reads),
        weights=find_checkpoint(settings.cross_encoder).hash,
        total=len(pairs),
        count=sharding.shards,
        directory=place,
        device=device,
        vectors=None,
        probabilities="float32",
        text_store=texts.path.resolve(),
        pairs=path.resolve(),
    )
    run_stage(stage, sharding)
    return stage.merge()
