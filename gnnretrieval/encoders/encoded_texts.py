"""What features of all kinds share: the texts that they were made from, and the rows of queries."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.dataset import Dataset
from gnnretrieval.data.text_store import TextStore
from gnnretrieval.errors import ArtifactError
from gnnretrieval.storage.artifacts import Artifact

TEXTS = "texts.sqlite"


class EncodedTexts(Artifact):
    """An artifact with something for every passage and query of a dataset."""

    def passage_ids(self) -> list[str]:
        """Ids of the passages, in the order of their rows."""
        with TextStore(self.path / TEXTS) as texts:
            return texts.passage_ids()

    def query_rows(self) -> dict[str, int]:
        """Row of each query, by id."""
        with TextStore(self.path / TEXTS) as ids:
            return {id_: row for row, id_ in enumerate(ids.query_ids())}

    def require_of(self, dataset: Dataset) -> None:
        """Check that these features were made from the texts of ``dataset``.

        Raises:
            ArtifactError: They were not.
        """
        if self.meta["inputs"]["texts"] != dataset.texts_hash:
            raise ArtifactError(
                f"{self.path}: these features were made from other texts than those of {dataset.path}. "
                "Encode this dataset, or give its features."
            )

    def rows_of(self, query_ids: Iterable[str]) -> NDArray[np.int64]:
        """Rows ``(len(query_ids),)`` int64 of queries.

        Raises:
            ArtifactError: A query has no features.
        """
        rows = self.query_rows()
        try:
            return np.array([rows[id_] for id_ in query_ids], dtype=np.int64)
        except KeyError as error:
            raise ArtifactError(f"{self.path}: no features of query {error}. Encode this dataset again.") from None
