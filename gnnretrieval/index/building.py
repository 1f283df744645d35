"""Building the FAISS files of an index: learned from a sample, filled in blocks, in parts that fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.encoders.faiss_search import import_faiss
from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.errors import InputError
from gnnretrieval.index.faiss_files import read_faiss
from gnnretrieval.index.kinds import (
    EXACT,
    bytes_per_vector,
    empty_index,
    factory_for,
    inverted_lists,
    reason_of,
    set_search,
)
from gnnretrieval.index.settings import IndexSettings
from gnnretrieval.progress import progress, say
from gnnretrieval.storage.array_checks import require_finite
from gnnretrieval.storage.arrays import blocks, gather_rows, release
from gnnretrieval.storage.artifacts import whole_file
from gnnretrieval.storage.places import scratch

FILE = "index.faiss"
_BLOCK = 65536  # vectors added at a time
_LEARNED_FROM = 65_536  # minimum number of vectors to learn from; 64 per list if that is more
_GROWTH = 2  # a growing array is doubled, so it briefly takes twice its size


class IndexPlan(NamedTuple):
    """Plan of building the FAISS files.

    Attributes:
        factory: Argument of FAISS's index_factory; never ``auto``.
        training: Number of vectors that are learned from; 0 if nothing is learned.
        shards: First vector of each shard, and one past the last.
        seed: Seed of the sample and of learning.
    """

    factory: str
    training: int
    shards: tuple[int, ...]
    seed: int

    @property
    def files(self) -> list[str]:
        """Names of the files, one per shard."""
        return shard_files(len(self.shards) - 1)


def shard_files(count: int) -> list[str]:
    """Names of the files of an index of ``count`` shards."""
    return [FILE] if count == 1 else [f"index-{number:04d}.faiss" for number in range(count)]


def plan_of(settings: IndexSettings, count: int, dimension: int) -> IndexPlan:
    """Plan an index of ``count`` vectors of width ``dimension``.

    Raises:
        InputError: FAISS does not know the factory or the search setting, the factory needs more vectors than there
            are, or the memory is too small.
    """
    memory = int(settings.memory * 2**30)
    factory = factory_for(count, dimension, memory) if settings.factory == "auto" else settings.factory
    empty = empty_index(factory, dimension, settings.seed)
    set_search(empty, settings.search or "")
    lists = inverted_lists(empty)
    if lists is not None and lists.nlist > count:
        raise InputError(
            f"factory {factory!r} has {lists.nlist:,} lists, and there are {count:,} vectors: "
            f"give IVF{max(1, round(count**0.5))} or fewer, or Flat."
        )
    training = 0
    if not empty.is_trained:  # the sample is held in memory as float32
        training = min(count, settings.training or max(_LEARNED_FROM, 64 * (lists.nlist if lists is not None else 0)))
        if 4 * dimension * training > memory:
            raise InputError(
                f"memory of {settings.memory:g} GiB holds {memory // (4 * dimension):,} vectors, and {training:,} are "
                "learned from: give more memory, or training = a smaller number."
            )
    elif settings.training is not None:
        say(f"training = {settings.training} has no effect: {factory} learns nothing from a sample")
    if settings.target_recall is not None and factory == EXACT:
        say(f"target_recall = {settings.target_recall:g} has no effect: {factory} is exact")
    room = memory - 2 * 4 * dimension * min(count, _BLOCK)  # a block takes this while it is added
    per_shard = room // (_GROWTH * bytes_per_vector(empty))
    if per_shard < min(count, _BLOCK):
        least = 2 * 4 * dimension + _GROWTH * bytes_per_vector(empty)
        raise InputError(
            f"memory of {settings.memory:g} GiB is too little to build in: "
            f"give {least * min(count, _BLOCK) / 2**30:.2f} or more."
        )
    shards = max(1, -(-count // per_shard), min(settings.parts or 1, count))
    bounds = tuple(count * number // shards for number in range(shards + 1))
    return IndexPlan(factory, training, bounds, settings.seed)


def write_shards(
    vectors: NDArray[np.floating],
    similarity: Similarity,
    plan: IndexPlan,
    directory: Path,
    unit: str,
) -> None:
    """Write the FAISS files of ``vectors`` ``(m, d)`` to ``directory``; files that are there already are kept.

    Raises:
        InputError: FAISS cannot learn this kind from so few vectors.
        ArtifactError: A vector is not finite.
    """
    learn(vectors, similarity, plan, directory)
    with progress("indexing", len(vectors), unit) as meter:
        for number, name in enumerate(plan.files):
            if (directory / name).is_file():
                meter.advance(plan.shards[number + 1] - plan.shards[number])
            else:
                write_shard(vectors, similarity, plan, learned_file(directory), directory, number, meter.advance)


def write_shard(
    vectors: NDArray[np.floating],
    similarity: Similarity,
    plan: IndexPlan,
    learned: Path,
    directory: Path,
    number: int,
    advance: Callable[[int], None] = lambda count: None,
) -> None:
    """Write one of the FAISS files of ``vectors`` ``(m, d)`` to ``directory``.

    Args:
        vectors: The vectors of all files.
        similarity: How they are compared.
        plan: How the index is built.
        learned: The file that :func:`learn` writes if the plan learns anything.
        directory: Directory of the files.
        number: Number of the file.
        advance: Called with numbers of vectors that are done.

    Raises:
        ArtifactError: A vector is not finite.
    """
    index = (
        read_faiss(learned, in_memory=True)
        if plan.training
        else empty_index(plan.factory, int(vectors.shape[1]), plan.seed)
    )
    start, stop = plan.shards[number], plan.shards[number + 1]
    for part in blocks(stop - start, _BLOCK):
        rows = slice(start + part.start, start + part.stop)
        require_finite(vectors[rows], Path(getattr(vectors, "filename", directory)), rows.start)
        add_vectors(index, similarity.prepare_array(vectors[rows]), np.arange(rows.start, rows.stop))
        release(vectors)
        advance(rows.stop - rows.start)
    with whole_file(directory / plan.files[number], shared=True) as partial:
        import_faiss().write_index(index, str(partial))


def learned_file(directory: Path) -> Path:
    """The file of lists and codes: all shards start from it, and an interrupted run resumes from it."""
    return scratch(directory) / "learned.faiss"


def learn(vectors: NDArray[np.floating], similarity: Similarity, plan: IndexPlan, directory: Path) -> None:
    """Learn lists and codes from a sample of ``vectors`` ``(m, d)``, once, if the plan has any.

    Raises:
        InputError: FAISS cannot learn this kind from so few vectors.
    """
    faiss, seed = import_faiss(), plan.seed
    place = learned_file(directory)
    if plan.training and not place.is_file():
        say(f"learning {plan.factory} from {plan.training:,} of {len(vectors):,} vectors")
        rows = np.sort(np.random.default_rng(seed).choice(len(vectors), plan.training, replace=False))
        index = empty_index(plan.factory, int(vectors.shape[1]), seed)
        try:
            index.train(similarity.prepare_array(gather_rows(vectors, rows)))
        except RuntimeError as error:
            raise InputError(
                f"factory {plan.factory!r} cannot be learned from {plan.training:,} vectors ({reason_of(error)}). "
                "Give one with fewer lists or shorter codes, or Flat."
            ) from None
        with whole_file(place) as partial:
            faiss.write_index(index, str(partial))


def add_vectors(index: Any, vectors: NDArray[np.float32], rows: NDArray[np.int64]) -> None:
    """Add vectors ``(b, d)``; an index that stores numbers gets ``rows`` ``(b,)``, others number them in order."""
    block = np.ascontiguousarray(vectors)
    if inverted_lists(index) is not None and numbers_itself(index):
        index.add_with_ids(block, rows)
    else:
        index.add(block)


def numbers_itself(index: Any) -> bool:
    """Whether ``index`` stores a number with each vector, so that a vector can be removed and added again."""
    faiss = import_faiss()
    lists, outer = inverted_lists(index), faiss.downcast_index(index)
    return isinstance(outer, faiss.IndexIVF | faiss.IndexPreTransform) and type(lists) in (
        faiss.IndexIVFFlat,
        faiss.IndexIVFScalarQuantizer,
        faiss.IndexIVFPQ,
    )


def open_shards(paths: Sequence[Path], *, in_memory: bool = False) -> list[Any]:
    """Open the FAISS indexes in files: memory-mapped, which reads almost nothing, or in memory, to be changed.

    Raises:
        ArtifactError: As :func:`gnnretrieval.index.faiss_files.read_faiss`.
    """
    return [read_faiss(path, in_memory=in_memory) for path in paths]


def joined(shards: Sequence[Any]) -> Any:
    """The shards as one FAISS index."""
    if len(shards) == 1:
        return shards[0]
    whole = import_faiss().IndexShards(int(shards[0].d), False, not numbers_itself(shards[0]))
    for shard in shards:
        whole.add_shard(shard)
    return whole
