"""Answers of questions: a reader reads the best passages of a ranking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from gnnretrieval.data.dataset import Dataset
from gnnretrieval.data.records import Passage
from gnnretrieval.data.runs.trec import Run, rank
from gnnretrieval.encoders.reader import Reader, Reading, log_probabilities
from gnnretrieval.errors import InputError
from gnnretrieval.index.fuse import scaled
from gnnretrieval.index.search import Hit
from gnnretrieval.progress import progress
from gnnretrieval.storage.arrays import blocks

_QUESTIONS = 16  # questions per call of the reader


class Answer(NamedTuple):
    """An answer and its place.

    Attributes:
        answer: The answer.
        passage: Id of the passage that it is from.
        rank: Rank of that passage, from 1.
        start: First character of the answer in the passage's text.
        end: The character after the answer's last.
        probability: Probability of this span among all spans of the passages that were read.
        score: Log-probability plus weighted retrieval score, by which it was chosen.
    """

    answer: str
    passage: str
    rank: int
    start: int
    end: int
    probability: float
    score: float


class ReadPassages(NamedTuple):
    """The passages of one question with a reader's best spans, best passage first.

    Attributes:
        passages: The passages.
        scores: Their retrieval scores.
        readings: The best span of each.
    """

    passages: Sequence[Passage]
    scores: Sequence[float]
    readings: Sequence[Reading]

    def answer(self, weight: float) -> Answer | None:
        """The span with the highest ``log P(span) + weight · scaled retrieval score``; None if no passage has text.

        The retrieval scores are scaled to 0 … 1 over the passages, so that a weight fits any retriever. Of equal spans,
        the one of the first passage is chosen.
        """
        log_p = log_probabilities(self.readings)
        if not np.isfinite(log_p).any():
            return None
        total = log_p + weight * scaled(np.asarray(self.scores, dtype=np.float64))
        place = int(total.argmax())
        passage, reading = self.passages[place], self.readings[place]
        text = passage.text[reading.start : reading.end]
        span = (reading.start, reading.end)
        return Answer(text, passage.id, place + 1, *span, float(np.exp(log_p[place])), float(total[place]))


def read_hits(reader: Reader, question: str, hits: Sequence[Hit]) -> ReadPassages:
    """Read the hits of one question."""
    passages = [Passage(hit.id, hit.title, hit.text) for hit in hits]
    return ReadPassages(passages, [hit.score for hit in hits], reader.read([question] * len(hits), passages))


def read_passages(reader: Reader, dataset: Dataset, queries: Mapping[str, str], run: Run) -> dict[str, ReadPassages]:
    """Read the first passages of a run for some questions.

    Args:
        reader: The reader; its settings say how many passages it reads.
        dataset: Gives the passages' texts.
        queries: Texts of the questions by id.
        run: The ranking of each; questions that it lacks are left out.

    Raises:
        InputError: The run names a passage that the dataset lacks, or none of the questions.
    """
    first = {query: rank(run[query])[: reader.settings.passages] for query in queries if run.get(query)}
    if not first:
        raise InputError("this run has none of these questions. Is it a run of another split?")
    wanted = {scored.passage_id for ranking in first.values() for scored in ranking}
    texts = {passage.id: passage for passage in dataset.passages() if passage.id in wanted}
    if missing := wanted - texts.keys():
        raise InputError(f"the run names passage {min(missing)!r}, which is not in it.", dataset.path)
    query_ids, read = list(first), dict[str, ReadPassages]()
    with progress("reading", len(query_ids), "questions") as meter:
        for part in blocks(len(query_ids), _QUESTIONS):
            block = query_ids[part]
            pairs = [(query, scored) for query in block for scored in first[query]]
            spans = iter(reader.read([queries[query] for query, _ in pairs], [texts[s.passage_id] for _, s in pairs]))
            for query in block:
                ranking = first[query]
                passages = [texts[scored.passage_id] for scored in ranking]
                read[query] = ReadPassages(passages, [s.score for s in ranking], [next(spans) for _ in ranking])
            meter.advance(len(block))
    return read
