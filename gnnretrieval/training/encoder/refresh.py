"""Hard negatives mined by the encoder in training, at regular intervals (ANCE, Xiong et al. 2021)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from gnnretrieval.data.dataset import Dataset
from gnnretrieval.encoders.exact_search import exact_top_k
from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.mining.examples import Candidate, Example, as_written, read_examples, write_examples
from gnnretrieval.storage.arrays import load_array
from gnnretrieval.storage.artifacts import whole_file
from gnnretrieval.storage.places import scratch
from gnnretrieval.training.encoder.encoded import encoded, write_passage_vectors
from gnnretrieval.training.encoder.pair_data import Relevance
from gnnretrieval.training.encoder.towers import TextTower
from gnnretrieval.training.ranks import Ranks

SOURCE = "encoder in training"


class Refresher:
    """Mines hard negatives by searching the whole corpus with the current encoder.

    Args:
        dataset: The corpus.
        query_texts: Texts of the training queries by id.
        towers: The towers ``query`` and ``passage``.
        similarity: Similarity of their vectors.
        every: Number of steps between two searches.
        top: Number of passages retrieved per query; those that are not relevant become its negatives.
        token_budget: Maximum number of tokens, with padding, that are encoded together.
    """

    def __init__(
        self,
        dataset: Dataset,
        query_texts: Mapping[str, str],
        towers: Mapping[str, TextTower],
        similarity: Similarity,
        every: int,
        top: int,
        token_budget: int,
    ) -> None:
        self.dataset, self.query_texts, self.towers, self.similarity = dataset, query_texts, towers, similarity
        self.every, self.top, self.token_budget = every, min(top, len(dataset.passage_ids)), token_budget
        self._at = -1

    def refreshed(
        self, examples: list[Example], relevance: Relevance, step: int, directory: Path, ranks: Ranks
    ) -> list[Example]:
        """The examples with the negatives of ``step``, after a search if one is due.

        The negatives are written to ``directory``, so that a resumed run uses the same ones.

        Raises:
            GnnRetrievalError: The negatives of a resumed run are missing, or the encoder's vectors are not finite.
        """
        due = step // self.every * self.every
        if due == self._at:
            return examples
        file = scratch(directory) / f"negatives-{due}.jsonl"
        if ranks.first and not file.exists():
            if due != step:
                raise GnnRetrievalError(
                    f"{directory}: the negatives mined at step {due} are missing, so training cannot resume. "
                    "Delete this directory to train from the start."
                )
            with whole_file(file) as partial:
                write_examples(partial, self._mined(examples, relevance, scratch(directory) / "passages.npy"))
        ranks.agree(None)  # all processes wait for the file
        self._at = due
        return list(read_examples(file))

    def _mined(self, examples: Sequence[Example], relevance: Relevance, place: Path) -> list[Example]:
        """The examples with new negatives; ``place`` is a temporary file for the passages' vectors."""
        self.towers["query"].module.eval()
        items = self.towers["query"].items("query", [self.query_texts[example.query] for example in examples])
        queries = encoded(self.towers["query"], items, self.token_budget)
        write_passage_vectors(self.dataset, self.towers["passage"], place, self.token_budget, "refreshing negatives")
        rows, scores = exact_top_k(queries.numpy(), load_array(place), self.top, self.similarity)
        place.unlink()
        if not np.isfinite(scores).all():
            raise GnnRetrievalError(
                "training has diverged: the encoder makes vectors that are not finite, by which no negatives can be "
                "mined. Give a lower learning_rate."
            )
        ids = self.dataset.passage_ids
        return [
            example._replace(
                negatives=tuple(
                    Candidate(ids[row], SOURCE, rank, as_written(score))
                    for rank, (row, score) in enumerate(zip(top.tolist(), top_scores, strict=True), 1)
                    if not relevance.is_relevant(example.query, ids[row])
                )
            )
            for example, top, top_scores in zip(examples, rows, scores, strict=True)
        ]
