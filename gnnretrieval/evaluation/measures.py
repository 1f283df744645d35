"""Measures of a run, computed by ir-measures and trec_eval.

ir-measures passes each measure to a provider, and providers break ties differently: pytrec_eval (nDCG, R, AP, …) by
passage id descending, as trec_eval does, but the provider of Judged by passage id ascending. So no provider sees a tie:
each ranking is first put in the project's one order (:mod:`gnnretrieval.data.runs.ranking`), and its scores become
n, n-1, …, 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from gnnretrieval.data.records import ScoredPassage
from gnnretrieval.data.runs.trec import Run, ranked_ids
from gnnretrieval.errors import InputError
from gnnretrieval.evaluation.answers import AnswerHits, AnswerMeasure
from gnnretrieval.evaluation.names import PIPELINE, Measure, parse_measures, without_cutoff
from gnnretrieval.storage.arrays import blocks

_TOGETHER = 256  # queries that are measured at once: with 1,000 passages each, 30 MB


def per_query(
    qrels: Mapping[str, Mapping[str, int]],
    run: Mapping[str, Iterable[ScoredPassage]],
    measures: Iterable[str | Measure],
    answers: AnswerHits | None = None,
) -> dict[str, dict[str, float]]:
    """The value of each measure on every judged query.

    As with ``trec_eval -c``, a judged query without results counts zero, and so does one without a relevant passage. A
    run without any result is one of a system that found nothing.
    Queries of the run that are not judged are ignored. A query with an empty mapping of judgements is not judged,
    unless all measures look at answers.

    Args:
        qrels: Relevance by passage id by query id; above 0 is relevant.
        run: Passages by query id, in any order: they are ranked here.
        measures: Names or parsed measures.
        answers: Result of :func:`gnnretrieval.evaluation.answers.find_answers` for runs that include this one.

    Returns:
        Value by query id by measure name, 0 to 1.

    Raises:
        InputError: a measure is unknown, no query is judged, the run has no query in common with ``qrels``, a ranking
            has a NaN or lists a passage twice, or a measure needs answers and none are given.
    """
    parsed = parse_measures(measures)
    of_answers = [measure for measure in parsed if isinstance(measure, AnswerMeasure)]
    of_labels = [measure for measure in parsed if not isinstance(measure, AnswerMeasure)]
    judged = {query: dict(judgements) for query, judgements in qrels.items() if judgements or not of_labels}
    require_common(judged, run)
    if of_answers and answers is None:
        raise InputError(f"{of_answers[0]} needs the answers and texts of a dataset, which are not given.")
    values: dict[str, dict[str, float]] = {str(measure): dict.fromkeys(judged, 0.0) for measure in parsed}
    queries = [query for query in judged if query in run]
    for part in blocks(len(queries), _TOGETHER):
        rankings = {query: ids for query in queries[part] if (ids := _ranked_ids(query, run[query]))}
        for measure in of_answers:
            hits = (answers or {})[measure["match"]]
            for query, ids in rankings.items():
                values[str(measure)][query] = float(not hits[query].isdisjoint(ids[: measure["cutoff"]]))
        if of_labels:
            _add(values, of_labels, {query: _with_room(judged[query]) for query in rankings}, rankings)
    return values


def as_run(given: Mapping[str, Any]) -> Run:
    """A run from a mapping by query id to scored passages, or to scores by passage id."""
    return {
        query: [ScoredPassage(*pair) for pair in scored.items()] if isinstance(scored, Mapping) else scored
        for query, scored in given.items()
    }


def require_common(judged: Mapping[str, object], run: Mapping[str, object]) -> None:
    """Refuse qrels that judge no query, and a run of other queries; a run without any is of one that found nothing.

    Raises:
        InputError: one of these is so.
    """
    if not judged:
        raise InputError("the qrels judge no query: nothing can be measured.")
    if run and not any(query_id in judged for query_id in run):
        raise InputError(
            f"the run has no query in common with the qrels: its query ids, such as {next(iter(run))!r}, are not among"
            f" the {len(judged)} judged ones, such as {next(iter(judged))!r}. Is it a run of this dataset and split?"
        )


def _ranked_ids(query_id: str, scored: Iterable[ScoredPassage]) -> list[str]:
    try:
        return ranked_ids(scored)
    except InputError as error:
        raise InputError(f"query {query_id!r}: {error}") from None


def _with_room(judgements: Mapping[str, int]) -> Mapping[str, int]:
    """The judgements, or zeros where all are negative: no measure tells them apart, but trec_eval may crash."""
    return judgements if max(judgements.values()) >= 0 else dict.fromkeys(judgements, 0)


def _add(
    values: Mapping[str, dict[str, float]],
    measures: Sequence[Measure],
    judged: Mapping[str, Mapping[str, int]],
    rankings: Mapping[str, Sequence[str]],
) -> None:
    """Add the values of the queries in ``rankings`` to ``values``."""
    depth = _depth(measures)
    without_ties = {
        query: dict(zip(ids[:depth], _descending(len(ids)), strict=False)) for query, ids in rankings.items()
    }
    cut_off: dict[str, list[Measure]] = {}  # requested measures by the name of the one that is computed
    for measure in measures:
        cut_off.setdefault(str(without_cutoff(measure)), []).append(measure)
    for metric in PIPELINE.iter_calc(
        [without_cutoff(measures[0]) for measures in cut_off.values()], judged, without_ties
    ):
        for measure in cut_off[str(metric.measure)]:
            cutoff = measure.params.get("cutoff")
            beyond = measure.NAME == "RR" and cutoff is not None and metric.value * cutoff < 1 - 1e-6
            values[str(measure)][metric.query_id] = 0.0 if beyond else float(metric.value)


def _depth(measures: Sequence[Measure]) -> int | None:
    """The lowest rank that a measure looks at; None where a measure reads whole rankings."""
    limited = [measure for measure in measures if "cutoff" in measure.params and not measure.params.get("judged_only")]
    return max(measure.params["cutoff"] for measure in limited) if len(limited) == len(measures) else None


def _descending(count: int) -> Iterable[float]:
    return map(float, range(count, 0, -1))


def mean(values: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Mean over queries by measure name, from the values of :func:`per_query`."""
    return {name: fmean(by_query.values()) for name, by_query in values.items()}
