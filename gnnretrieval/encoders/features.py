"""Features: the vectors of all passages and queries, encoded in a stream and opened memory-mapped."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.dataset import Dataset
from gnnretrieval.data.text_store import QueryRow, TextStore, passage_rows
from gnnretrieval.encoders.canary import canary_of, is_same_canary
from gnnretrieval.encoders.encoded_texts import TEXTS
from gnnretrieval.encoders.encoding_plan import FEATURES, EncodingPlan, together, with_absolute_paths
from gnnretrieval.encoders.encoding_shards import FILES, EncodingShards, require_sharded
from gnnretrieval.encoders.feature_rows import WholeTexts, reading_of, require_finite, windows
from gnnretrieval.encoders.function_encoder import Encode, as_encoder
from gnnretrieval.encoders.learned_from import read_learned_from, write_learned_from
from gnnretrieval.encoders.opening import open_encoder
from gnnretrieval.encoders.part_arrays import PartArrays
from gnnretrieval.encoders.prompts import Side
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.encoders.sparse_shards import SparseShards
from gnnretrieval.encoders.text_encoder import TextEncoder
from gnnretrieval.errors import ArtifactError, InputError
from gnnretrieval.progress import progress, say
from gnnretrieval.shards.engines import Sharding, run_stage
from gnnretrieval.shards.stage import Shard, discard_shards
from gnnretrieval.storage.arrays import ArrayWriter
from gnnretrieval.storage.artifacts import open_artifact, relative_to
from gnnretrieval.storage.making import make_artifact, record_progress
from gnnretrieval.storage.places import CLAIM, scratch
from gnnretrieval.storage.provenance import write_json

KIND = FEATURES
_CANARY = "canary.json"  # in a half-made artifact's scratch: of the model that began it


class Features(PartArrays):
    """The dual-encoder's vectors of all passages and queries of a dataset, with the similarity that compares them."""

    @classmethod
    def open(cls, path: str | Path) -> Features:
        """As :func:`open_features`."""
        return open_features(path)

    @classmethod
    def encode(
        cls,
        dataset: Dataset,
        encoder: str | EncoderSettings | TextEncoder | Encode,
        out: str | Path,
        *,
        device: str = "cpu",
        sharding: Sharding | None = None,
        overwrite: bool = False,
    ) -> Features:
        """As :func:`encode_dataset`; ``encoder`` may also be a checkpoint's name or path, or a function."""
        given = as_encoder(encoder)
        settings = given if given is not None and not isinstance(given, str) else EncoderSettings(checkpoint=str(given))
        return encode_dataset(dataset, settings, out, device=device, sharding=sharding, overwrite=overwrite)

    @classmethod
    def from_vectors(
        cls,
        dataset: Dataset,
        passages: Any,
        queries: Any,
        out: str | Path,
        *,
        name: str = "given",
        similarity: Literal["cosine", "dot"] = "cosine",
        scale: float | None = None,
        passage_ids: Sequence[str] | None = None,
        query_ids: Sequence[str] | None = None,
        overwrite: bool = False,
    ) -> Features:
        """Make features from the vectors of any other encoder.

        Args:
            dataset: The texts.
            passages: Array or tensor ``(m, d)``, or a file (:func:`gnnretrieval.encoders.vector_file.open_vectors`).
            queries: The same for the queries of all splits, ``(n, d)``.
            out: Directory of the features.
            name: Name of the encoder: vectors with the same name, similarity and width are comparable.
            similarity: How the vectors are compared.
            scale: Factor on the similarity in the softmax (1 / temperature); None: 20 for cosine, 1 for dot product.
            passage_ids: Id of each row of an array of passages; None: the rows are in the dataset's order.
            query_ids: The same for the queries.
            overwrite: Replace features that were made from other vectors.

        Raises:
            InputError: The vectors do not fit, as for :func:`gnnretrieval.encoders.vectors.import_vectors`.
        """
        from gnnretrieval.encoders.vector_file import ArrayVectors
        from gnnretrieval.encoders.vectors import VectorSettings, import_vectors

        def opened(vectors: Any, given: Sequence[str] | None, ids: Sequence[str], side: str) -> Any:
            if not isinstance(vectors, str | Path):
                return ArrayVectors(vectors, ids if given is None else given, f"vectors of {side}")
            if given is not None:
                raise InputError(f"a file names the ids of its vectors: give no ids of {side} with it.", vectors)
            return vectors

        return import_vectors(
            dataset,
            opened(passages, passage_ids, dataset.passage_ids, "passages"),
            opened(queries, query_ids, dataset.query_ids, "queries"),
            VectorSettings.parse({"name": name, "similarity": similarity, "scale": scale}),
            out,
            overwrite=overwrite,
        )

    def __repr__(self) -> str:
        meta = self.meta
        return (
            f"Features({str(self.path)!r}: {meta['num_passages']:,} passages, {meta['num_queries']:,} queries, "
            f"{meta['dimension']} dimensions, {meta['encoder']['checkpoint']})"
        )

    @property
    def passages(self) -> NDArray[np.float16]:
        """Passage features ``h_p`` ``(m, d)``, memory-mapped."""
        return self._vectors("passages.npy", "num_passages")

    @property
    def queries(self) -> NDArray[np.float16]:
        """Query features ``h_q`` ``(n, d)`` of all splits, memory-mapped."""
        return self._vectors("queries.npy", "num_queries")

    def learned_from(self) -> frozenset[str]:
        """Ids of the dataset's queries that the encoder learned from; empty if it has no record of them."""
        return read_learned_from(self.path)

    @property
    def similarity(self) -> Similarity:
        """How these vectors are compared."""
        return Similarity.parse(self.meta["similarity"], self.path / "meta.json")


def open_features(path: str | Path) -> Features:
    """Open the features at ``path``; errors as :func:`gnnretrieval.storage.artifacts.open_artifact`."""
    counts = ("num_passages", "num_queries", "dimension")
    artifact = open_artifact(path, KIND, ("encoder", "similarity", "checkpoint_hash", "made_from", *counts))
    return Features(artifact.path, artifact.meta)


def encode_dataset(
    dataset: Dataset,
    encoder: EncoderSettings | TextEncoder,
    out: str | Path,
    *,
    device: str = "cpu",
    sharding: Sharding | None = None,
    overwrite: bool = False,
) -> Features:
    """Encode every passage and query of ``dataset`` into the features artifact ``out``.

    Texts are read in windows. Each window is written and recorded in a manifest at once, so that an interrupted run
    resumes after its last window.

    Args:
        dataset: The texts.
        encoder: Settings of a checkpoint or an endpoint, or an open encoder.
        out: Directory of the features.
        device: Device of a checkpoint.
        sharding: Encode in shards, by several processes or machines; the vectors are the same. None: in this process.
        overwrite: Replace features that were made from other inputs.

    Raises:
        GnnRetrievalError: The encoder cannot be opened, its vectors are not finite, or ``out`` holds something else.
    """
    plan = EncodingPlan.of(dataset, encoder, device)
    if sharding is not None:
        require_sharded(plan.settings, dataset)

    def write(directory: Path) -> dict[str, Any]:
        settings, fingerprint = plan.settings, plan.fingerprint
        how = f", {plan.config['precision']}" if settings.is_checkpoint else ""
        if settings.api.endpoint is not None:
            how = f": every text is sent there, with the key in {settings.api.key_variable}"
        say(f"encoder: {settings.checkpoint}, from {plan.source}{how}")
        opened = plan.given or open_encoder(settings, device)
        canary = {} if settings.is_checkpoint else {"canary": _of_one_model(directory, out, opened, overwrite)}
        counts = write_texts(directory / TEXTS, dataset)
        if plan.learned_from:
            write_learned_from(directory, plan.learned_from.intersection(dataset.query_ids))
        figures: dict[str, Any] = {}
        if sharding is not None:
            stages = plan.shards(EncodingShards, sharding.shards, out)
            run_stage(together(stages, range(sharding.shards)), sharding)
            for stage in stages:
                figures |= _told(stage.merge(opened, dataset, directory), stage.total)
        else:
            for side in FILES:
                figures |= _encode_side(opened, side, dataset, counts[side], directory)
        return {
            **figures,
            **canary,
            "encoder": with_absolute_paths(settings).model_dump(),
            "similarity": opened.similarity.model_dump(),
            "source": plan.source,
            "checkpoint_hash": fingerprint,
            "num_passages": counts["passage"],
            "num_queries": counts["query"],
            "dimension": opened.dimension,
            "made_from": {"dataset": relative_to(out, dataset.path)},
        }

    artifact = make_artifact(
        out,
        KIND,
        inputs=plan.inputs,
        config=plan.config,
        write=write,
        overwrite=overwrite,
        stale=plan.stale if overwrite else None,
    )
    discard_shards(Path(out))
    return Features(artifact.path, artifact.meta)


def _of_one_model(directory: Path, out: str | Path, encoder: TextEncoder, overwrite: bool) -> dict[str, Any]:
    """The encoder's canary. What another model has half made in ``directory`` is deleted if ``overwrite``.

    Raises:
        ArtifactError: Another model began, and ``overwrite`` is False.
    """
    file, now = scratch(directory) / _CANARY, canary_of(encoder)
    if file.is_file() and not is_same_canary(json.loads(file.read_text("utf-8")), now):
        if not overwrite:
            raise ArtifactError(
                f"{out}: half made by another model than {encoder.settings.checkpoint} has now. Give back that model "
                "to go on, or pass --overwrite to begin again."
            )
        say(f"{out}: begun again, since its model has changed")
        claim = scratch(directory) / CLAIM
        for left in [left for left in directory.rglob("*") if left.is_file() and left != claim]:
            left.unlink()
    write_json(file, now)
    return now


def encode_shard(
    dataset: Dataset,
    encoder: EncoderSettings,
    out: str | Path,
    shard: Shard,
    *,
    device: str = "cpu",
    storage: str | None = None,
) -> list[Path]:
    """Encode one shard of the features ``out``; :func:`encode_dataset` with the same number of shards merges them.

    Args:
        dataset: The texts.
        encoder: Settings of a checkpoint.
        out: Directory of the features.
        shard: The shard.
        device: Device of the checkpoint.
        storage: As of :class:`Sharding`.

    Returns:
        Files of the shard, one of passages and one of queries unless there are fewer windows of them than shards; they
        are in the storage if one is given.

    Raises:
        GnnRetrievalError: As :func:`encode_dataset`.
    """
    plan = EncodingPlan.of(dataset, encoder, device)
    require_sharded(plan.settings, dataset)
    made = SparseShards if plan.settings.sparse else EncodingShards
    stage = together(plan.shards(made, shard.total, out), [shard.number])
    run_stage(stage, Sharding(shards=1, storage=storage), partly=True)
    return [stage.path(number) for number in range(len(stage.parts))]


def encoder_records(meta: Mapping[str, Any]) -> dict[str, Any]:
    """The encoder's entries of an artifact's ``meta.json``, for artifacts that are made from it."""
    names = ("encoder", "source", "checkpoint_hash", "canary")
    return {name: meta[name] for name in names if name in meta}


def write_texts(path: Path, dataset: Dataset) -> dict[Side, int]:
    """Write ids and texts of passages and queries; returns the number of each."""
    with TextStore(path, create=True) as texts:
        texts.add_passages(passage_rows(dataset.passages()))
        texts.add_queries(QueryRow(row, query.id, query.text, "") for row, query in enumerate(dataset.queries()))
    return {"passage": len(dataset.passage_ids), "query": len(dataset.query_ids)}


def _encode_side(
    encoder: TextEncoder,
    side: Side,
    dataset: Dataset,
    total: int,
    directory: Path,
) -> dict[str, Any]:
    """Encode the texts of one side into ``directory``; returns entries for ``meta.json``."""
    name = FILES[side]
    manifest_path, array_path = scratch(directory) / "manifest.json", directory / f"{name}.npy"
    manifest: dict[str, int] = json.loads(manifest_path.read_text()) if manifest_path.exists() else {}
    done = manifest.get(name, 0)
    reading = reading_of(encoder, side, dataset, directory.joinpath, manifest)
    shape = (total, encoder.dimension)
    with (
        ArrayWriter(array_path, shape, np.float16, done) as array,
        progress(f"encoding {name}", total, name, done) as meter,
    ):
        for window in windows(reading, done, reading.window):
            vectors = reading.vectors(window, done)
            require_finite(vectors, encoder)
            array.write(vectors)
            array.flush()
            done += len(vectors)
            # Only after the rows are on disk, so that a resumed run never counts rows that are not there.
            record_progress(directory, manifest_path, {**manifest, **reading.state, name: done})
            meter.advance(len(vectors))
    return _told(reading, total)


def _told(reading: WholeTexts, total: int) -> dict[str, Any]:
    """Say what was read; returns entries for ``meta.json``."""
    if words := reading.in_words():
        say(words)
    return reading.figures(total)
