import numpy as np
import pytest

from gnnretrieval.data import Dataset
from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.mining.examples import Candidate, Example
from gnnretrieval.training.encoder.pair_data import Relevance, Texts, count_cut, draw, labelled_examples, merged


def example(query, positives, negatives=(), probability=None):
    return Example(
        query,
        tuple(Candidate(passage, "label", probability=probability) for passage in positives),
        tuple(Candidate(passage, "bm25", probability=probability) for passage in negatives),
    )


def test_labels_become_examples_but_for_queries_without_a_positive_and_hidden_ones(tiny_dataset):
    dataset = Dataset.open(tiny_dataset)
    found = {one.query: one for one in labelled_examples(dataset, "train", frozenset({"train-00"}))}
    assert len(found) == 59
    assert [c.passage for c in found["train-03"].positives] == ["p03", "p30"]
    assert [c.passage for c in found["train-04"].positives] == ["p04"]  # p31 is judged irrelevant


def test_a_passage_that_is_anywhere_positive_is_nowhere_negative():
    (joined,) = merged([[example("q", ["a"], ["b", "c"])], [example("q", ["b"], ["d"])]])
    assert [c.passage for c in joined.positives] == ["a", "b"]
    assert [c.passage for c in joined.negatives] == ["c", "d"]


def test_of_two_accounts_of_a_passage_the_one_with_a_probability_is_kept():
    for parts in ([[example("q", ["a"])], [example("q", ["a"], probability=0.7)]],):
        for order in (parts, parts[::-1]):
            (joined,) = merged(order)
            assert joined.positives[0].probability == 0.7


def test_a_query_that_has_only_negatives_is_not_learned_from():
    assert merged([[example("q", [], ["b"])]]) == []


TEXTS = Texts(
    {"q1": "What is a?", "q2": "what is  A", "q3": "Another"},
    {"a": "One text.", "twin": "one TEXT", "b": "Two", "c": "Three"},
)


def test_a_positive_its_text_under_another_id_and_those_of_the_same_question_are_no_negatives():
    relevance = Relevance([example("q1", ["a"]), example("q2", ["b"]), example("q3", ["c"])], TEXTS)
    assert relevance.mask(["q1", "q2", "q3"], ["a", "twin", "b", "c"]).tolist() == [
        [True, True, True, False],
        [True, True, True, False],
        [False, False, False, True],
    ]
    assert relevance.is_relevant("q2", "twin")
    assert not relevance.is_relevant("q3", "twin")


def test_an_epoch_draws_every_query_once_and_a_batch_follows_from_its_number_alone():
    examples = [example(f"q{n}", [f"p{n}"], [f"n{n}-{m}" for m in range(5)]) for n in range(10)]
    batches = [draw(examples, 4, 2, seed=7, epoch=1, number=number) for number in range(3)]
    assert sorted(one.query for batch in batches for one in batch) == sorted(f"q{n}" for n in range(10))
    assert all(len({c.passage for c in one.negatives}) == 2 for batch in batches for one in batch)
    assert draw(examples, 4, 2, seed=7, epoch=1, number=2) == batches[2]
    assert draw(examples, 4, 2, seed=7, epoch=2, number=2) != batches[2]
    assert draw(examples, 4, 2, seed=8, epoch=1, number=2) != batches[2]


def test_where_there_are_fewer_negatives_all_are_drawn():
    (one,) = draw([example("q", ["p"], ["n"])], 4, 3, seed=0, epoch=0, number=0)
    assert [c.passage for c in one.negatives] == ["n"]


def test_each_positive_has_its_turn():
    examples = [example("q", ["a", "b"])]
    drawn = {draw(examples, 1, 0, seed=0, epoch=epoch, number=0)[0].positive.passage for epoch in range(10)}
    assert drawn == {"a", "b"}


def test_examples_of_another_dataset_are_refused(tiny_dataset):
    with pytest.raises(GnnRetrievalError, match="name passage 'elsewhere'"):
        Texts.of(Dataset.open(tiny_dataset), ["train-00"], ["p00", "elsewhere"])


def test_longer_texts_are_counted():
    counted = count_cut(["a b c", "a", "a b"], lambda texts: [len(text.split()) for text in texts], 2)
    assert counted == {"texts": 3, "cut": 1, "max_tokens": 2}


def test_the_mask_is_boolean():
    assert Relevance([example("q1", ["a"])], TEXTS).mask(["q1"], ["a"]).dtype == np.bool_
