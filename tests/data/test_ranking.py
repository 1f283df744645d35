import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnretrieval.data.records import ScoredPassage
from gnnretrieval.data.runs.ranking import Ranking, rank, ranked_ids
from gnnretrieval.errors import InputError

scored = st.dictionaries(
    st.text(st.characters(codec="utf-8", exclude_characters="\n"), min_size=1, max_size=4),
    st.sampled_from([0.0, 1.0, 1.0 + 1e-10, -2.5, float("inf")]),
    max_size=8,
)


@given(scored)
def test_it_is_the_list_that_rank_gives(scores):
    ranking, expected = Ranking(list(scores), list(scores.values())), rank(map(ScoredPassage, scores, scores.values()))
    assert ranking == expected
    assert list(ranking) == expected
    assert (len(ranking), ranking[:2], ranking[1:]) == (len(expected), expected[:2], expected[1:])
    assert ranking.ids == ranked_ids(ranking) == ranked_ids(expected) == [one.passage_id for one in expected]
    assert ranking.scores.tolist() == [one.score for one in expected]
    assert all(ranking.has(id_) for id_ in scores)


def test_an_id_is_there_as_a_whole():
    ranking = Ranking(["doc10", "1"], [2.0, 1.0])
    assert ranking.has("1")
    assert not ranking.has("doc1")
    assert not ranking.has("10\n1")
    assert not Ranking([], []).has("")
    assert Ranking([], []) == []
    assert ranking != [("doc10", 2.0)]
    assert ranking[0] == ("doc10", 2.0)


def test_what_cannot_be_ranked_is_refused():
    with pytest.raises(InputError, match="'b' has score NaN"):
        Ranking(["a", "b"], [1.0, float("nan")])
    with pytest.raises(InputError, match="'a' is twice"):
        Ranking(["a", "b", "a"], [3.0, 2.0, 1.0])
