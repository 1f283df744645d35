import pytest
import pytrec_eval
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gnnretrieval.data.records import ScoredPassage
from gnnretrieval.data.runs.trec import rank
from gnnretrieval.errors import InputError
from gnnretrieval.evaluation import mean, per_query

TREC_NAMES = {
    "nDCG@10": "ndcg_cut_10",
    "nDCG": "ndcg",
    "R@1": "recall_1",
    "R@5": "recall_5",
    "AP": "map",
    "AP@3": "map_cut_3",
    "P@3": "P_3",
    "RR": "recip_rank",
    "Success@1": "success_1",
    "Bpref": "bpref",
}
NAMES = [f"{letter}{number}" for letter in "dD" for number in (1, 2, 9, 10, 11)]
queries = st.sampled_from([f"q{n}" for n in range(5)])
# Few scores, so that most are ties; the last two are ties to float32 only.
scores = st.sampled_from([0.0, 1.0, 2.0, -1.0, 0.1, 0.1 + 1e-10])
runs = st.dictionaries(
    queries,
    st.dictionaries(st.sampled_from(NAMES), scores, max_size=10).map(
        lambda scored: [ScoredPassage(*item) for item in scored.items()]
    ),
    max_size=5,
)
qrels = st.dictionaries(queries, st.dictionaries(st.sampled_from(NAMES), st.integers(0, 3), min_size=1), max_size=5)


def by_trec_eval(judged, run, names, rel=1):
    """Values of pytrec_eval, which breaks ties itself, with zero for a query it leaves out (``trec_eval -c``)."""
    evaluator = pytrec_eval.RelevanceEvaluator(judged, set(names), relevance_level=rel)
    found = evaluator.evaluate({query: {p.passage_id: p.score for p in scored} for query, scored in run.items()})
    return {name: {query: found.get(query, {}).get(name, 0.0) for query in judged} for name in names}


@settings(max_examples=300, deadline=None)
@given(qrels, runs)
def test_every_measure_equals_trec_eval_on_runs_full_of_ties(judged, run):
    assume(judged.keys() & run.keys())
    values = per_query(judged, run, [*TREC_NAMES, "P(rel=2)@3", "RR(rel=2)"])
    expected = by_trec_eval(judged, run, TREC_NAMES.values())
    for name, trec_name in TREC_NAMES.items():
        assert values[name] == pytest.approx(expected[trec_name], abs=1e-6), name
    graded = by_trec_eval(judged, run, ["P_3", "recip_rank"], rel=2)
    assert values["P(rel=2)@3"] == pytest.approx(graded["P_3"], abs=1e-6)
    assert values["RR(rel=2)"] == pytest.approx(graded["recip_rank"], abs=1e-6)


@settings(max_examples=200, deadline=None)
@given(qrels, runs, st.integers(1, 4), st.integers(1, 2))
def test_rr_with_a_cutoff_breaks_ties_as_trec_eval_though_another_provider_computes_it(judged, run, cutoff, rel):
    assume(judged.keys() & run.keys())
    name = f"RR@{cutoff}" if rel == 1 else f"RR(rel={rel})@{cutoff}"
    whole = by_trec_eval(judged, run, ["recip_rank"], rel)["recip_rank"]
    expected = {query: value if value > 1 / (cutoff + 0.5) else 0.0 for query, value in whole.items()}
    assert per_query(judged, run, [name])[name] == pytest.approx(expected, abs=1e-6)


@settings(max_examples=100, deadline=None)
@given(qrels, runs)
def test_judged_counts_the_passages_that_the_one_order_puts_first(judged, run):
    assume(judged.keys() & run.keys())
    expected = {}
    for query in judged:
        top = rank(run.get(query, []))[:2]
        expected[query] = sum(p.passage_id in judged[query] for p in top) / len(top) if top else 0.0
    assert per_query(judged, run, ["Judged@2"])["Judged@2"] == pytest.approx(expected)


@pytest.mark.parametrize("relevant", ["d00", "d42", "d99"])
@pytest.mark.parametrize("measure", ["RR@100", "RR", "nDCG@100", "AP"])
def test_a_constant_scorer_gets_the_rank_its_id_gives_and_not_a_perfect_score(relevant, measure):
    run = {"q": [ScoredPassage(f"d{n:02}", 0.5) for n in range(100)]}
    run["q"].insert(0, run["q"].pop(int(relevant[1:])))  # listed first, as a lenient sort would leave it
    value = per_query({"q": {relevant: 1}}, run, [measure])[measure]["q"]
    position = 100 - int(relevant[1:])
    assert (value == 1.0) == (position == 1)
    if not measure.startswith("nDCG"):
        assert value == pytest.approx(1 / position)


def test_a_query_with_no_results_counts_zero_and_an_unjudged_one_does_not_count():
    run = {"q1": [ScoredPassage("d1", 1.0)], "q3": [], "unjudged": [ScoredPassage("d1", 1.0)]}
    judged = {"q1": {"d1": 1}, "q2": {"d1": 1}, "q3": {"d1": 1}, "hopeless": {"d1": 0}, "no judgement": {}}
    values = per_query(judged, run, ["RR@10", "Judged@10"])
    assert values["RR@10"] == {"q1": 1.0, "q2": 0.0, "q3": 0.0, "hopeless": 0.0}
    assert mean(values) == {"RR@10": 0.25, "Judged@10": 0.25}


def test_graded_relevance_by_hand():
    run = {"q": [ScoredPassage("a", 3.0), ScoredPassage("b", 2.0), ScoredPassage("c", 1.0)]}
    values = per_query({"q": {"b": 1, "c": 3}}, run, ["nDCG@3", "RR@10", "R@2", "AP(rel=2)"])
    dcg, ideal = 1 / 1.584962500721156 + 3 / 2, 3 + 1 / 1.584962500721156
    assert [of["q"] for of in values.values()] == pytest.approx([dcg / ideal, 1 / 2, 1 / 2, 1 / 3])


def test_a_run_of_other_queries_is_an_error_that_names_both():
    with pytest.raises(InputError, match=r"no query in common.*'17'.*'q1'"):
        per_query({"q1": {"d": 1}}, {"17": [ScoredPassage("d", 1.0)]}, ["RR@10"])
    assert per_query({"q1": {"d": 1}}, {}, ["RR@10"]) == {"RR@10": {"q1": 0.0}}  # a system that found nothing
    with pytest.raises(InputError, match="judge no query"):
        per_query({"q1": {}}, {"q1": []}, ["RR@10"])
    with pytest.raises(InputError, match="query 'q1': passage 'd' has score NaN"):
        per_query({"q1": {"d": 1}}, {"q1": [ScoredPassage("d", float("nan"))]}, ["RR@10"])
