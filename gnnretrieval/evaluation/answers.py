"""DPR's measure: the share of questions for which one of the first k passages has an answer in it.

DPR calls it top-k accuracy, others recall, though the first also is what sentence-transformers calls Success@k and the
second a share of passages; here it is ``Answer@k``.
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
"""Found passages with an answer in them, by query, by how answers are matched (:func:`find_answers`)."""


_param: Any = ParamInfo  # ir-measures is typed in part


class AnswerMeasure(ir_measures.Measure):
    """1 if one of the first ``cutoff`` passages has an answer in its text, else 0 (Karpukhin et al. 2020, Table 2)."""

    __name__ = "Answer"
    NAME = __name__
    PRETTY_NAME = "Answer at k"
    SHORT_DESC = "An indicator if an answer stands in one of the top k results."
    SUPPORTED_PARAMS = {  # noqa: RUF012  # as ir-measures declares it
        "cutoff": _param(dtype=int, required=True, desc="ranking cutoff threshold"),
        "match": _param(dtype=str, choices=list(get_args(Match)), default="string", desc="what answers are"),
    }


_family: Any = AnswerMeasure
Answer: ir_measures.Measure = _family()


def judged_in(dataset: Dataset, split: str, measures: Iterable[ir_measures.Measure]) -> dict[str, dict[str, int]]:
    """The judgements of a split; of its queries without any, such as DPR's test questions, where all measures look at
    answers.

    Raises:
        InputError: there is no such split.
    """
    if split not in dataset.splits and all(isinstance(measure, AnswerMeasure) for measure in measures):
        return {query: {} for query in dataset.query_ids_of(split)}
    return dataset.split(split)


def find_answers(
    dataset: Dataset, runs: Iterable[Run], measures: Iterable[ir_measures.Measure], queries: Collection[str]
) -> AnswerHits:
    """Which of the passages that ``measures`` look at have an answer in their text; titles do not count, as in DPR.

    The passages are read once, as a stream, whatever the number of runs.

    Args:
        dataset: Its texts, and the answers of its queries (``metadata.answers``).
        runs: The runs that will be measured.
        measures: Measures; those that want no answers are passed over.
        queries: The queries that will be measured.

    Raises:
        InputError: one of the measures wants answers, and none of the queries has one.
    """
    cutoffs: dict[Match, int] = {}
    for measure in measures:
        if isinstance(measure, AnswerMeasure):
            cutoffs[measure["match"]] = max(measure["cutoff"], cutoffs.get(measure["match"], 0))
    if not cutoffs:
        return {}
    known = _answers(dataset, queries)
    asking: dict[str, set[str]] = {}  # queries by the passage that was found for them
    for run in runs:
        for query in queries:
            if query in known and query in run:
                for passage_id in ranked_ids(run[query])[: max(cutoffs.values())]:
                    asking.setdefault(passage_id, set()).add(query)
    wanted = {match: {query: Answers(known[query], match) for query in queries if query in known} for match in cutoffs}
    hits: dict[Match, dict[str, set[str]]] = {match: {query: set() for query in queries} for match in cutoffs}
    with progress("looking for answers", len(dataset.passage_ids), "passages") as meter:
        for passage in meter.each(dataset.passages()):
            if passage.id in asking:
                for match, of_query in wanted.items():
                    for query in _with_an_answer(passage.text, asking[passage.id], of_query, match):
                        hits[match][query].add(passage.id)
    return {match: {query: frozenset(ids) for query, ids in found.items()} for match, found in hits.items()}


def require_answers(dataset: Dataset, measures: Iterable[ir_measures.Measure], queries: Collection[str]) -> None:
    """Refuse measures that want answers where none of ``queries`` has one, before any work is done for them.

    Raises:
        InputError: so it is.
    """
    if any(isinstance(measure, AnswerMeasure) for measure in measures):
        _answers(dataset, queries)


def _answers(dataset: Dataset, queries: Collection[str]) -> dict[str, list[str]]:
    known = read_answers(dataset.path / QUERIES)
    if not any(query in known for query in queries):
        raise InputError(
            "none of these queries has answers (metadata.answers of queries.jsonl), which Answer@k wants: add them.",
            dataset.path / QUERIES,
        )
    return known


def _with_an_answer(text: str, queries: set[str], answers: Mapping[str, Answers], match: Match) -> list[str]:
    if match == "regex":
        return [query for query in queries if answers[query].in_text(text)]
    words = answer_words(text)
    return [query for query in queries if answers[query].in_words(words)]
