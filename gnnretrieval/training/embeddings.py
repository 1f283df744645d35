"""The query-interactive passage embeddings as an artifact: what is indexed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from gnnretrieval.artifacts import Artifact, load_array, open_artifact, relative_to
from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.graph.store import TEXTS, GraphStore
from gnnretrieval.making import make_artifact
from gnnretrieval.progress import progress
from gnnretrieval.training.embedding import gated_contexts
from gnnretrieval.training.model import GNNEncoderModel

KIND = "embeddings"


class Embeddings(Artifact):
    """``h'_p`` of every passage, as they are compared."""

    @property
    def passages(self) -> NDArray[np.float16]:
        """``(m, d)``, of length 1 where the similarity is cosine; memory-mapped."""
        array: NDArray[np.float16] = load_array(self.path / "passages.npy")
        return array

    @property
    def similarity(self) -> Similarity:
        """How they are compared."""
        return Similarity.parse(self.meta["similarity"], self.path / "meta.json")


def open_embeddings(path: str | Path) -> Embeddings:
    """Open the embeddings at ``path``; errors as :func:`gnnretrieval.artifacts.open_artifact`."""
    artifact = open_artifact(path, KIND, ("encoder", "similarity", "checkpoint_hash", "made_from"))
    return Embeddings(artifact.path, artifact.meta)


def embed_passages(
    model: GNNEncoderModel,
    store: GraphStore,
    out: str | Path,
    *,
    device: str = "cpu",
    overwrite: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> Embeddings:
    """Compute every passage's embedding over the full graph into the artifact ``out``.

    Raises:
        ArtifactError: the model was trained for another graph's widths or another dual-encoder.
    """
    model.require_fits(store)

    def write(directory: Path) -> dict[str, Any]:
        module = model.load(device)
        shape = (store.num_passages, store.dimension)
        array = open_memmap(directory / "passages.npy", mode="w+", dtype=np.float16, shape=shape)
        with progress("embedding", store.num_queries + store.num_passages, "nodes") as meter:
            for rows, passages, context in gated_contexts(module, store, device, advance=meter.advance):
                vectors = store.similarity.prepare(passages + module.context_scale * context)
                array[rows] = vectors.cpu().numpy()
        array.flush()
        shutil.copyfile(store.path / TEXTS, directory / TEXTS)
        return {
            "similarity": store.similarity.model_dump(),
            "encoder": store.meta["encoder"],
            "source": store.meta["source"],
            "checkpoint_hash": store.meta["checkpoint_hash"],
            "num_passages": store.num_passages,
            "dimension": store.dimension,
            "made_from": {"gnn-encoder": relative_to(out, model.path), "graph": relative_to(out, store.path)},
        }

    artifact = make_artifact(
        out,
        KIND,
        inputs={"gnn-encoder": model.hash, "graph": store.hash},
        config={},
        write=write,
        overwrite=overwrite,
        say=say,
    )
    return Embeddings(artifact.path, artifact.meta)
