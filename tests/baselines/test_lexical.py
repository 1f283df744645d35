import math

import numpy as np
import pytest

from gnnretrieval.baselines.lexical import CHOICES, choose_lexical
from gnnretrieval.encoders.bm25 import BM25
from gnnretrieval.errors import InputError
from gnnretrieval.feedback.clicked_questions import ClickedQuestions
from gnnretrieval.index.lexical import LexicalSetting, expanded_texts, lexical_index, neighbour_questions

TEXTS = ["red apple", "green tree", "blue water deep", "fast car"]
QUESTIONS = {0: ["which fruit falls", "fruit name"], 2: ["where to swim"]}


def passages():
    return iter(TEXTS)


def test_a_passage_is_followed_by_its_questions_as_often_as_asked():
    assert list(expanded_texts(TEXTS, QUESTIONS, 2)) == [
        "red apple\nwhich fruit falls\nwhich fruit falls\nfruit name\nfruit name",
        "green tree",
        "blue water deep\nwhere to swim\nwhere to swim",
        "fast car",
    ]
    assert list(expanded_texts(TEXTS, QUESTIONS, 0)) == TEXTS


def test_an_expanded_index_scores_questions_by_hand():
    """The term is twice in a passage of 6 words: red, apple, fruit, fall, fruit, name."""
    setting = LexicalSetting(repeats=1, k1=0.9, b=0.5)
    bm25 = lexical_index(passages, 4, {0: ["fruit falls", "fruit name"]}, setting)
    mean = (6 + 2 + 3 + 2) / 4
    expected = math.log(1 + (4 - 1 + 0.5) / 1.5) * 2 / (2 + 0.9 * (0.5 + 0.5 * 6 / mean))
    assert bm25.scores("fruit").tolist() == pytest.approx([expected, 0, 0, 0])


def test_a_neighbouring_question_counts_by_its_weight():
    """A quarter of two terms: the passage's length is 2.5, and the term counts 0.25 times there."""
    bm25 = lexical_index(passages, 4, {}, LexicalSetting(neighbour_weight=0.25), {1: ["leafy wood"]})
    mean = (2 + 2.5 + 3 + 2) / 4
    expected = math.log(1 + 3.5 / 1.5) * 0.25 / (0.25 + 1.5 * (0.25 + 0.75 * 2.5 / mean))
    assert bm25.scores("wood").tolist() == pytest.approx([0, expected, 0, 0])


def test_without_questions_it_is_plain_bm25():
    plain = BM25(TEXTS)
    for query in ("apple tree", "deep water", "fruit"):
        bm25 = lexical_index(passages, 4, QUESTIONS, LexicalSetting(), {1: ["deep fruit"]})
        assert bm25.scores(query).tolist() == plain.scores(query).tolist()


def test_questions_are_chosen_where_dev_finds_passages_by_them():
    choice = choose_lexical(passages, 4, QUESTIONS, ["fruit", "swim", "car", "nothing"], [[0], [2], [3], [1]])
    assert choice.dev[LexicalSetting()] == 0.25  # "car" alone
    assert choice.dev[choice.best] == 0.75
    assert choice.best == LexicalSetting(repeats=1)  # more repeats are no better: the nearest to untuned BM25
    assert choice.plain == LexicalSetting()


def test_questions_that_mislead_are_left_out():
    choice = choose_lexical(passages, 4, {0: ["fast car"] * 3}, ["fast car", "car"], [[3], [3]])
    assert choice.best == choice.plain == LexicalSetting()
    assert choice.dev[LexicalSetting()] == 1
    assert choice.dev[LexicalSetting(repeats=3)] < 1


def test_by_clicks_a_passage_that_was_not_shown_is_no_rank_before_and_questions_count_by_weight():
    texts, queries, relevant = ["tree", "tree and leaf", "car"], ["tree", "car"], [[1], [2]]
    plain = choose_lexical(lambda: texts, 3, {}, queries, relevant)
    assert plain.dev[LexicalSetting()] == (0.5 + 1) / 2
    shown = ClickedQuestions(relevant, [[1, 2], None], np.ones(2))
    assert choose_lexical(lambda: texts, 3, {}, queries, relevant, clicked=shown).dev[LexicalSetting()] == 1
    heavy = ClickedQuestions(relevant, [None, None], np.array([3.0, 1.0]))
    choice = choose_lexical(lambda: texts, 3, {}, queries, relevant, clicked=heavy)
    assert choice.dev[LexicalSetting()] == pytest.approx(0.75 * 0.5 + 0.25 * 1)


def test_k1_and_b_are_tuned_without_questions_too():
    """The long passage has the term twice, and is relevant: a length that counts less puts it first."""
    texts = ["tree and green leaf and red apple and blue water and tree", "tree fruit", "deep fish", "car"]
    choice = choose_lexical(lambda: texts, 4, {}, ["tree"], [[0]])
    assert choice.dev[LexicalSetting()] == 0.5
    assert choice.best == choice.plain
    assert choice.best.repeats == 0
    assert (choice.best.k1, choice.best.b) != (1.5, 0.75)
    assert choice.dev[choice.plain] == 1
    rows, _ = lexical_index(lambda: texts, 4, {}, choice.plain).top_k("tree", 1)
    assert rows.tolist() == [0]


def test_neighbouring_questions_are_tried_where_there_are_some():
    queries, relevant = ["leafy wood", "car"], [[1], [3]]
    choice = choose_lexical(passages, 4, {}, queries, relevant, {1: ["leafy wood"]})
    assert choice.best == LexicalSetting(neighbour_weight=0.25)
    assert (choice.dev[choice.plain], choice.dev[choice.best]) == (0.5, 1)
    without = choose_lexical(passages, 4, {}, queries, relevant)
    assert {setting.neighbour_weight for setting in without.dev} == {0}


def test_the_best_is_never_below_what_was_tried_and_the_defaults_are_tried():
    choice = choose_lexical(passages, 4, QUESTIONS, ["fruit", "swim red", "car"], [[0], [2], [3]])
    assert choice.dev[choice.best] == max(choice.dev.values())
    for repeats in CHOICES["repeats"]:
        assert LexicalSetting(repeats) in choice.dev
    assert len(choice.dev) < 40


def test_what_does_not_fit_is_refused():
    with pytest.raises(InputError, match="passage row 4"):
        choose_lexical(passages, 4, {4: ["question"]}, ["car"], [[3]])
    with pytest.raises(InputError, match="passage row -1"):
        lexical_index(passages, 4, {}, LexicalSetting(), {-1: ["question"]})
    for queries, relevant in (([], []), (["car"], [[3], [0]])):
        with pytest.raises(InputError, match="dev questions"):
            choose_lexical(passages, 4, {}, queries, relevant)


def test_neighbouring_questions_are_those_that_retrieved_a_passage_and_are_not_its_labels(tiny_graph):
    found = neighbour_questions(tiny_graph)
    labels = {tuple(pair) for pair in np.array(tiny_graph.labels).tolist()}
    with tiny_graph.texts() as texts:
        text_of = texts.texts_of_queries(range(tiny_graph.num_queries))
    expected = {}
    for query, row in enumerate(np.array(tiny_graph.neighbors).tolist()):
        for passage in row:
            if (query, passage) not in labels:
                expected.setdefault(passage, []).append(text_of[query])
    assert found == expected
    assert sum(map(len, found.values())) < tiny_graph.num_queries * tiny_graph.k
    fewer = neighbour_questions(tiny_graph.view(k=2))
    assert 0 < sum(map(len, fewer.values())) < sum(map(len, found.values()))
