"""Features from vectors of another encoder, such as a paid API: no model is needed from then on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from gnnretrieval.data.dataset import Dataset
from gnnretrieval.encoders.encoded_texts import TEXTS
from gnnretrieval.encoders.features import KIND, Features, write_texts
from gnnretrieval.encoders.settings import VECTORS, EncoderSettings
from gnnretrieval.encoders.similarity import Similarity, similarity_of
from gnnretrieval.encoders.vector_file import BLOCK, VectorFile, open_vectors
from gnnretrieval.errors import InputError
from gnnretrieval.progress import progress, say
from gnnretrieval.settings import Settings
from gnnretrieval.storage.arrays import ArrayWriter, blocks
from gnnretrieval.storage.artifacts import relative_to
from gnnretrieval.storage.making import make_artifact
from gnnretrieval.storage.places import scratch
from gnnretrieval.storage.provenance import sha256_of_json

_LOST = 0.01  # maximum error of float16, relative to a vector's length; rounding alone has 0.0005


class VectorSettings(Settings):
    """The encoder that made the vectors, and how they are compared.

    Attributes:
        name: Name of the encoder, such as text-embedding-3-large. Vectors with the same name, similarity and width are
            comparable.
        similarity: How its vectors are compared: cosine or dot.
        scale: Factor on the similarity in the softmax (1 / temperature); not given: 20 for cosine, 1 for dot product.
    """

    name: str = Field(min_length=1)
    similarity: Literal["cosine", "dot"]
    scale: float | None = Field(None, gt=0)

    @field_validator("name")
    @classmethod
    def _one_line(cls, name: str) -> str:
        if not name.strip() or not name.isprintable():
            raise ValueError("give the encoder's name in one line")
        return name.strip()

    def encoder(self) -> EncoderSettings:
        """The settings of this encoder in artifacts."""
        return EncoderSettings(checkpoint=f"{VECTORS}{self.name}", similarity=self.similarity, scale=self.scale)

    def compares(self) -> Similarity:
        """The similarity of its vectors."""
        return similarity_of(self.encoder(), says_dot=False)

    def hash(self, dimension: int) -> str:
        """Hash in place of that of the weights: equal for vectors ``(…, dimension)`` of the same encoder."""
        return sha256_of_json({"name": f"{VECTORS}{self.name}", "similarity": self.similarity, "dimension": dimension})


def import_vectors(
    dataset: Dataset,
    passages: str | Path | VectorFile,
    queries: str | Path | VectorFile,
    settings: VectorSettings,
    out: str | Path,
    *,
    passage_ids: str | Path | None = None,
    query_ids: str | Path | None = None,
    overwrite: bool = False,
) -> Features:
    """Make the features artifact ``out`` from files of vectors.

    The formats are those of :func:`gnnretrieval.encoders.vector_file.open_vectors`; files are read in blocks of rows.
    An ``.npy`` without ids has the dataset's order. Vectors with ids that are not in the dataset are left out and
    counted. The features are float16, of length 1 if the similarity is cosine.

    Raises:
        InputError: A passage or query has no vector, or its vector is not finite, out of float16's range or (for
            cosine) zero; passages and queries have vectors of different widths; or a file cannot be read.
    """
    sides = {
        "passages": _Side(_opened(passages, passage_ids, dataset.passage_ids), dataset.passage_ids),
        "queries": _Side(_opened(queries, query_ids, dataset.query_ids), dataset.query_ids),
    }
    dimension, other = (side.file.dimension for side in sides.values())
    if dimension != other:
        files = [side.file.path for side in sides.values()]
        raise InputError(f"vectors of {other} numbers, and {files[0]} has {dimension}: give one encoder's.", files[1])
    similarity, hash_ = settings.compares(), settings.hash(dimension)

    def write(directory: Path) -> dict[str, Any]:
        counts = write_texts(directory / TEXTS, dataset)
        for name, side in sides.items():
            _write_side(side, name, similarity, directory)
        return {
            "encoder": settings.encoder().model_dump(),
            "similarity": similarity.model_dump(),
            "source": "vectors made outside",
            "checkpoint_hash": {"query": hash_, "passage": hash_},
            "num_passages": counts["passage"],
            "num_queries": counts["query"],
            "ignored": {name: side.ignored for name, side in sides.items()},
            "dimension": dimension,
            "made_from": {"dataset": relative_to(out, dataset.path)},
        }

    artifact = make_artifact(
        out,
        KIND,
        inputs={
            "texts": dataset.texts_hash,
            "encoder": hash_,
            "query encoder": hash_,
            **{f"vectors of {name}": side.file.hash() for name, side in sides.items()},
        },
        config=settings.model_dump(),
        write=write,
        overwrite=overwrite,
    )
    return Features(artifact.path, artifact.meta)


def _write_side(side: _Side, name: str, similarity: Similarity, directory: Path) -> None:
    """Write ``name.npy`` into ``directory``; after an error nothing stays there, because the files have to change."""
    try:
        side.write(directory / f"{name}.npy", similarity, scratch(directory), name)
    except InputError:
        for file in (TEXTS, "passages.npy", "queries.npy", f"{scratch(directory).name}/{name}.npy"):
            (directory / file).unlink(missing_ok=True)
        raise
    if side.ignored:
        say(f"{side.file.path}: {side.ignored:,} vectors of other {name} than the dataset's left out")


def _opened(vectors: str | Path | VectorFile, ids_path: str | Path | None, ids: Sequence[str]) -> VectorFile:
    return vectors if isinstance(vectors, VectorFile) else open_vectors(vectors, ids_path, ids)


class _Side:
    """The vectors of a dataset's passages, or of its queries.

    Args:
        file: The vectors, with ids.
        ids: The dataset's ids, by row.

    Raises:
        InputError: An id of the dataset has no vector.
    """

    def __init__(self, file: VectorFile, ids: Sequence[str]) -> None:
        assert file.ids is not None
        self.file, self.ids = file, ids
        row_of = {id_: row for row, id_ in enumerate(ids)}
        self.rows = np.array([row_of.get(id_, -1) for id_ in file.ids], dtype=np.int64)  # row in the dataset, or -1
        self.ignored = int((self.rows < 0).sum())
        if file.count - self.ignored < len(ids):
            has_vector = np.zeros(len(ids), dtype=np.bool_)
            has_vector[self.rows[self.rows >= 0]] = True
            raise InputError(
                f"{len(ids) - int(has_vector.sum()):,} of the dataset's {len(ids):,} have no vector among these "
                f"{file.count:,}, the first of them {ids[int(has_vector.argmin())]!r}. Make the vectors of all.",
                file.path,
            )

    def write(self, path: Path, similarity: Similarity, place: Path, name: str) -> None:
        """Write float16 ``(rows, d)`` in the dataset's order; files in another order are staged in ``place`` first."""
        kept = self.rows[self.rows >= 0]
        shape = (len(kept), self.file.dimension)
        in_order = bool((np.diff(kept) > 0).all())
        target = path if in_order else place / path.name
        with ArrayWriter(target, shape, np.float16) as writer, progress(f"reading {name}", len(kept), name) as meter:
            for block in self._checked(similarity):
                writer.write(block)
                meter.advance(len(block))
        if in_order:
            return
        staged = np.load(target, mmap_mode="r", allow_pickle=False)
        order = np.argsort(kept)
        with ArrayWriter(path, shape, np.float16) as writer, progress(f"sorting {name}", len(kept), name) as meter:
            for part in blocks(len(kept), BLOCK):
                writer.write(staged[order[part]])
                meter.advance(part.stop - part.start)
        target.unlink()

    def _checked(self, similarity: Similarity) -> Iterator[NDArray[np.float16]]:
        """Blocks of the dataset's vectors by :func:`as_kept`, in the order of the file."""
        wanted = self.rows >= 0
        for part, block in self.file.blocks(wanted):
            rows = np.flatnonzero(wanted[part])
            yield as_kept(self.file, part.start + rows, block[rows], similarity)


def as_kept(
    file: VectorFile, rows: NDArray[np.int64], vectors: NDArray[np.floating], similarity: Similarity
) -> NDArray[np.float16]:
    """Vectors ``(b, d)`` at ``rows`` of a file as features keep them: float16, of length 1 for cosine.

    Raises:
        InputError: A vector is zero with cosine, or has numbers out of float16's range; the message names its id.
    """
    exact, largest = vectors.astype(np.float64), float(np.finfo(np.float16).max)
    if similarity.normalize:
        lengths = np.linalg.norm(exact, axis=1, keepdims=True)
        if (zero := lengths[:, 0] == 0).any():
            file.refuse(int(rows[zero.argmax()]), "is zero, which has no cosine")
        exact /= lengths
    elif (large := (np.abs(exact) > largest).any(axis=1)).any():
        file.refuse(int(rows[large.argmax()]), f"holds a number beyond float16's {largest:g}")
    kept: NDArray[np.float16] = exact.astype(np.float16)
    lost = np.linalg.norm(exact - kept, axis=1) > _LOST * np.linalg.norm(exact, axis=1)
    if lost.any():
        file.refuse(
            int(rows[lost.argmax()]),
            f"has numbers too small for float16 (below {float(np.finfo(np.float16).tiny):.0e}): "
            "multiply all vectors, passages' and queries', by one number",
        )
    return kept
