"""DPR's measure, here ``Answer@k``: the share of questions with an answer in one of the first k passages.

DPR calls it top-k accuracy, and others recall. Both names are ambiguous: sentence-transformers calls Success@k
accuracy, and recall usually is a share of the relevant passages.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, get_args

import ir_measures
from ir_measures.measures import ParamInfo

from gnnretrieval.data.answers import Answers, Match, answer_words, read_answers
from gnnretrieval.data.dataset import QUERIES, Dataset
from gnnretrieval.data.runs.trec import Run, ranked_ids
from gnnretrieval.errors import InputError
from gnnretrieval.progress import progress

AnswerHits = Mapping[str, Mapping[str, frozenset[str]]]
"""Ids of retrieved passages that contain an answer, by match method, then by query id (:func:`find_answers`)."""


_param: Any = ParamInfo  # ir-measures is typed in part


class AnswerMeasure(ir_measures.Measure):
    """1 if one of the first ``cutoff`` passages has an answer in its text, else 0 (Karpukhin et al. 2020, Table 2)."""

    __name__ = "Answer"
    NAME = __name__
    PRETTY_NAME = "Answer at k"
    SHORT_DESC = "An indicator if one of the top k results contains an answer."
    SUPPORTED_PARAMS = {  # noqa: RUF012  # as ir-measures declares it
        "cutoff": _param(dtype=int, required=True, desc="ranking cutoff threshold"),
        "match": _param(dtype=str, choices=list(get_args(Match)), default="string", desc="how answers are matched"),
    }


_family: Any = AnswerMeasure
Answer: ir_measures.Measure = _family()


def judged_in(dataset: Dataset, split: str, measures: Iterable[ir_measures.Measure]) -> dict[str, dict[str, int]]:
    """The judgements of a split, by query id.

    Where all measures look at answers, the split may have queries without judgements, such as DPR's test questions:
    each then has an empty mapping.

    Raises:
        InputError: there is no such split.
    """
    if split not in dataset.splits and all(isinstance(measure, AnswerMeasure) for measure in measures):
        return {query: {} for query in dataset.query_ids_of(split)}
    return dataset.split(split)


def find_answers(
    dataset: Dataset, runs: Iterable[Run], measures: Iterable[ir_measures.Measure], queries: Collection[str]
) -> AnswerHits:
    """Find the passages that have an answer in their text, among those that ``measures`` look at.

    Titles do not count, as in DPR. The passages are read once, as a stream, for all runs together.

    Args:
        dataset: Gives the passages' texts and the queries' answers (``metadata.answers``).
        runs: The runs that will be measured.
        measures: Measures; those that need no answers are ignored.
        queries: Ids of the queries that will be measured.

    Returns:
        Passage ids by match method, then by query id; empty where no measure needs answers.

    Raises:
        InputError: one of the measures needs answers, and none of the queries has one.
    """
    cutoffs: dict[Match, int] = {}
    for measure in measures:
        if isinstance(measure, AnswerMeasure):
            cutoffs[measure["match"]] = max(measure["cutoff"], cutoffs.get(measure["match"], 0))
    if not cutoffs:
        return {}
    known = _answers(dataset, queries)
    # Few passages were retrieved, so that one pass over the corpus skips most of it.
    retrieved_by: dict[str, set[str]] = {}  # query ids by passage id
    for run in runs:
        for query in queries:
            if query in known and query in run:
                for passage_id in ranked_ids(run[query])[: max(cutoffs.values())]:
                    retrieved_by.setdefault(passage_id, set()).add(query)
    answers = {match: {query: Answers(known[query], match) for query in queries if query in known} for match in cutoffs}
    hits: dict[Match, dict[str, set[str]]] = {match: {query: set() for query in queries} for match in cutoffs}
    with progress("looking for answers", len(dataset.passage_ids), "passages") as meter:
        for passage in meter.each(dataset.passages()):
            if passage.id in retrieved_by:
                for match, by_query in answers.items():
                    for query in _with_an_answer(passage.text, retrieved_by[passage.id], by_query, match):
                        hits[match][query].add(passage.id)
    return {match: {query: frozenset(ids) for query, ids in by_query.items()} for match, by_query in hits.items()}


def require_answers(dataset: Dataset, measures: Iterable[ir_measures.Measure], queries: Collection[str]) -> None:
    """Check that the queries have answers if a measure needs them; to call before long work.

    Raises:
        InputError: a measure needs answers, and none of ``queries`` has one.
    """
    if any(isinstance(measure, AnswerMeasure) for measure in measures):
        _answers(dataset, queries)


def _answers(dataset: Dataset, queries: Collection[str]) -> dict[str, list[str]]:
    known = read_answers(dataset.path / QUERIES)
    if not any(query in known for query in queries):
        raise InputError(
            "none of these queries has answers, and Answer@k needs them. Add them as metadata.answers.",
            dataset.path / QUERIES,
        )
    return known


def _with_an_answer(text: str, queries: set[str], answers: Mapping[str, Answers], match: Match) -> list[str]:
    if match == "regex":
        return [query for query in queries if answers[query].in_text(text)]
    words = answer_words(text)
    return [query for query in queries if answers[query].in_words(words)]
