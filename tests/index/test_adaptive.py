import numpy as np
import pytest

from gnnretrieval.data.records import ScoredPassage
from gnnretrieval.index.adaptive import FirstOnly, Gar, Ladr

# Of passages a … h the first stage finds a, b, c and d; f is the best, and a neighbour of e, which is one of b.
SCORES = {"a": 0.1, "b": 0.7, "c": 0.3, "d": 0.2, "e": 0.8, "f": 0.9, "g": 0.4, "h": 0.0}
NEAR = {"a": "h", "b": "eg", "c": "ab", "d": "", "e": "f", "f": "e", "g": "", "h": ""}
FIRST = [ScoredPassage(id_, 10.0 - number) for number, id_ in enumerate("abcd")]


def scored_in_order(method, budget, batch):
    search = method(FIRST, lambda passages: [list(NEAR[id_]) for id_ in passages], budget, batch)
    batches = []
    while chosen := search.next():
        batches.append("".join(chosen))
        search.receive(chosen, [SCORES[id_] for id_ in chosen])
    return batches, search


def test_gar_takes_batches_from_the_first_stage_and_the_frontier_by_turns():
    """Algorithm 1 by hand: after a and b the frontier is e and g (0.7), h (0.1); after e and g it is f (0.8), h."""
    batches, search = scored_in_order(Gar, 8, 2)
    assert batches == ["ab", "eg", "cd", "fh"]
    assert [one.passage_id for one in sorted(search.ranking(), key=lambda one: -one.score)][:3] == ["f", "e", "b"]


def test_the_budget_is_kept_and_what_is_not_scored_follows_in_its_order():
    batches, search = scored_in_order(Gar, 5, 2)
    assert batches == ["ab", "eg", "c"]
    ranking = {one.passage_id: one.score for one in search.ranking()}
    assert min(ranking, key=lambda id_: ranking[id_]) == "d"
    assert set(ranking) == set("abcdeg")


def test_without_neighbours_gar_reranks_the_first_stage_alone():
    search = Gar(FIRST, lambda passages: [[] for _ in passages], 3, 2)
    for expected in (["a", "b"], ["c"], []):
        assert search.next() == expected
        search.receive(expected, [SCORES[id_] for id_ in expected])


def test_ladr_follows_the_neighbours_of_the_best_until_all_are_scored():
    batches, _ = scored_in_order(Ladr, 6, 1)  # 3 seeds; the best is b, then e, then f
    assert batches == ["abc", "eg", "f"]


def test_ladr_gives_what_is_left_to_the_first_stage():
    batches, _ = scored_in_order(Ladr, 7, 1)
    assert batches == ["abcd", "eg", "f"]
    search = Ladr(FIRST, lambda passages: [[] for _ in passages], 4, 1)
    search.receive(search.next(), [0.5, 0.4])
    assert search.next() == ["c", "d"]


def test_plain_reranking_scores_the_best_of_the_first_stage():
    assert scored_in_order(FirstOnly, 3, 3)[0] == ["abc"]


def test_negative_scores_stay_above_what_is_not_scored():
    search = FirstOnly(FIRST, lambda passages: [[] for _ in passages], 2, 2)
    search.receive(search.next(), [-5.0, -7.0])
    assert [one.score for one in search.ranking()] == [-5.0, -7.0, -8.0, -9.0]


@pytest.mark.parametrize(("budget", "batch"), [(20, 2), (25, 5), (40, 16)])
def test_gar_scores_what_pyterrier_adaptive_scores(budget, batch):
    """With few neighbours: it leaves out neighbours once the frontier has as many as are left of the budget."""
    adaptive = pytest.importorskip("pyterrier_adaptive")
    pandas = pytest.importorskip("pandas")
    import pyterrier

    rng = np.random.default_rng(budget)
    ids = [f"p{number}" for number in range(60)]
    score = dict(zip(ids, rng.permutation(60).astype(float).tolist(), strict=True))
    near = {id_: rng.choice(ids, 2, replace=False).tolist() for id_ in ids}
    first = [ScoredPassage(id_, 100.0 - number) for number, id_ in enumerate(rng.choice(ids, 25, replace=False))]

    class Neighbours:
        def neighbours(self, id_):
            return near[id_]

    scorer = pyterrier.apply.doc_score(lambda row: score[row["docno"]])
    given = [{"qid": "q", "query": "x", "docno": str(id_), "score": s, "rank": r} for r, (id_, s) in enumerate(first)]
    theirs = adaptive.GAR(scorer, Neighbours(), num_results=budget, batch_size=batch)(pandas.DataFrame(given))
    theirs = theirs[theirs.iteration >= 0]
    search = Gar([ScoredPassage(str(id_), s) for id_, s in first], lambda some: [near[i] for i in some], budget, batch)
    while chosen := search.next():
        search.receive(chosen, [score[id_] for id_ in chosen])
    assert search.scores == dict(zip(theirs.docno, theirs.score, strict=True))
