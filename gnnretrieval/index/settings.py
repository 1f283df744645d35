"""Settings of building an index."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from gnnretrieval.settings import Settings

TARGET = 0.99  # recall@10 that a search is tuned to if no target is given


class IndexSettings(Settings):
    """The kind of FAISS index, and how it is searched.

    Attributes:
        factory: Argument of FAISS's index_factory, such as Flat, IVF4096,SQ8, HNSW32, PQ48 or OPQ48,IVF1024,PQ48.
            ``auto``: Flat, which is exact, up to 1 GiB of float32 vectors; above, IVF with float16 vectors, or with
            8-bit vectors if those exceed the memory.
        search: Parameters of the search, such as nprobe=32; not given: chosen by measuring.
        target_recall: Recall@10 against exact search that the search setting must reach; it is an error if none does.
            The fastest setting that reaches it is chosen. Not given: 0.99, or as near as this kind of index comes.
        training: Number of vectors that lists and codes are learned from; not given: 64 per list, at least 65,536.
        memory: GiB that building may take; an index that needs more is built and kept in parts.
        parts: Number of files that the index is kept in, each built alone, by several processes or machines; a search
            merges their answers. Not given: as few as the memory allows.
        seed: Seed of the sample that is learned from, of learning, and of the sample that is measured.
    """

    factory: str = Field("auto", min_length=1)
    search: str | None = None
    target_recall: float | None = Field(None, gt=0, le=1)
    training: int | None = Field(None, ge=1)
    memory: float = Field(4.0, gt=0)
    parts: int | None = Field(None, ge=1)
    seed: int = Field(0, ge=0, lt=2**31)

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.search is not None and self.target_recall is not None:
            raise ValueError("search gives the setting and target_recall looks for one: give one of them")
        return self
