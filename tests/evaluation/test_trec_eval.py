"""Every measure against trec_eval's own code, and against its definition in plain Python, on runs of all kinds."""

import math
import struct
from random import Random

import pytest
import pytrec_eval

from gnnretrieval.data.records import ScoredPassage
from gnnretrieval.evaluation import per_query

TREC_NAMES = {
    "nDCG": "ndcg",
    "nDCG@3": "ndcg_cut_3",
    "nDCG@10": "ndcg_cut_10",
    "R@1": "recall_1",
    "R@10": "recall_10",
    "AP": "map",
    "AP@5": "map_cut_5",
    "P@1": "P_1",
    "P@10": "P_10",
    "RR": "recip_rank",
    "Rprec": "Rprec",
    "Bpref": "bpref",
    "Success@1": "success_1",
    "Success@5": "success_5",
    "IPrec@0.1": "iprec_at_recall_0.10",
    "IPrec@0.5": "iprec_at_recall_0.50",
    "IPrec@1.0": "iprec_at_recall_1.00",
    "SetP": "set_P",
    "SetP(relative=True)": "set_relative_P",
    "SetR": "set_recall",
    "SetF": "set_F",
    "SetAP": "set_map",
    "infAP": "infAP",
}
IDS = [f"{letter}{number}" for letter in "dDé" for number in range(15)]


def generated(seed):
    """Judgements and a run: ties (also beyond float32 only), missing and extra queries, grades from -2 to 3."""
    random = Random(seed)
    queries = [f"q{number}" for number in range(14)]
    grades = [[0, 1], [0, 1, 2, 3], [-2, -1, 0, 1, 2], [-1, 0], [1], [-2]][seed % 6 :][:1][0]
    judged = {
        query: {id_: random.choice(grades) for id_ in random.sample(IDS, random.randint(1, 25))} for query in queries
    }
    levels = [[0.0, 1.0], [0.5], [0.1, 0.1 + 1e-10, 0.2], [float(n) for n in range(50)], [-1.0, -2.0, 1e30]][seed % 5]
    run = {
        query: {id_: random.choice(levels) for id_ in random.sample(IDS, random.randint(1, len(IDS)))}
        for query in [*queries[seed % 4 :], "extra", "another"]
    }
    return judged, run


def measured(judged, run, names):
    scored = {query: [ScoredPassage(*item) for item in scores.items()] for query, scores in run.items()}
    return per_query(judged, scored, names)


@pytest.mark.parametrize("seed", range(30))
def test_every_measure_is_trec_evals(seed):
    judged, run = generated(seed)
    for level in (1, 2):
        sound = {query: of for query, of in judged.items() if max(of.values()) >= 0}  # trec_eval crashes on the others
        evaluator = pytrec_eval.RelevanceEvaluator(sound, set(TREC_NAMES.values()), relevance_level=level)
        expected = evaluator.evaluate(run)
        ours = {name: name if level == 1 or name.startswith("nDCG") else _with_level(name) for name in TREC_NAMES}
        values = measured(judged, run, [name for name in ours.values() if name is not None])
        for name, trec_name in TREC_NAMES.items():
            if ours[name] is not None:
                for query in judged:
                    wanted = expected.get(query, {}).get(trec_name, 0.0)  # as trec_eval -c
                    assert values[ours[name]][query] == pytest.approx(wanted, abs=1e-6), (name, level, query)


def _with_level(name):
    """The measure with rel=2, as it is called; None where ir-measures gives it no level."""
    base, _, at = name.partition("@")
    if base.startswith("SetP(") or base == "infAP":
        return None
    return f"{base}(rel=2){'@' + at if at else ''}"


def by_definition(judged, scores):
    """Values of one query, from trec_eval's documentation of its measures."""
    as_float = {id_: struct.unpack("f", struct.pack("f", score))[0] for id_, score in scores.items()}
    ranking = sorted(scores, key=lambda id_: (as_float[id_], id_.encode()), reverse=True)
    relevant = {id_ for id_, grade in judged.items() if grade >= 1}
    not_relevant = {id_ for id_, grade in judged.items() if grade == 0}
    hits = [id_ in relevant for id_ in ranking]
    found, ranks = sum(hits), [rank for rank, hit in enumerate(hits, 1) if hit]

    def precision(rank):
        return sum(hits[:rank]) / rank

    def gains(grades, depth):
        return sum(max(grade, 0) / math.log2(rank + 1) for rank, grade in enumerate(grades[:depth], 1))

    def ndcg(depth):
        ideal = gains(sorted(judged.values(), reverse=True), depth)
        return gains([judged.get(id_, 0) for id_ in ranking], depth) / ideal if ideal else 0.0

    def interpolated(recall):
        wanted = int(recall * len(relevant) + 0.9)
        return max((precision(rank) for rank in range(1, len(hits) + 1) if sum(hits[:rank]) >= wanted), default=0.0)

    bpref = 0.0
    for rank in ranks:
        worse = sum(id_ in not_relevant for id_ in ranking[: rank - 1])
        bpref += 1 - (min(worse, len(relevant)) / min(len(not_relevant), len(relevant)) if worse else 0)
    many = max(len(relevant), 1)
    return {
        "nDCG": ndcg(None),
        "nDCG@10": ndcg(10),
        "R@10": sum(hits[:10]) / many,
        "AP": sum(precision(rank) for rank in ranks) / many,
        "AP@5": sum(precision(rank) for rank in ranks if rank <= 5) / many,
        "P@10": sum(hits[:10]) / 10,
        "RR": 1 / ranks[0] if ranks else 0.0,
        "RR@3": 1 / ranks[0] if ranks and ranks[0] <= 3 else 0.0,
        "Rprec": sum(hits[: len(relevant)]) / many,
        "Bpref": bpref / many,
        "Success@5": float(any(hits[:5])),
        "IPrec@0.5": interpolated(0.5) if relevant else 0.0,
        "SetP": found / len(ranking),
        "SetR": found / many,
        "SetAP": (found / len(ranking)) * (found / many),
        "Judged@5": sum(id_ in judged for id_ in ranking[:5]) / len(ranking[:5]),
        "Compat": _compatibility(judged, ranking, 0.95),
    }


def _compatibility(judged, ranking, p):
    """Clarke et al. 2021: overlap with the ideal ranking that is nearest to this one, of which it is the share."""
    place = {id_: rank for rank, id_ in enumerate(ranking)}
    relevant = [id_ for id_, grade in judged.items() if grade > 0]
    ideal = sorted(relevant, key=lambda id_: (-judged[id_], place.get(id_, len(ranking))))

    def overlap(one, other):
        depth = max(len(ranking), len(ideal))
        weights = [p**i for i in range(depth)]
        shared = [len(set(one[: i + 1]) & set(other[: i + 1])) / (i + 1) for i in range(depth)]
        return sum(weight * share for weight, share in zip(weights, shared, strict=True)) / sum(weights)

    return overlap(ranking, ideal) / overlap(ideal, ideal) if ideal else 0.0


@pytest.mark.parametrize("seed", range(30))
def test_every_measure_is_as_it_is_defined(seed):
    judged, run = generated(seed)
    names = list(by_definition({"a": 1}, {"a": 1.0}))
    values = measured(judged, run, names)
    for query in judged:
        expected = by_definition(judged[query], run[query]) if query in run else dict.fromkeys(names, 0.0)
        assert {name: values[name][query] for name in names} == pytest.approx(expected, abs=1e-6), query


def test_a_negative_judgement_is_none_but_for_judged():
    run = {"q": {"a": 3.0, "b": 2.0, "c": 1.0}}
    names = ["nDCG@3", "AP", "Bpref", "Judged@3"]
    with_it = measured({"q": {"a": -1, "c": 2}}, run, names)
    without = measured({"q": {"c": 2}}, run, names)
    assert with_it.pop("Judged@3") == {"q": pytest.approx(2 / 3)}
    assert without.pop("Judged@3") == {"q": pytest.approx(1 / 3)}
    assert with_it == without


def test_what_is_measured_together_is_what_is_measured_alone():
    judged, run = generated(1)
    names = ["R@1", "nDCG@3", "RR@2", "RR", "AP(judged_only=True)@5", "Judged@2", "P@30", "RR(rel=2)@2"]
    together = measured(judged, run, names)
    for name in names:
        assert measured(judged, run, [name])[name] == together[name]
