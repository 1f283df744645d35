"""Text to vectors: dual-encoders, BM25, exact search, and features (the vectors of a whole dataset)."""

from typing import TYPE_CHECKING

from gnnretrieval.platform.lazy import lazy_exports

if TYPE_CHECKING:
    from gnnretrieval.encoders.bm25 import BM25
    from gnnretrieval.encoders.checkpoint import find_checkpoint
    from gnnretrieval.encoders.dual_encoder import DualEncoder
    from gnnretrieval.encoders.endpoint import EndpointEncoder
    from gnnretrieval.encoders.exact_search import exact_top_k
    from gnnretrieval.encoders.features import Features, encode_dataset, open_features
    from gnnretrieval.encoders.function_encoder import FunctionEncoder
    from gnnretrieval.encoders.settings import EncoderSettings
    from gnnretrieval.encoders.similarity import Similarity
    from gnnretrieval.encoders.text_encoder import TextEncoder

__all__ = [
    "BM25",
    "DualEncoder",
    "EncoderSettings",
    "EndpointEncoder",
    "Features",
    "FunctionEncoder",
    "Similarity",
    "TextEncoder",
    "encode_dataset",
    "exact_top_k",
    "find_checkpoint",
    "open_features",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "BM25": "bm25",
        "DualEncoder": "dual_encoder",
        "EncoderSettings": "settings",
        "EndpointEncoder": "endpoint",
        "Features": "features",
        "FunctionEncoder": "function_encoder",
        "Similarity": "similarity",
        "TextEncoder": "text_encoder",
        "encode_dataset": "features",
        "exact_top_k": "exact_search",
        "find_checkpoint": "checkpoint",
        "open_features": "features",
    },
)
