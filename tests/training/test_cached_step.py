"""The gradient of a batch is the same whole, part by part, and over several processes (law: one loss on every path)."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from gnnretrieval.encoders.checkpoint import find_checkpoint
from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.losses import contrastive_loss
from gnnretrieval.training.cached_step import Batch, add_gradient
from gnnretrieval.training.encoder.towers import Item, TextTower
from gnnretrieval.training.weights import MasterWeights
from tests.forks import ROOT

SCALE = 7.0  # a temperature other than 1
TEXTS = [f"{word} bada gogo {word * 2}" for word in ("dada", "kobe", "lumi", "nari", "pozu", "sefi", "tuva", "zire")]


def tower(checkpoint: Path, dropout: float = 0.0) -> TextTower:
    return TextTower(
        find_checkpoint(str(checkpoint)), Similarity(normalize=True, scale=SCALE), torch.device("cpu"), dropout=dropout
    )


def batch_of(encoder: TextTower) -> Batch:
    """Four queries and six passages, the first four of which are the queries'."""
    ids = encoder.tokens([text.split()[0] for text in TEXTS[:4]]) + encoder.tokens(TEXTS[:6])
    names = ["query"] * 4 + ["passage"] * 6

    def loss(rows):
        scores = SCALE * rows[:4] @ rows[4:].T
        return contrastive_loss(scores, torch.arange(4), torch.zeros(4, 6, dtype=torch.bool))

    return Batch([Item(name, tuple(text)) for name, text in zip(names, ids, strict=True)], loss)


def gradients(checkpoint: Path, *, cached: bool, token_budget: int, dtype=torch.float32, dropout: float = 0.0):
    encoder = tower(checkpoint, dropout)
    weights = MasterWeights([encoder], dtype)
    encoder.module.train()
    towers = {"query": encoder, "passage": encoder}
    loss = add_gradient(towers, batch_of(encoder), cached=cached, token_budget=token_budget, seed=(3,))
    return loss, [parameter.grad.clone() for parameter in weights.parameters if parameter.grad is not None]


def test_the_gradient_in_parts_is_autograds_own(tiny_checkpoint):
    encoder = tower(tiny_checkpoint)
    batch = batch_of(encoder)
    rows = torch.cat([encoder.rows(batch.items[:4]), encoder.rows(batch.items[4:])])
    batch.loss(rows).backward()
    expected = [parameter.grad for parameter in encoder.trained() if parameter.grad is not None]
    _, found = gradients(tiny_checkpoint, cached=False, token_budget=10)
    assert len(found) == len(expected) > 10
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_gradient_caching_changes_no_bit(tiny_checkpoint, dtype, dropout):
    plain = gradients(tiny_checkpoint, cached=False, token_budget=24, dtype=dtype, dropout=dropout)
    cached = gradients(tiny_checkpoint, cached=True, token_budget=24, dtype=dtype, dropout=dropout)
    assert plain[0] == cached[0]
    assert len(plain[1]) == len(cached[1])
    assert all(torch.equal(one, other) for one, other in zip(plain[1], cached[1], strict=True))


def test_smaller_parts_give_the_same_gradient(tiny_checkpoint):
    whole = gradients(tiny_checkpoint, cached=False, token_budget=10_000)
    parts = gradients(tiny_checkpoint, cached=True, token_budget=1)
    assert parts[0] == pytest.approx(whole[0], rel=1e-6)
    for one, other in zip(parts[1], whole[1], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_bfloat16_follows_float32(tiny_checkpoint):
    exact = gradients(tiny_checkpoint, cached=False, token_budget=10_000)
    rough = gradients(tiny_checkpoint, cached=False, token_budget=10_000, dtype=torch.bfloat16)
    assert rough[0] == pytest.approx(exact[0], rel=2e-2)
    flat = [torch.cat([gradient.flatten() for gradient in found[1]]) for found in (exact, rough)]
    assert torch.nn.functional.cosine_similarity(flat[0], flat[1], dim=0) > 0.98


def test_the_temperature_reaches_the_gradient(tiny_checkpoint):
    encoder = tower(tiny_checkpoint)
    items = batch_of(encoder).items
    losses = {}
    for scale in (1.0, SCALE):
        for cached in (False, True):

            def loss(rows, scale=scale):
                return contrastive_loss(
                    scale * rows[:4] @ rows[4:].T, torch.arange(4), torch.zeros(4, 6, dtype=torch.bool)
                )

            losses[scale, cached] = add_gradient(
                {"query": encoder, "passage": encoder}, Batch(items, loss), cached=cached, token_budget=24
            )
    assert losses[1.0, False] == losses[1.0, True] != losses[SCALE, False] == losses[SCALE, True]


CASES = [("float32", "plain"), ("float32", "cached"), ("bfloat16", "cached")]
RANK = """
import json, sys
from pathlib import Path
import torch
sys.path.insert(0, sys.argv[1])
from test_cached_step import batch_of, tower
from tests.forks import as_two
from gnnretrieval.training.cached_step import add_gradient
from gnnretrieval.training.ranks import started_ranks
from gnnretrieval.training.weights import MasterWeights

def one_step(place, precision, cached):
    with started_ranks("cpu") as ranks:
        encoder = tower(sys.argv[2])
        weights = MasterWeights([encoder], torch.bfloat16 if precision == "bfloat16" else torch.float32)
        loss = add_gradient({"query": encoder, "passage": encoder}, batch_of(encoder), cached=cached == "cached",
                            token_budget=16, ranks=ranks)
        ranks.sum_gradients(weights.parameters)
        torch.save((loss, [p.grad for p in weights.parameters]), place / f"{ranks.rank}.pt")

tower(sys.argv[2])  # imports what the processes need
for case in json.loads(sys.argv[4]):
    place = Path(sys.argv[3]) / "-".join(case)
    place.mkdir()
    assert as_two(lambda: one_step(place, *case), place) == [0, 0], (place / "0.log").read_text()
"""


@pytest.fixture(scope="module")
def steps(tiny_checkpoint, tmp_path_factory):
    """Where both processes of each case left loss and gradients."""
    place = tmp_path_factory.mktemp("steps")
    arguments = [str(Path(__file__).parent), str(tiny_checkpoint), str(place), json.dumps(CASES)]
    done = subprocess.run([sys.executable, "-c", RANK, *arguments], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return place


@pytest.mark.parametrize(("precision", "cached"), CASES)
def test_two_processes_have_one_big_batchs_gradient(tiny_checkpoint, steps, precision, cached):
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    loss, expected = gradients(tiny_checkpoint, cached=False, token_budget=10_000, dtype=dtype)
    place = steps / f"{precision}-{cached}"
    ranks = [torch.load(place / f"{rank}.pt", weights_only=True) for rank in (0, 1)]
    assert ranks[0][0] == ranks[1][0] == pytest.approx(loss, rel=1e-5 if precision == "float32" else 1e-2)
    assert all(torch.equal(one, other) for one, other in zip(ranks[0][1], ranks[1][1], strict=True))
    found = [gradient for gradient in ranks[0][1] if gradient.any()]
    expected = [gradient for gradient in expected if gradient.any()]
    for one, other in zip(found, expected, strict=True):
        if precision == "float32":
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
        else:
            assert torch.nn.functional.cosine_similarity(one.flatten(), other.flatten(), dim=0) > 0.95
