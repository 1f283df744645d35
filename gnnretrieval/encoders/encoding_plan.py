"""What decides the result of encoding a dataset: inputs, configuration, and shards."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from gnnretrieval.data.dataset import Dataset
from gnnretrieval.encoders.canary import canary_of, is_same_canary
from gnnretrieval.encoders.encoding_shards import FILES, TextShards
from gnnretrieval.encoders.learned_from import learned_from
from gnnretrieval.encoders.opening import fingerprint_of, open_encoder
from gnnretrieval.encoders.precision import computes_in_bfloat16
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.encoders.text_encoder import TextEncoder
from gnnretrieval.encoders.trained import trained_settings
from gnnretrieval.shards.stage import Together, shard_directory
from gnnretrieval.storage.artifacts import Artifact
from gnnretrieval.storage.making import fingerprint

Made = TypeVar("Made", bound=TextShards)
FEATURES, SPARSE_FEATURES = "features", "sparse-features"


class EncodingPlan(NamedTuple):
    """What decides the result of encoding a dataset.

    Attributes:
        dataset: The texts.
        settings: The encoder's settings.
        given: The open encoder; None: it is opened by its settings.
        fingerprint: Hash of the weights by side.
        source: Where the weights are from.
        learned_from: Ids of the queries that the encoder learned from.
        config: The artifact's configuration.
        device: Device of a checkpoint.
    """

    dataset: Dataset
    settings: EncoderSettings
    given: TextEncoder | None
    fingerprint: dict[str, str]
    source: str
    learned_from: frozenset[str]
    config: dict[str, Any]
    device: str

    @classmethod
    def of(cls, dataset: Dataset, encoder: EncoderSettings | TextEncoder, device: str) -> EncodingPlan:
        """The plan of encoding ``dataset``."""
        given = None if isinstance(encoder, EncoderSettings) else encoder
        settings = encoder if isinstance(encoder, EncoderSettings) else encoder.settings
        known = learned_from(settings)
        settings = trained_settings(settings)
        fingerprint, source = fingerprint_of(settings) if given is None else (given.fingerprint, given.source)
        return cls(dataset, settings, given, fingerprint, source, known, config_of(settings, device), device)

    def stale(self, made: Artifact) -> str | None:
        """Why features made from the same texts and settings are out of date: an endpoint's model may change."""
        if "canary" not in made.meta:
            return None
        now = canary_of(self.given or open_encoder(self.settings, self.device))
        return None if is_same_canary(made.meta["canary"], now) else "its model has changed"

    @property
    def inputs(self) -> dict[str, str]:
        """The artifact's inputs."""
        return {
            "texts": self.dataset.texts_hash,
            "encoder": self.fingerprint["passage"],
            "query encoder": self.fingerprint["query"],
        }

    @property
    def kind(self) -> str:
        """Kind of the artifact that is made."""
        return SPARSE_FEATURES if self.settings.sparse else FEATURES

    def shards(self, made: type[Made], count: int, out: str | Path) -> list[Made]:
        """The shards of the artifact ``out``: passages, and queries."""
        batches = {"window": self.settings.window, "token_budget": self.settings.token_budget}  # decide how they round
        directory = shard_directory(Path(out), fingerprint(self.kind, self.inputs, self.config | batches))
        settings = with_absolute_paths(self.settings).model_dump_json()
        counts = (len(self.dataset.passage_ids), len(self.dataset.query_ids))
        return [
            made(self.dataset.place, settings, self.fingerprint[side], side, total, count, directory, self.device)
            for side, total in zip(FILES, counts, strict=True)
        ]


def together(stages: Sequence[TextShards], numbers: Sequence[int]) -> Together:
    """Shards with these numbers of both sides."""
    members = tuple((stage, number) for stage in stages for number in numbers if number < len(stage.parts))
    return Together("encoding", "texts", stages[0].device, members)


def config_of(settings: EncoderSettings, device: str) -> dict[str, Any]:
    """The settings that decide what texts are encoded to, besides the weights."""
    config = settings.model_dump(exclude={"checkpoint", "query_checkpoint", "token_budget", "window", "api"})
    for name, before in (("sentences", "none"), ("query_max_tokens", None)):
        if config[name] == before:
            del config[name]  # so that features made before these settings existed are still up to date
    if settings.precision == "auto":
        config["precision"] = "bfloat16" if computes_in_bfloat16(device) else "float32"
    if not settings.is_checkpoint:
        del config["precision"], config["max_tokens"]
    return config


def with_absolute_paths(settings: EncoderSettings) -> EncoderSettings:
    """The settings with absolute paths of local checkpoints, so that any working directory finds them."""
    names = {"checkpoint": settings.checkpoint, "query_checkpoint": settings.query_checkpoint}
    places = {key: str(Path(name).resolve()) for key, name in names.items() if name and Path(name).is_dir()}
    return settings.model_copy(update=places)
