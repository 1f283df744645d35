"""Settings of building a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from gnnretrieval.graph.edges.sources import DUAL_ENCODER, EDGE_SOURCES, EdgeSource
from gnnretrieval.settings import OneOf, Settings

if TYPE_CHECKING:
    from gnnretrieval.encoders.settings import CrossEncoderSettings

EdgeFeature = Literal["score", "reciprocal_rank", "bm25", "probability", "label"]


class GraphSettings(Settings):
    """Edges of a graph and their features.

    Attributes:
        k: Passages that each training query is joined to.
        edges: Source of the edges: the ``dual-encoder``, ``bm25``, or a TREC ``run`` (``--run FILE``). Where one of the
            last two has fewer than k passages, the dual-encoder adds its best others.
        search: Search of the dual-encoder: ``exact``, or ``faiss``: an approximate IVF index, rescored exactly.
        probes: Share of the lists that ``search = faiss`` probes.
        label_edges: Also join each query to its relevant passages: one that is not among its k replaces the last
            passage that is not relevant. Training masks these edges with their query. The paper: False.
        edge_features: Cheap edge features: the dual-encoder's ``score``, the ``reciprocal_rank``, ``bm25``: the pair's
            BM25 score as a share of the query's best, ``probability``: the cross-encoder's, and ``label``: 1 where the
            passage is judged relevant to the query.
        edge_vectors: Edge vectors besides the cheap features: ``none``, the pair's [CLS] vector by a ``cross-encoder``,
            or a ``file`` of your own (``--edge-file FILE.npy``).
        cross_encoder: Name or path of the cross-encoder ``M_ce``.
        pair_tokens: Maximum length of a pair in tokens.
        self_loops: Edge feature of a node's self-loop: a ``learned`` vector, or the ``cross-encoder``'s vector of the
            text paired with itself (the paper), which costs n + m more pairs.
        edge_form: Storage of edge vectors: ``float16``, or ``int8`` with one scale per edge.
        edge_dimensions: Project edge vectors to this many dimensions (PCA); not given: no projection.
        split: The split of the queries in the graph.
    """

    k: int = Field(5, ge=1)
    edges: Annotated[str, OneOf(DUAL_ENCODER, *EDGE_SOURCES)] = DUAL_ENCODER
    search: Literal["exact", "faiss"] = "exact"
    probes: float = Field(0.05, gt=0, le=1)
    label_edges: bool = True
    edge_features: tuple[EdgeFeature, ...] = ("score", "reciprocal_rank", "bm25", "label")
    edge_vectors: Literal["none", "cross-encoder", "file"] = "none"
    cross_encoder: str | None = None
    pair_tokens: int = Field(192, ge=8)
    self_loops: Literal["learned", "cross-encoder"] = "learned"
    edge_form: Literal["float16", "int8"] = "float16"
    edge_dimensions: int | None = Field(None, ge=1)
    split: str = "train"

    @property
    def source(self) -> EdgeSource | None:
        """The source of the edges, or None for the dual-encoder."""
        return EDGE_SOURCES.get(self.edges)

    @property
    def takes_run(self) -> bool:
        """Whether the edges come from a TREC run."""
        return self.source is not None and self.source.takes_run

    @property
    def keeps_bm25(self) -> bool:
        """Whether the store keeps a BM25 index, for its edges or for their features."""
        return "bm25" in self.edge_features or (self.source is not None and self.source.keeps_bm25)

    @property
    def reads_pairs(self) -> bool:
        """Whether a cross-encoder reads the pairs."""
        return self.edge_vectors == "cross-encoder" or "probability" in self.edge_features

    @property
    def cross_encoder_settings(self) -> CrossEncoderSettings:
        """Settings of the cross-encoder that reads the pairs, if :attr:`reads_pairs`."""
        from gnnretrieval.encoders.settings import CrossEncoderSettings

        return CrossEncoderSettings(checkpoint=str(self.cross_encoder), max_tokens=self.pair_tokens)

    @model_validator(mode="after")
    def _fit_together(self) -> GraphSettings:
        if len(set(self.edge_features)) < len(self.edge_features):
            raise ValueError("an edge feature is named twice")
        if self.reads_pairs and self.cross_encoder is None:
            raise ValueError("give cross_encoder: the name or path of the cross-encoder that reads the pairs")
        if self.self_loops == "cross-encoder" and self.edge_vectors != "cross-encoder":
            raise ValueError("self_loops = cross-encoder goes with edge_vectors = cross-encoder")
        if self.edge_vectors == "none" and (self.edge_dimensions is not None or self.edge_form != "float16"):
            raise ValueError("edge_form and edge_dimensions need edge vectors, but edge_vectors is none")
        if self.source is not None and self.search != "exact":
            raise ValueError("search = faiss goes with edges = dual-encoder")
        return self
