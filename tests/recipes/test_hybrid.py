import pytest

from gnnretrieval.data.records import ScoredPassage
from gnnretrieval.data.trec import rank
from gnnretrieval.evaluation import fuse
from gnnretrieval.recipes.hybrid import compare_hybrids
from gnnretrieval.recipes.recipe import CompareSettings

QRELS = {f"q{number}": {"right": 1} for number in range(30)}
DENSE = ("dual-encoder", "gnn-encoder")


def run(**scores):
    return {query: rank([ScoredPassage(*pair) for pair in scores.items()]) for query in QRELS}


RUNS = {
    "bm25": run(wrong=1.0, right=0.9, x=0.0),
    "dual-encoder": run(other=1.0, right=0.9, y=0.0),  # either alone has the right passage second, both have it first
    "gnn-encoder": run(right=1.0, wrong=0.2, x=0.0),  # BM25 adds nothing to it
}


def hybrids(fuse="chosen", **dev):
    settings = CompareSettings(fuse=fuse, measures=("RR@10",))
    return compare_hybrids(QRELS, RUNS, settings, "bm25", DENSE, {"recipe": "r"}, {}, **dev)


def values(comparison):
    return {system["name"]: system["measures"]["RR@10"] for system in comparison.as_json()["systems"]}


def test_each_hybrid_is_the_one_that_dev_chooses_and_the_provenance_says_which():
    comparison = hybrids(dev_runs=RUNS, dev_qrels=QRELS)
    assert values(comparison) == {"bm25": 0.5, "bm25+dual-encoder": 1, "bm25+gnn-encoder": 1}
    provenance = comparison.provenance
    assert (provenance["recipe"], provenance["fusion"]) == ("r", "chosen on dev")
    choices = provenance["fusion_choices"]
    assert choices["bm25+dual-encoder"]["weights"] == [1, 1]
    assert (choices["bm25+gnn-encoder"]["weights"], choices["bm25+gnn-encoder"]["value"]) == ([0, 1], 1)
    assert choices["bm25+dual-encoder"]["p"] < 0.001


@pytest.mark.parametrize(("asked", "method"), [("chosen", "rrf"), ("rrf", "rrf"), ("weighted", "weighted")])
def test_without_dev_runs_or_where_a_method_is_named_it_is_joined_by_equal_weights(asked, method):
    comparison = hybrids(asked, **({} if asked == "chosen" else {"dev_runs": RUNS, "dev_qrels": QRELS}))
    assert comparison.provenance == {"recipe": "r", "fusion": method}
    joined = fuse([RUNS["bm25"], RUNS["gnn-encoder"]], method, depth=100)
    rank_of_right = [passage.passage_id for passage in joined["q0"]].index("right") + 1
    assert values(comparison)["bm25+gnn-encoder"] == pytest.approx(1 / rank_of_right)


def test_dev_is_the_default_and_none_is_no_table():
    assert CompareSettings().fuse == "chosen"
    assert hybrids("none", dev_runs=RUNS, dev_qrels=QRELS) is None
