"""The parts of an index as shards, which several processes or machines build."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.encoders.features import KIND as FEATURES
from gnnretrieval.encoders.features import Features, open_features
from gnnretrieval.errors import ArtifactError
from gnnretrieval.index.building import IndexPlan, learn, learned_file, write_shard
from gnnretrieval.shards.engines import Sharding, run_stage
from gnnretrieval.training.gnn.embeddings import Embeddings, open_embeddings

Source = Embeddings | Features


@dataclass(frozen=True)
class PartShards:
    """The FAISS files of an index, each with some of the vectors.

    Attributes:
        source: Path of the embeddings or features.
        kind: Kind of that artifact.
        source_hash: Its hash.
        sentences: Whether the vectors are those of sentences.
        plan: How the index is built.
        learned: The file of lists and codes, if the plan learns any.
        directory: The unfinished index.
        unit: What the vectors are of.
    """

    source: Path
    kind: str
    source_hash: str
    sentences: bool
    plan: IndexPlan
    learned: Path
    directory: Path
    unit: str
    device: str = "cpu"

    @property
    def name(self) -> str:
        """As :attr:`gnnretrieval.shards.stage.ShardedStage.name`."""
        return "indexing"

    @cached_property
    def parts(self) -> Sequence[slice]:
        """The vectors of each file."""
        return [slice(start, stop) for start, stop in pairwise(self.plan.shards)]

    def moved(self, input_at: Callable[[Path], Path], directory: Path) -> Self:
        """As :meth:`gnnretrieval.shards.stage.ShardedStage.moved`."""
        learned = input_at(self.learned) if self.plan.training else self.learned
        return replace(self, source=input_at(self.source), learned=learned, directory=directory)

    def path(self, number: int) -> Path:
        """A FAISS file."""
        return self.directory / self.plan.files[number]

    def run(self, number: int) -> None:
        """Build a file.

        Raises:
            ArtifactError: This machine has other vectors, or one is not finite.
        """
        source = open_features(self.source) if self.kind == FEATURES else open_embeddings(self.source)
        if source.hash != self.source_hash:
            raise ArtifactError(
                f"{self.source}: this machine finds other vectors there. Use storage that all workers see."
            )
        vectors = vectors_of(source, self.sentences)
        write_shard(vectors, source.similarity, self.plan, self.learned, self.directory, number)


def vectors_of(source: Source, sentences: bool, *, own: bool = False) -> NDArray[np.floating]:
    """The vectors that an index of ``source`` is built from ``(m, d)``.

    Args:
        source: Embeddings or features.
        sentences: Those of sentences.
        own: Of passages with several vectors only the own one of each.

    Raises:
        ArtifactError: Embeddings have no sentences.
    """
    if isinstance(source, Embeddings):
        if sentences:
            raise ArtifactError(f"{source.path}: embeddings of whole passages. Sentences are indexed from features.")
        return source.passages if own else source.vectors
    return source.sentences if sentences else source.passages


def unit_of(source: Source, sentences: bool) -> str:
    """What an index of ``source`` has vectors of."""
    if isinstance(source, Embeddings) and source.has_questions:
        return "passages and questions"
    return "sentences" if sentences else "passages"


def build_parts(source: Source, sentences: bool, plan: IndexPlan, directory: Path, sharding: Sharding) -> None:
    """Write the FAISS files of an index to ``directory`` by several processes or machines.

    Raises:
        InputError: As :func:`gnnretrieval.index.building.learn`.
        GnnRetrievalError: As :func:`gnnretrieval.shards.engines.run_stage`.
    """
    learn(vectors_of(source, sentences), source.similarity, plan, directory)
    run_stage(
        PartShards(
            source=source.path.resolve(),
            kind=source.meta["kind"],
            source_hash=source.hash,
            sentences=sentences,
            plan=plan,
            learned=learned_file(directory).resolve(),
            directory=directory.resolve(),
            unit=unit_of(source, sentences),
        ),
        sharding,
    )
