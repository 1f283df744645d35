"""Settings of a map."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gnnretrieval.settings import Settings


class MapSettings(Settings):
    """How vectors become points.

    Attributes:
        method: ``pca``: the two axes of most variance, which keep straight lines straight; ``umap``: keeps
            neighbourhoods, and needs the extra ``umap``.
        sample: Passages that the projection is fit on, before and after; drawn at random if there are more.
        seed: Seed of the sample and of UMAP.
    """

    method: Literal["pca", "umap"] = "pca"
    sample: int = Field(50_000, ge=2)
    seed: int = Field(0, ge=0, lt=2**32)
