import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gnnretrieval.training.gnn.candidates import step_of

LABELS = np.array([[0, 4], [1, 2], [1, 7], [3, 4], [5, 0]])


def test_a_step_over_the_corpus_by_hand():
    step = step_of(np.array([0, 1]), LABELS, np.arange(8), np.empty(0, dtype=np.int64))
    assert step.queries.tolist() == [0, 1, 1]
    assert step.candidates.tolist() == list(range(8))
    assert step.positives.tolist() == [4, 2, 7]
    assert [np.flatnonzero(row).tolist() for row in step.relevant] == [[4], [2, 7], [2, 7]]


def test_a_step_over_the_batch_has_its_positives_and_hard_negatives_once_each():
    step = step_of(np.array([0, 1, 3]), LABELS, None, np.array([6, 2]))
    assert step.candidates.tolist() == [2, 4, 6, 7]
    assert step.queries.tolist() == [0, 1, 1, 3]
    assert step.candidates[step.positives].tolist() == [4, 2, 7, 4]
    assert step.relevant.tolist() == [
        [False, True, False, False],
        [True, False, False, True],
        [True, False, False, True],
        [False, True, False, False],
    ]


def test_a_negative_that_is_another_querys_positive_is_relevant_to_that_query_only():
    step = step_of(np.array([0, 5]), LABELS, None, np.array([0, 4]))
    assert step.candidates.tolist() == [0, 4]
    assert step.relevant.tolist() == [[False, True], [True, False]]


def test_what_may_not_be_a_negative_is_one_of_no_query_and_a_positive_still():
    step = step_of(np.array([0, 1]), LABELS, np.arange(8), np.empty(0, dtype=np.int64), np.array([0, 2, 4, 6]))
    assert step.positives.tolist() == [4, 2, 7]
    assert [np.flatnonzero(~row).tolist() for row in step.relevant] == [[0, 2, 6], [0, 4, 6], [0, 4, 6]]


@given(data=st.data())
def test_a_steps_pairs_and_relevance_are_the_labels(data):
    pairs = data.draw(st.sets(st.tuples(st.integers(0, 9), st.integers(0, 11)), min_size=1))
    labels = np.array(sorted(pairs))
    queries = np.array(sorted(data.draw(st.sets(st.sampled_from(sorted({query for query, _ in pairs})), min_size=1))))
    negatives = np.array(data.draw(st.lists(st.integers(0, 11))), dtype=np.int64)
    corpus = data.draw(st.booleans())
    step = step_of(queries, labels, np.arange(12) if corpus else None, negatives)
    batch = sorted(pair for pair in pairs if pair[0] in queries)
    assert list(zip(step.queries.tolist(), step.candidates[step.positives].tolist(), strict=True)) == batch
    if not corpus:
        assert step.candidates.tolist() == sorted({*(passage for _, passage in batch), *negatives.tolist()})
    for row, query in enumerate(step.queries.tolist()):
        relevant = {passage for asked, passage in pairs if asked == query}
        assert set(step.candidates[step.relevant[row]].tolist()) == relevant
