"""The artifact of a map: points of all passages before and after the GNN-encoder, and of the training questions."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gnnretrieval.data.text_store import TextStore
from gnnretrieval.errors import ArtifactError
from gnnretrieval.graph.store import TEXTS
from gnnretrieval.maps.projection import Floats
from gnnretrieval.storage.arrays import load_array
from gnnretrieval.storage.artifacts import Artifact, open_artifact
from gnnretrieval.training.gnn.embeddings import KIND as EMBEDDINGS
from gnnretrieval.training.gnn.embeddings import open_embeddings

KIND = "map"
RECORDS = (
    "made_from",
    "num_passages",
    "num_questions",
    "variance_kept",
    "displacement_kept",
    "share_moved",
    "after_head",
)  # entries of its metadata


class PassageMap(Artifact):
    """A map on disk. Its rows are those of the embeddings; arrays are memory maps."""

    @property
    def before(self) -> Floats:
        """``(m, 2)``: points of the dual-encoder's passage vectors."""
        return self._array("before", (self.num_passages, 2))

    @property
    def after(self) -> Floats:
        """``(m, 2)``: points of the embeddings, by the same projection as :attr:`before`."""
        return self._array("after", (self.num_passages, 2))

    @property
    def displacement(self) -> Floats:
        """``(m,)``: cosine distance of a passage's vectors before and after, in all dimensions; 0 to 2."""
        return self._array("displacement", (self.num_passages,))

    @property
    def questions(self) -> Floats:
        """``(n, 2)``: points of the graph's training questions, by the same projection."""
        return self._array("questions", (self.num_questions, 2))

    @property
    def num_passages(self) -> int:
        """Number ``m`` of passages."""
        return int(self.meta["num_passages"])

    @property
    def num_questions(self) -> int:
        """Number ``n`` of training questions."""
        return int(self.meta["num_questions"])

    def texts(self) -> TextStore:
        """Ids and texts by the map's rows, from the embeddings it was made from.

        Raises:
            ArtifactError: The embeddings are gone, or are not those that the map was made from.
        """
        embeddings = open_embeddings(self.made_from(EMBEDDINGS))
        if embeddings.hash != self.meta["inputs"][EMBEDDINGS]:
            raise ArtifactError(
                f"{self.path}: made from another version of {embeddings.path} than is there now. Make the map again."
            )
        return TextStore(embeddings.path / TEXTS)

    def _array(self, name: str, shape: tuple[int, ...]) -> Floats:
        array: Floats = load_array(self.path / f"{name}.npy", shape, np.float32)
        return array


def open_map(path: str | Path) -> PassageMap:
    """Open the map at ``path``; raises as :func:`gnnretrieval.storage.artifacts.open_artifact`."""
    artifact = open_artifact(path, KIND, RECORDS)
    artifact.require_recorded("before.npy", "after.npy", "displacement.npy", "questions.npy")
    return PassageMap(artifact.path, artifact.meta)
