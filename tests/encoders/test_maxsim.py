import importlib.util
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch

from gnnretrieval.encoders import maxsim as module
from gnnretrieval.encoders.maxsim import maxsim, maxsim_of, maxsim_top_k, restored, stored

COUNTS = [3, 1, 5, 2, 4]


def vectors(*shape, seed=0):
    rows = torch.from_numpy(np.random.default_rng(seed).normal(size=shape)).float()
    return torch.nn.functional.normalize(rows, dim=-1)


@pytest.fixture
def corpus():
    return vectors(3, 4, 8, seed=1), vectors(sum(COUNTS), 8), np.cumsum([0, *COUNTS])


def by_hand(query, passage):
    return sum(max(float(token @ other) for other in passage) for token in query)


def test_a_score_is_the_sum_of_each_question_vectors_best(corpus):
    queries, tokens, starts = corpus
    scores = maxsim(queries, tokens, torch.tensor(COUNTS))
    for row, query in enumerate(queries):
        for column in range(len(COUNTS)):
            passage = tokens[starts[column] : starts[column + 1]]
            assert scores[row, column] == pytest.approx(by_hand(query, passage), abs=1e-5)


def test_the_gradient_goes_to_the_best_token_alone():
    tokens = torch.tensor([[1.0, 0.0], [0.0, 1.0]], requires_grad=True)
    maxsim(torch.tensor([[[3.0, 1.0]]]), tokens, torch.tensor([2])).sum().backward()
    assert tokens.grad.tolist() == [[3.0, 1.0], [0.0, 0.0]]


@pytest.mark.parametrize("block", [1, 4, 1000])
def test_search_in_blocks_finds_the_same_passages(corpus, monkeypatch, block):
    queries, tokens, starts = corpus
    monkeypatch.setattr(module, "_TOKENS", block)
    monkeypatch.setattr(module, "_QUERIES", 2)
    whole = maxsim(queries, tokens, torch.tensor(COUNTS)).numpy()
    rows, scores = maxsim_top_k(queries.numpy(), tokens.numpy(), starts, 3)
    assert rows.tolist() == np.argsort(-whole, axis=1)[:, :3].tolist()
    np.testing.assert_allclose(scores, np.take_along_axis(whole, rows, 1), atol=1e-6)


def test_candidates_have_the_scores_of_the_whole_search(corpus):
    queries, tokens, starts = corpus
    whole = maxsim(queries, tokens, torch.tensor(COUNTS)).numpy()
    some = np.array([4, 0, 2])
    np.testing.assert_allclose(maxsim_of(queries[1].numpy(), tokens.numpy(), starts, some), whole[1, some], atol=1e-6)
    assert maxsim_of(queries[1].numpy(), tokens.numpy(), starts, some[:0]).shape == (0,)


@pytest.mark.parametrize(("how", "error"), [("float16", 1e-3), ("int8", 2e-2)])
def test_stored_vectors_are_near_and_of_length_1(how, error):
    made = vectors(50, 128)
    kept = stored(made.numpy(), how)
    assert kept.dtype == np.dtype(how)
    back = restored(kept)
    assert back.norm(dim=1).numpy() == pytest.approx(1, abs=1e-6)
    assert float((back * made).sum(1).min()) > 1 - error**2


def pylate_scores():
    """PyLate's scoring module, without the package's other dependencies, such as another torch."""
    spec = importlib.util.find_spec("pylate")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("PyLate is not installed")
    (place,) = spec.submodule_search_locations
    for name, folder in (("pylate", place), ("pylate.utils", Path(place) / "utils")):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = [str(folder)]
    return importlib.import_module("pylate.scores.colbert")


def test_scores_are_those_of_pylate(corpus):
    """Passage by passage: in a padded batch, PyLate scores padding 0, above a token whose best product is negative."""
    queries, tokens, _ = corpus
    pylate = pylate_scores()
    theirs = [pylate.colbert_scores(queries, passage[None]) for passage in tokens.split(COUNTS)]
    torch.testing.assert_close(maxsim(queries, tokens, torch.tensor(COUNTS)), torch.cat(theirs, 1), atol=1e-5, rtol=0)
