"""Measures of a run, by ir-measures with trec_eval underneath.

ir-measures hands each measure to a provider, and these break equal scores differently: pytrec_eval (nDCG, R, AP, …)
as trec_eval does, by passage id descending, but the provider of RR with a cutoff (MS MARCO's script) and of Judged by
passage id ascending. So no provider is shown a tie: each query is put in the project's one order first
(:func:`gnnretrieval.data.trec.rank`) and handed on with the scores n, n-1, …, 1.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any

import ir_measures
from ir_measures.measures import registry

from gnnretrieval.data.records import ScoredPassage
from gnnretrieval.data.trec import rank
from gnnretrieval.errors import InputError, nearest

Measure = ir_measures.Measure
# The providers left out round their values, need Perl or a compiler, or leave out queries in silence.
PROVIDERS = (ir_measures.pytrec_eval, ir_measures.msmarco, ir_measures.judged)
_chain: Any = ir_measures.providers.FallbackProvider  # ir-measures is typed in part
PIPELINE = _chain(PROVIDERS)
FORM = re.compile(r"(?P<name>\w+)(?:\((?P<params>.*)\))?(?:@(?P<at>\d+|0?\.\d+))?", re.ASCII)
EXAMPLES = "RR@10, nDCG@10 or AP(rel=2)@100"
# NumQ, NumRel and NumRet are left out: their value over queries is a sum, not a mean.
KNOWN = {
    name: measure
    for name, measure in registry.items()
    if isinstance(measure.aggregator(), ir_measures.MeanAgg)
    and any(measure.NAME == offered.NAME for provider in PROVIDERS for offered in provider.SUPPORTED_MEASURES)
}


def parse_measures(names: Iterable[str | Measure]) -> list[Measure]:
    """Measures from their names, such as ``RR@10``, ``nDCG@10``, ``R@1``, ``AP(rel=2)@100``; each once, in order.

    ``str(measure)`` is the name it goes by in every table and file: ``MRR@10`` is parsed to ``RR@10``.

    Raises:
        InputError: a name is of no known measure (the nearest is suggested), its cutoff is missing or its parameters
            do not fit, or there are no names.
    """
    measures = list(dict.fromkeys(_parse(name) if isinstance(name, str) else name for name in names))
    if not measures:
        raise InputError("no measure is named: give one or more, such as RR@10.")
    return measures


def _parse(text: str) -> Measure:
    form = FORM.fullmatch(text.strip())
    if form is None:
        raise InputError(f"measure {text!r} cannot be read: write it like {EXAMPLES}.")
    name, params, at = form.group("name", "params", "at")
    if name not in KNOWN:
        meant = next((known for known in KNOWN if known.lower() == name.lower()), None)
        suggestion = f" Did you mean {meant!r}?" if meant else nearest(name, KNOWN)
        canonical = ", ".join(sorted({measure.NAME for measure in KNOWN.values()}))
        raise InputError(f"unknown measure {text!r}.{suggestion} Known: {canonical}; with a cutoff, such as R@100.")
    family: Any = KNOWN[name]
    try:
        values = _keywords(params or "")
    except (SyntaxError, ValueError):
        raise InputError(f"the parameters of measure {text!r} cannot be read: write it like {EXAMPLES}.") from None
    if at is not None:
        values[family.AT_PARAM] = int(at) if at.isdigit() else float(at)
    for key, value in values.items():
        if key not in family.SUPPORTED_PARAMS:
            known = ", ".join(family.SUPPORTED_PARAMS)
            raise InputError(
                f"measure {text!r}: {name} has no {key!r}.{nearest(key, known.split(', '))} It has: {known}."
            )
        if key in ("cutoff", "rel") and (type(value) is not int or value < 1):
            raise InputError(f"measure {text!r}: {key} must be a whole number, 1 or more (found {value!r}).")
        if key == "gains" and not (isinstance(value, dict) and all(type(n) is int for n in [*value, *value.values()])):
            raise InputError(f"measure {text!r}: gains must map whole numbers to such, as {{1: 1, 2: 3}} does.")
    for key, param in family.SUPPORTED_PARAMS.items():
        if param.required and key not in values:
            raise InputError(
                f"measure {text!r} lacks its {key}: write it like {name}@{10 if key == 'cutoff' else 0.1}."
            )
    measure: Measure = family(**values)
    if not _is_computable(measure):
        raise InputError(f"measure {text!r} cannot be computed with these parameters: correct or drop one.")
    return measure


def _is_computable(measure: Measure) -> bool:
    try:
        return bool(PIPELINE.supports(measure))
    except AssertionError:  # how ir-measures refuses a parameter's value
        return False


def _keywords(params: str) -> dict[str, Any]:
    call = ast.parse(f"f({params})", mode="eval").body
    if not isinstance(call, ast.Call) or call.args or any(keyword.arg is None for keyword in call.keywords):
        raise ValueError(params)
    return {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}


def per_query(
    qrels: Mapping[str, Mapping[str, int]],
    run: Mapping[str, Iterable[ScoredPassage]],
    measures: Iterable[str | Measure],
) -> dict[str, dict[str, float]]:
    """Value by measure name by query id, for every query that ``qrels`` judges.

    As ``trec_eval -c``: a query with no results counts zero, and so does a judged query with no relevant passage (no
    system can score on it); queries of the run that are not judged are ignored, and one whose judgements are an empty
    mapping is not judged.

    Args:
        qrels: Relevance by passage id by query id; above 0 is relevant.
        run: Passages by query id, in any order: they are ranked here.
        measures: Names or parsed measures.

    Raises:
        InputError: a measure is unknown, nothing is judged, the run has no query in common with ``qrels``, or a
            ranking holds NaN or a passage twice.
    """
    parsed = parse_measures(measures)
    judged = {query_id: dict(judgements) for query_id, judgements in qrels.items() if judgements}
    if not judged:
        raise InputError("the qrels judge no query: nothing can be measured.")
    if not any(query_id in judged for query_id in run):
        theirs = f"such as {next(iter(run))!r}" if run else "of which there are none"
        raise InputError(
            f"the run has no query in common with the qrels: its query ids, {theirs}, are not among the"
            f" {len(judged)} judged ones, such as {next(iter(judged))!r}. Is it a run of this dataset and split?"
        )
    ranked = {}
    for query_id in judged:
        scores = _without_ties(query_id, run.get(query_id, ()))
        if scores:
            ranked[query_id] = scores
    values: dict[str, dict[str, float]] = {str(measure): dict.fromkeys(judged, 0.0) for measure in parsed}
    for metric in PIPELINE.iter_calc(parsed, judged, ranked):
        values[str(metric.measure)][metric.query_id] = float(metric.value)
    return values


def _without_ties(query_id: str, scored: Iterable[ScoredPassage]) -> dict[str, float]:
    try:
        ranking = rank(scored)
    except InputError as error:
        raise InputError(f"query {query_id!r}: {error}") from None
    return {passage.passage_id: float(len(ranking) - position) for position, passage in enumerate(ranking)}


def mean(values: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Mean over queries by measure name, of what :func:`per_query` gives."""
    return {name: fmean(of_query.values()) for name, of_query in values.items()}
