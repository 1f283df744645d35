"""Settings of building an index."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from gnnretrieval.settings import Settings

TARGET = 0.99  # recall@10 that a search is tuned to where nothing is said


class IndexSettings(Settings):
    """Which FAISS index, and how it is searched.

    Attributes:
        factory: What FAISS's index_factory is asked for, such as Flat, IVF4096,SQ8, HNSW32, PQ48 or
            OPQ48,IVF1024,PQ48. ``auto``: Flat, which is exact, up to 1 GiB of float32 vectors; above, IVF with float16
            vectors, or with 8-bit ones where those exceed the memory.
        search: What is set when it is searched, such as nprobe=32; not given: found by measuring.
        target_recall: Recall@10 against exact search that the cheapest search setting must reach; none reaching it is
            an error. Not given: 0.99, or as near as the kind comes.
        training: Vectors that lists and codes are learned from; not given: 64 a list, 65,536 at least.
        memory: GiB that building may take; an index that needs more is built and kept in shards.
        seed: Of the vectors that are learned from, of learning, and of the sample that is measured.
    """

    factory: str = Field("auto", min_length=1)
    search: str | None = None
    target_recall: float | None = Field(None, gt=0, le=1)
    training: int | None = Field(None, ge=1)
    memory: float = Field(4.0, gt=0)
    seed: int = Field(0, ge=0, lt=2**31)

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.search is not None and self.target_recall is not None:
            raise ValueError("search gives the setting and target_recall looks for one: give one of them")
        return self
