import sys

import pytest
import torch
from torch import nn

from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.training.checkpoint import Progress, load_checkpoint, save_checkpoint
from gnnretrieval.training.optimizers import linear_schedule, make_optimizer, require_finite_step

NAMES = ["adamw", "adam", "lamb"]
CPU = torch.device("cpu")


class Parts(nn.Module):
    """A matrix, biases, a norm, a weight of zeros, and a matrix that no loss reaches."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(3, 4)
        self.norm = nn.LayerNorm(4)
        self.head = nn.Linear(4, 2)
        self.unused = nn.Linear(2, 2, bias=False)
        nn.init.zeros_(self.head.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.wide(x).tanh()))


def parts(name: str, seed: int = 0, weight_decay: float = 0.1):
    torch.manual_seed(seed)
    module = Parts()
    return module, make_optimizer(name, list(module.named_parameters()), 0.01, weight_decay)


def step(module, optimizer, number: int, total: int = 6) -> None:
    for group in optimizer.param_groups:
        group["lr"] = 0.01 * linear_schedule(number, total, 0.3)
    optimizer.zero_grad()
    torch.manual_seed(number)
    (module(torch.randn(5, 3)) - 1).square().sum().backward()
    optimizer.step()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("done", [0, 3])
def test_training_goes_on_from_a_checkpoint_bit_for_bit(name, done, tmp_path):
    module, optimizer = parts(name)
    for number in range(done):
        step(module, optimizer, number)
    path = tmp_path / "checkpoint.safetensors"
    save_checkpoint(path, {"model": module}, optimizer, {}, Progress(1, done, []))
    other, another = parts(name, seed=1)
    load_checkpoint(path, {"model": other}, another, CPU)
    for number in range(done, 6):
        step(module, optimizer, number)
        step(other, another, number)
    assert all(torch.equal(one, two) for one, two in zip(module.parameters(), other.parameters(), strict=True))
    ends = [made.state_dict() for made in (optimizer, another)]
    assert [group.get("step") for group in ends[0]["param_groups"]] == [
        group.get("step") for group in ends[1]["param_groups"]
    ]
    for number, kept in ends[0]["state"].items():
        assert int(kept["step"]) == 6
        assert kept.keys() == ends[1]["state"][number].keys()
        assert all(torch.equal(value, ends[1]["state"][number][key]) for key, value in kept.items())


def test_saving_lamb_s_state_does_not_change_it():
    module, optimizer = parts("lamb")
    step(module, optimizer, 0)
    assert "step" in optimizer.state_dict()["state"][0]
    assert all("step" not in kept for kept in optimizer.state.values())
    assert [group["step"] for group in optimizer.param_groups] == [1, 1]


@pytest.mark.parametrize("name", NAMES)
def test_biases_and_norms_do_not_decay_and_matrices_do(name):
    def moved(weight_decay: float) -> set[str]:
        module, optimizer = parts(name, weight_decay=weight_decay)
        for one in module.parameters():
            one.grad = torch.zeros_like(one)
        before = {key: one.detach().clone() for key, one in module.named_parameters()}
        optimizer.step()
        return {key for key, one in module.named_parameters() if not torch.equal(one, before[key])}

    assert moved(0.0) == set()
    assert moved(0.1) == {"wide.weight", "unused.weight"}  # head.weight is zero


def test_adamw_s_decay_by_hand():
    weight = nn.Parameter(torch.full((1, 1), 2.0))
    optimizer = make_optimizer("adamw", [("weight", weight)], 0.1, 0.5)
    weight.grad = torch.ones(1, 1)
    optimizer.step()
    assert weight.item() == pytest.approx(2 * (1 - 0.1 * 0.5) - 0.1)  # the first step of Adam is the sign


def test_lamb_s_first_two_steps_by_hand():
    weight = nn.Parameter(torch.tensor([[3.0, 4.0]]))  # of norm 5
    optimizer = make_optimizer("lamb", [("weight", weight)], 0.1, 0.0)
    weight.grad = torch.tensor([[2.0, 2.0]])
    optimizer.step()
    # The update is along (1, 1), of length 5 · 0.1, whatever the gradient's size.
    away = 5 * 0.1 / 2**0.5
    torch.testing.assert_close(weight.detach(), torch.tensor([[3 - away, 4 - away]]), rtol=1e-4, atol=0)
    norm = float(weight.detach().norm())
    optimizer.step()
    away += norm * 0.1 / 2**0.5
    torch.testing.assert_close(weight.detach(), torch.tensor([[3 - away, 4 - away]]), rtol=1e-4, atol=0)


def test_lamb_s_weight_decay_is_inside_of_the_trust_ratio():
    weight = nn.Parameter(torch.tensor([[3.0, 4.0]]))
    optimizer = make_optimizer("lamb", [("weight", weight)], 0.1, 0.5)
    weight.grad = torch.zeros(1, 2)
    optimizer.step()  # an update of decay alone, made as long as the weight
    torch.testing.assert_close(weight.detach(), 0.9 * torch.tensor([[3.0, 4.0]]), rtol=1e-4, atol=0)


def test_frozen_parameters_are_left_out():
    module = Parts()
    module.wide.requires_grad_(False)
    optimizer = make_optimizer("adam", list(module.named_parameters()), 0.01, 0.0)
    held = [one for group in optimizer.param_groups for one in group["params"]]
    assert {id(one) for one in held} == {id(one) for one in module.parameters() if one.requires_grad}
    with pytest.raises(GnnRetrievalError, match="every parameter is frozen"):
        make_optimizer("adam", list(module.wide.named_parameters()), 0.01, 0.0)


def test_an_unknown_optimizer_is_refused_with_the_nearest_name():
    with pytest.raises(GnnRetrievalError, match=r"'adamx'.*adamw, adam, lamb.*Did you mean"):
        make_optimizer("adamx", list(Parts().named_parameters()), 0.01, 0.0)


def test_without_its_library_lamb_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pytorch_optimizer", None)
    with pytest.raises(GnnRetrievalError, match=r"pip install 'gnnretrieval\[lamb\]'"):
        parts("lamb")


def test_the_schedule_by_hand():
    factors = [linear_schedule(step, 10, 0.2) for step in range(11)]
    assert factors == pytest.approx([0.5, 1, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8, 0])


@pytest.mark.parametrize(("total", "share"), [(1, 0.0), (1, 0.9), (3, 0.0), (7, 0.99), (1000, 0.1)])
def test_the_schedule_reaches_its_peak_and_ends_at_zero(total, share):
    factors = [linear_schedule(step, total, share) for step in range(total)]
    assert max(factors) == 1
    assert all(0 < factor <= 1 for factor in factors)
    assert linear_schedule(total, total, share) == 0


@pytest.mark.parametrize(("loss", "norm"), [(float("nan"), 1.0), (float("inf"), 1.0), (0.5, float("inf"))])
def test_a_step_that_is_not_finite_ends_training_before_the_weights_take_it(loss, norm):
    with pytest.raises(GnnRetrievalError, match=r"diverged: the loss of step 8 is .* Give a lower rate\."):
        require_finite_step(7, loss, norm, "Give a lower rate.")
    require_finite_step(7, 0.5, 1.0, "Give a lower rate.")


def test_a_first_step_that_is_not_finite_blames_the_start_and_no_learning_rate():
    with pytest.raises(GnnRetrievalError, match="nothing was learned yet") as told:
        require_finite_step(0, float("nan"), 1.0, "Give a lower rate.")
    assert "lower rate" not in str(told.value)
