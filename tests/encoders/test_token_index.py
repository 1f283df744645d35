import numpy as np
import pytest
import torch

from gnnretrieval.encoders import token_index as module
from gnnretrieval.encoders.maxsim import maxsim, maxsim_of
from gnnretrieval.encoders.token_index import TokenIndex

COUNTS = [3, 1, 5, 2, 4]
STARTS = np.cumsum([0, *COUNTS])
IDS = np.array([7, 2, 7, 9, 2, 7, 7, 1, 9, 2, 5, 5, 7, 9, 1])


@pytest.fixture
def corpus():
    rng = np.random.default_rng(0)
    tokens = rng.normal(size=(len(IDS), 6)).astype(np.float16)  # not of length 1
    queries = rng.normal(size=(3, 4, 6)).astype(np.float32)
    asked = np.array([[7, 2, 7, 4], [9, 9, 1, 0], [8, 8, 8, 8]])  # twice the same token; none that the corpus has
    return queries, asked, tokens


def by_hand(query, ids, tokens, passage):
    """Each token of the question with the best of the same tokens of the passage; 0 where it has none."""
    total = 0.0
    for vector, token in zip(query, ids, strict=True):
        rows = [row for row in range(STARTS[passage], STARTS[passage + 1]) if IDS[row] == token]
        total += max((float(vector @ tokens[row].astype(np.float32)) for row in rows), default=0.0)
    return total


@pytest.mark.parametrize("block", [1, 65536])
def test_a_score_is_the_sum_over_the_tokens_that_both_have(corpus, monkeypatch, block):
    monkeypatch.setattr(module, "_ROWS", block)
    queries, asked, tokens = corpus
    index = TokenIndex(tokens, IDS, STARTS)
    for query, ids in zip(queries, asked, strict=True):
        wanted = [by_hand(query, ids, tokens, passage) for passage in range(len(COUNTS))]
        np.testing.assert_allclose(index.scores(query, ids), wanted, atol=1e-5)


def test_the_same_scores_come_from_candidates_and_in_training(corpus):
    queries, asked, tokens = corpus
    index = TokenIndex(tokens, IDS, STARTS)
    same = torch.from_numpy(IDS[:, None] == asked.reshape(1, -1))
    whole = maxsim(torch.from_numpy(queries), torch.from_numpy(tokens).float(), torch.tensor(COUNTS), same).numpy()
    some = np.array([4, 0, 2])
    for number, (query, ids) in enumerate(zip(queries, asked, strict=True)):
        np.testing.assert_allclose(index.scores(query, ids), whole[number], atol=1e-5)
        found = maxsim_of(query, tokens, STARTS, some, ids=(ids, IDS))
        np.testing.assert_allclose(found, whole[number][some], atol=1e-5)


def test_the_best_come_first_and_equal_scores_by_row(corpus):
    queries, asked, tokens = corpus
    index = TokenIndex(tokens, IDS, STARTS)
    told = []
    rows, scores = index.top_k(queries, asked, 3, told.append)
    for number, (query, ids) in enumerate(zip(queries, asked, strict=True)):
        whole = index.scores(query, ids)
        assert rows[number].tolist() == np.lexsort((np.arange(5), -whole))[:3].tolist()
        assert scores[number].tolist() == whole[rows[number]].tolist()
    assert rows[2].tolist() == [0, 1, 2]  # no token in common: all scores are 0
    assert sum(told) == 3


def test_no_gradient_goes_to_tokens_that_are_not_the_same():
    tokens = torch.tensor([[1.0, 0.0], [0.0, 5.0], [2.0, 0.0]], requires_grad=True)
    query = torch.tensor([[[3.0, 1.0], [1.0, 1.0]]], requires_grad=True)
    same = torch.tensor([[True, False], [False, False], [False, False]])  # the second passage has none of them
    scores = maxsim(query, tokens, torch.tensor([2, 1]), same)
    assert scores.tolist() == [[3.0, 0.0]]
    scores.sum().backward()
    assert tokens.grad.tolist() == [[3.0, 1.0], [0.0, 0.0], [0.0, 0.0]]
    assert query.grad.tolist() == [[[1.0, 0.0], [0.0, 0.0]]]
