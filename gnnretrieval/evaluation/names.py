"""Measures by name: the names of ir-measures and trec_eval, and common aliases."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from typing import Any

import ir_measures
from ir_measures.measures import registry

from gnnretrieval.errors import InputError, nearest
from gnnretrieval.evaluation.answers import Answer, AnswerMeasure

Measure = ir_measures.Measure
# The other providers round their values, need Perl or a compiler, or silently skip queries.
PROVIDERS = (ir_measures.pytrec_eval, ir_measures.judged, ir_measures.compat)
_chain: Any = ir_measures.providers.FallbackProvider  # ir-measures is typed in part
PIPELINE = _chain(PROVIDERS)
EXAMPLES = "RR@10, nDCG@10 or AP(rel=2)@100"
_FORM = re.compile(r"(?P<name>\w+)(?:\((?P<params>.*)\))?(?:@(?P<at>\d+|[01]?\.\d+))?", re.ASCII)
_TREC_FORM = re.compile(r"(?P<name>[a-z_]+?)[_.](?P<at>\d+|[01]?\.\d+)", re.ASCII | re.IGNORECASE)
_BETWEEN = re.compile(r",(?![^({]*[)}])")
# NumQ, NumRel and NumRet are left out: their value over queries is a sum, not a mean.
KNOWN: dict[str, Measure] = {
    name: measure
    for name, measure in registry.items()
    if isinstance(measure.aggregator(), ir_measures.MeanAgg)
    and any(measure.NAME == offered.NAME for provider in PROVIDERS for offered in provider.SUPPORTED_MEASURES)
} | {"Answer": Answer}
# Lower case, without cutoffs: names of trec_eval, sentence-transformers and ranx, and of DPR's users.
_ALIASES: dict[str, Measure] = {name.lower(): measure for name, measure in KNOWN.items()} | {
    "map_cut": KNOWN["AP"],
    "recip_rank": KNOWN["RR"],
    "ndcg_cut": KNOWN["nDCG"],
    "iprec_at_recall": KNOWN["IPrec"],
    "r_precision": KNOWN["Rprec"],
    "set_p": KNOWN["SetP"],
    "set_relative_p": KNOWN["SetP"](relative=True),
    "set_recall": KNOWN["SetR"],
    "set_f": KNOWN["SetF"],
    "set_map": KNOWN["SetAP"],
    "hit": KNOWN["Success"],
    "hits": KNOWN["Success"],
    "hit_rate": KNOWN["Success"],
    "answer_recall": Answer,
}
_SEVERAL = {
    "accuracy": "Success@{0} (a relevant passage is among the first {0}), or Answer@{0} (a passage with an answer is, "
    "as DPR counts). ir-measures' Accuracy is not offered"
}


def split_names(text: str) -> list[str]:
    """The names in a list separated by commas; commas in brackets separate parameters."""
    return _BETWEEN.split(text)


def parse_measures(names: Iterable[str | Measure]) -> list[Measure]:
    """Measures from their names, such as ``RR@10``, ``nDCG@10``, ``AP(rel=2)@100``, ``ndcg_cut_10``; each once.

    Tables and files name a measure by ``str(measure)``, its name in ir-measures, whichever alias was given.

    Raises:
        InputError: there are no names, a name is unknown (the nearest is suggested), a cutoff is missing, or a
            parameter does not fit.
    """
    measures = list(dict.fromkeys(_parse(name) if isinstance(name, str) else name for name in names))
    if not measures:
        raise InputError("no measure is named: give one or more, such as RR@10.")
    return measures


def _parse(text: str) -> Measure:
    form = _FORM.fullmatch(text.strip())
    named = form and _named(form["name"])
    if not named and (of_trec := _TREC_FORM.fullmatch(text.strip())):
        form, named = of_trec, _named(of_trec["name"])
    if form is None:
        raise InputError(f"measure {text!r} cannot be read: write it like {EXAMPLES}.")
    name, params, at = form["name"], form.groupdict().get("params"), form["at"]
    if not named:
        raise _unknown(text, name, form["at"] or "20")
    family: Any = named
    try:
        values = _keywords(params or "")
    except (SyntaxError, ValueError):
        raise InputError(f"the parameters of measure {text!r} cannot be read: write it like {EXAMPLES}.") from None
    if at is not None:
        values[family.AT_PARAM] = int(at) if at.isdigit() and family.AT_PARAM == "cutoff" else float(at)
    _require_parameters(text, name, family, values)
    measure: Measure = family(**values)
    if not _is_computable(measure):
        raise InputError(f"measure {text!r} cannot be computed with these parameters: correct or drop one.")
    return measure


def _require_parameters(text: str, name: str, family: Any, values: dict[str, Any]) -> None:
    """Check the parameters of the measure ``text``, which gives its family as ``name``."""
    for key, value in values.items():
        if key not in family.SUPPORTED_PARAMS:
            known = ", ".join(family.SUPPORTED_PARAMS)
            raise InputError(
                f"measure {text!r}: {name} has no {key!r}.{nearest(key, known.split(', '))} It has: {known}."
            )
        if key in ("cutoff", "rel") and (type(value) is not int or value < 1):
            raise InputError(f"measure {text!r}: {key} must be a whole number, 1 or more (found {value!r}).")
        if key == "gains" and not (isinstance(value, dict) and all(type(n) is int for n in [*value, *value.values()])):
            raise InputError(
                f"measure {text!r}: gains must map whole numbers to whole numbers, as {{1: 1, 2: 3}} does."
            )
        if key == "recall" and not (type(value) in (int, float) and 0 <= value <= 1 and round(value, 2) == value):
            raise InputError(f"measure {text!r}: recall must be from 0 to 1, with two decimals (found {value!r}).")
    for key, param in family.SUPPORTED_PARAMS.items():
        if param.required and key not in values:
            raise InputError(
                f"measure {text!r} lacks its {key}: write it like {family}@{10 if key == 'cutoff' else 0.1}."
            )


def _named(name: str) -> Measure | None:
    return KNOWN.get(name) or _ALIASES.get(name.lower())


def _unknown(text: str, name: str, at: str) -> InputError:
    if name.lower() in _SEVERAL:
        return InputError(f"measure {text!r} is ambiguous: write {_SEVERAL[name.lower()].format(at)}.")
    if name in registry:
        return InputError(f"measure {text!r} is not offered; docs/evaluation.md says why. Known: {_known()}.")
    meant = nearest(name, [*KNOWN, *_ALIASES])
    return InputError(f"unknown measure {text!r}.{meant} Known: {_known()}; with a cutoff, such as R@100.")


def _known() -> str:
    return ", ".join(sorted({str(measure.NAME) for measure in KNOWN.values()}))


def without_cutoff(measure: Measure) -> Measure:
    """The measure without its cutoff if it is ``RR``, else unchanged.

    ir-measures computes RR with a cutoff by another provider than trec_eval, with another order of ties.
    """
    if measure.NAME != "RR":
        return measure
    family: Any = KNOWN["RR"]
    whole: Measure = family(**{key: value for key, value in measure.params.items() if key != "cutoff"})
    return whole


def _is_computable(measure: Measure) -> bool:
    try:
        if isinstance(measure, AnswerMeasure):
            measure.validate_params()  # type: ignore[no-untyped-call]
            return True
        return bool(PIPELINE.supports(without_cutoff(measure)))
    except AssertionError:  # how ir-measures refuses a parameter's value
        return False


def _keywords(params: str) -> dict[str, Any]:
    call = ast.parse(f"f({params})", mode="eval").body
    if not isinstance(call, ast.Call) or call.args or any(keyword.arg is None for keyword in call.keywords):
        raise ValueError(params)
    return {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
