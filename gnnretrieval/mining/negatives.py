"""Mining negatives: passages that BM25 or a dual-encoder retrieves for a query, but that are not relevant to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from gnnretrieval.data.answers import Answers, answer_words, read_answers
from gnnretrieval.data.dataset import QUERIES, Dataset
from gnnretrieval.data.inspection.same_text import normalised
from gnnretrieval.data.text_store import TextStore
from gnnretrieval.errors import InputError
from gnnretrieval.mining.candidates import Retrieved, open_texts, search
from gnnretrieval.mining.examples import (
    EXAMPLES,
    Candidate,
    Example,
    Examples,
    as_written,
    make_examples,
    write_examples,
)
from gnnretrieval.mining.tally import Tally
from gnnretrieval.settings import Settings
from gnnretrieval.storage.arrays import blocks

if TYPE_CHECKING:
    from gnnretrieval.encoders.features import Features

_TEXTS = 16384  # texts of candidates in memory at a time


class NegativeSettings(Settings):
    """Choice of negatives among the retrieved passages.

    Attributes:
        top_k: Number of passages retrieved per query.
        negatives: Maximum number of negatives per query, a random sample; not given: all.
        skip: Number of first ranks to leave out.
        answers: ``keep`` or ``drop`` candidates that contain one of the query's answers (metadata.answers in
            queries.jsonl); DPR drops them.
        split: The split whose queries get negatives.
        seed: Seed of the sample.
    """

    top_k: int = Field(100, ge=1)
    negatives: int | None = Field(None, ge=0)
    skip: int = Field(0, ge=0)
    answers: Literal["keep", "drop"] = "keep"
    split: str = "train"
    seed: int = Field(0, ge=0)

    @model_validator(mode="after")
    def _something_is_left(self) -> NegativeSettings:
        if self.skip >= self.top_k:
            raise ValueError(f"skip = {self.skip} leaves out all top_k = {self.top_k} ranks: give a smaller skip")
        return self


class _LabelledQuery(NamedTuple):
    """A query with the ids of its relevant passages and its answers."""

    row: int
    id: str
    positives: list[str]
    answers: Sequence[str]


def mine_negatives(
    dataset: Dataset,
    settings: NegativeSettings,
    out: str | Path,
    *,
    features: Features | None = None,
    device: str = "cpu",
    overwrite: bool = False,
) -> Examples:
    """Mine negatives for the queries of a split. The positives of the examples are the labels.

    A candidate is not a negative if it is relevant or has the text of a relevant passage or of the query.

    Args:
        dataset: Passages, queries and judgements.
        settings: Choice of negatives.
        out: Directory of the examples.
        features: Vectors that retrieve the candidates; None: BM25 retrieves them.
        device: Where to compute similarities.
        overwrite: Replace examples made from other inputs.

    Returns:
        The mined examples.

    Raises:
        ArtifactError: ``features`` were made from other texts than the dataset's.
        InputError: The split does not exist, or none of its queries has a relevant passage.
    """
    if features is not None:
        features.require_of(dataset)
    judged = dataset.split(settings.split)
    answers = read_answers(dataset.path / QUERIES) if settings.answers == "drop" else {}
    rows = {id_: row for row, id_ in enumerate(dataset.query_ids)}
    labels = {id_: [passage for passage, grade in grades.items() if grade > 0] for id_, grades in judged.items()}
    queries = [
        _LabelledQuery(rows[id_], id_, relevant, answers.get(id_, ())) for id_, relevant in labels.items() if relevant
    ]
    if not queries:
        raise InputError(f"split {settings.split!r} has no query with a relevant passage.", dataset.path)

    def write(directory: Path) -> dict[str, Any]:
        tally = Tally("negatives", queries=len(judged))
        tally.left_out["without a relevant passage"] = len(judged) - len(queries)
        if settings.answers == "drop":
            without = sum(not query.answers for query in queries)
            tally.noted["queries without answers: none of their candidates is dropped for one"] = without
        with open_texts(dataset, directory, features) as texts:
            retrieved = search(texts, [query.row for query in queries], settings.top_k, directory, features, device)
            miner = _Miner(dataset.passage_ids, texts, settings, "bm25" if features is None else "dual-encoder", tally)
            write_examples(directory / EXAMPLES, miner.examples(queries, retrieved))
            figures = tally.write_report(directory, texts)
        return {"figures": figures, "encoder": features.meta["encoder"] if features else None}

    return make_examples(
        out,
        dataset,
        write,
        sources={"features": features} if features is not None else {},
        inputs={"dataset": dataset.hash},
        config=settings.model_dump(mode="json"),
        seed=settings.seed,
        overwrite=overwrite,
    )


class _Texts(NamedTuple):
    """Forms of the passages' texts for comparison, by row.

    Attributes:
        forms: Normalised texts (:func:`gnnretrieval.data.inspection.same_text.normalised`).
        words: Words for the search for answers (:func:`gnnretrieval.data.answers.answer_words`); empty if no query has
            answers.
    """

    forms: Mapping[int, str]
    words: Mapping[int, str]


class _Miner:
    """Makes an example from a query and its retrieved passages."""

    def __init__(
        self, passage_ids: Sequence[str], texts: TextStore, settings: NegativeSettings, source: str, tally: Tally
    ) -> None:
        self.passage_ids, self.texts, self.settings, self.source = passage_ids, texts, settings, source
        self.tally = tally

    def examples(self, queries: Sequence[_LabelledQuery], retrieved: Iterator[Retrieved]) -> Iterator[Example]:
        """Examples of all queries, in order; ``retrieved`` has the retrieved passages of each."""
        for part in blocks(len(queries), max(1, _TEXTS // self.settings.top_k)):
            block = queries[part]
            results = list(islice(retrieved, len(block)))
            # Texts are looked up and normalised once a block, as queries share many passages.
            relevant = self.texts.rows_of_passages(sorted({id_ for query in block for id_ in query.positives}))
            rows = sorted({*relevant.values(), *(row for ranked, _ in results for row in ranked.tolist())})
            full = dict(zip(rows, self.texts.texts_of_passages(rows), strict=True))
            has_answers = any(query.answers for query in block)
            texts = _Texts(
                {row: normalised(text) for row, text in full.items()},
                {row: answer_words(text) for row, text in full.items()} if has_answers else {},
            )
            query_texts = self.texts.texts_of_queries([query.row for query in block])
            for query, text, (ranked, scores) in zip(block, query_texts, results, strict=True):
                labels = {relevant[id_] for id_ in query.positives}
                negatives = self._negatives(query, normalised(text), ranked.tolist(), scores, labels, texts)
                example = Example(query.id, tuple(Candidate(id_, "label") for id_ in query.positives), negatives)
                self._note(len(ranked), len(negatives))
                self.tally.keep(example)
                yield example

    def _negatives(
        self,
        query: _LabelledQuery,
        text: str,
        ranked: list[int],
        scores: NDArray[np.float32],
        labels: set[int],
        texts: _Texts,
    ) -> tuple[Candidate, ...]:
        settings, dropped = self.settings, self.tally.dropped
        same = {texts.forms[row] for row in labels}
        wanted = Answers(query.answers)
        self.tally.candidates += len(ranked)
        dropped["of the ranks passed over"] += len(ranked[: settings.skip])
        kept = []
        for rank, row in enumerate(ranked[settings.skip :], settings.skip + 1):
            if row in labels:
                dropped["relevant"] += 1
            elif texts.forms[row] in same:
                dropped["with the text of a relevant passage"] += 1
            # A query that was made of a passage has the passage's id, and its text is a part of the passage's.
            elif text == texts.forms[row] or (query.id == self.passage_ids[row] and text in texts.forms[row]):
                dropped["the query itself"] += 1
            elif wanted and wanted.in_words(texts.words[row]):
                dropped["with an answer in it"] += 1
            else:
                kept.append(Candidate(self.passage_ids[row], self.source, rank, as_written(scores[rank - 1])))
        if settings.negatives is not None and len(kept) > settings.negatives:
            dropped["not in the random sample"] += len(kept) - settings.negatives
            chosen = np.random.default_rng([settings.seed, query.row]).permutation(len(kept))[: settings.negatives]
            kept = [kept[place] for place in sorted(chosen.tolist())]
        return tuple(kept)

    def _note(self, retrieved: int, negatives: int) -> None:
        noted, top_k, most = self.tally.noted, self.settings.top_k, self.settings.negatives
        noted[f"queries that found fewer than {top_k} passages"] += retrieved < top_k
        if most is not None:
            noted[f"queries with fewer than {most} negatives"] += negatives < most
        noted["queries without a negative"] += not negatives
