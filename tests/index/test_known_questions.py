import numpy as np
import pytest

from gnnretrieval.index.comparison import EncoderComparison
from gnnretrieval.index.known_questions import BestScores, KnownQuestions


@pytest.fixture(scope="module")
def known(tiny_graph):
    return KnownQuestions(tiny_graph.texts())


def test_a_training_question_has_its_relevant_passages(known, tiny_graph):
    texts = tiny_graph.texts()
    assert known.relevant(texts.query(3).text) == ["p03", "p30"]  # judged relevant
    assert known.relevant(texts.query(4).text) == ["p04"]  # p31 is judged irrelevant
    assert known.relevant("  " + texts.query(4).text.replace(" ", " \n")) == ["p04"]
    assert known.relevant(texts.query(4).text + " more") is None


def test_a_removed_passage_is_not_relevant(tiny_graph):
    texts = tiny_graph.view(hidden=np.array([30])).texts()
    assert KnownQuestions(texts).relevant(texts.query(3).text) == ["p03"]


def test_texts_with_one_hash_are_told_apart(tiny_graph, monkeypatch):
    monkeypatch.setattr("gnnretrieval.index.known_questions._key", lambda text: 7)
    texts = tiny_graph.texts()
    known = KnownQuestions(texts)
    assert known.relevant(texts.query(5).text) == ["p05"]
    assert known.relevant("none of them") is None


def test_the_share_below_counts_best_scores_before_label_edges(tiny_graph):
    best = BestScores(tiny_graph)
    found = tiny_graph.retrieved(slice(None))[1].max(axis=1)
    assert len(found) == 60
    assert best.share_below(float(np.sort(found)[29])) == pytest.approx(0.5)
    assert (best.share_below(-2.0), best.share_below(2.0)) == (0.0, 1.0)


def test_a_removed_passage_is_nobody_s_best(tiny_graph):
    first = tiny_graph.retrieved(slice(None))[0][:, 0]
    fewer = BestScores(tiny_graph.view(hidden=np.unique(first)))
    score = float(np.median(tiny_graph.scores[:, 0]))
    assert fewer.share_below(score) > BestScores(tiny_graph).share_below(score)


@pytest.mark.parametrize(("share", "unsure"), [(None, False), (0.0, True), (0.01, True), (0.011, False)])
def test_the_lowest_hundredth_is_unsure(share, unsure):
    assert EncoderComparison([], [], 0, share_below=share).is_unsure is unsure
