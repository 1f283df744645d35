"""Graph-centric dense retrieval: a query-passage graph, and a GNN-encoder trained over it (GNN-encoder, 2022).

In one call: :class:`GraphRetriever`. Step by step: :class:`Dataset`, :class:`Features`, :class:`Graph`, :func:`train`,
:class:`Index`, :class:`Retriever`; then :func:`evaluate` and :func:`compare`.
"""

from typing import TYPE_CHECKING

from gnnretrieval.platform.lazy import lazy_exports

if TYPE_CHECKING:
    from gnnretrieval.api.graph_retriever import GraphRetriever
    from gnnretrieval.api.training import train
    from gnnretrieval.data.dataset import Dataset
    from gnnretrieval.encoders.endpoint import EndpointEncoder
    from gnnretrieval.encoders.features import Features
    from gnnretrieval.encoders.function_encoder import FunctionEncoder
    from gnnretrieval.encoders.settings import EncoderSettings
    from gnnretrieval.errors import GnnRetrievalError
    from gnnretrieval.evaluation.compare import compare
    from gnnretrieval.evaluation.evaluate import evaluate
    from gnnretrieval.graph.settings import GraphSettings
    from gnnretrieval.graph.store import Graph
    from gnnretrieval.index.faiss_index import Index
    from gnnretrieval.index.hybrid import RankingSettings
    from gnnretrieval.index.retriever import Retriever
    from gnnretrieval.index.settings import IndexSettings
    from gnnretrieval.progress import show_progress
    from gnnretrieval.training.gnn.model import GNNEncoderModel
    from gnnretrieval.training.gnn.settings import TrainSettings

_EXPORTS = {
    "Dataset": "data.dataset",
    "EncoderSettings": "encoders.settings",
    "EndpointEncoder": "encoders.endpoint",
    "Features": "encoders.features",
    "FunctionEncoder": "encoders.function_encoder",
    "GNNEncoderModel": "training.gnn.model",
    "GnnRetrievalError": "errors",
    "Graph": "graph.store",
    "GraphRetriever": "api.graph_retriever",
    "GraphSettings": "graph.settings",
    "Index": "index.faiss_index",
    "IndexSettings": "index.settings",
    "RankingSettings": "index.hybrid",
    "Retriever": "index.retriever",
    "TrainSettings": "training.gnn.settings",
    "compare": "evaluation.compare",
    "evaluate": "evaluation.evaluate",
    "show_progress": "progress",
    "train": "api.training",
}
__all__ = [
    "Dataset",
    "EncoderSettings",
    "EndpointEncoder",
    "Features",
    "FunctionEncoder",
    "GNNEncoderModel",
    "GnnRetrievalError",
    "Graph",
    "GraphRetriever",
    "GraphSettings",
    "Index",
    "IndexSettings",
    "RankingSettings",
    "Retriever",
    "TrainSettings",
    "__version__",
    "compare",
    "evaluate",
    "show_progress",
    "train",
]

__version__ = "0.1.0"

__getattr__ = lazy_exports(__name__, _EXPORTS)


def __dir__() -> list[str]:
    return __all__
