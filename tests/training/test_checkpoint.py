import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from gnnretrieval.errors import InputError
from gnnretrieval.training import checkpoint as module
from gnnretrieval.training.checkpoint import Progress, load_checkpoint, save_checkpoint

CPU = torch.device("cpu")
HISTORY = [{"epoch": 1, "loss": 0.1 + 0.2, "dev_by_scale": {"0.0": 1 / 3}}]


def parts(seed: int = 0) -> tuple[dict[str, nn.Module], torch.optim.Optimizer]:
    torch.manual_seed(seed)
    modules = {"model": nn.Linear(3, 2), "average": nn.Linear(3, 2)}
    return modules, torch.optim.Adam(modules["model"].parameters(), lr=0.1)


def step(modules, optimizer, number: int) -> None:
    optimizer.zero_grad()
    modules["model"](torch.full((1, 3), float(number))).square().sum().backward()
    optimizer.step()


@pytest.fixture
def saved(tmp_path):
    modules, optimizer = parts()
    for number in range(3):
        step(modules, optimizer, number)
    path = tmp_path / "checkpoint.safetensors"
    save_checkpoint(path, modules, optimizer, {"weight": torch.ones(2, 3)}, Progress(1, 3, HISTORY))
    return path, modules, optimizer


def test_training_goes_on_from_a_checkpoint_as_if_it_had_not_stopped(saved):
    path, modules, optimizer = saved
    others, another = parts(seed=1)
    best, progress = load_checkpoint(path, others, another, CPU)
    assert progress == Progress(1, 3, HISTORY)
    assert torch.equal(best["weight"], torch.ones(2, 3))
    for name, one in modules.items():
        assert all(torch.equal(value, others[name].state_dict()[key]) for key, value in one.state_dict().items())
    for number in range(3, 6):
        step(modules, optimizer, number)
        step(others, another, number)
    assert torch.equal(modules["model"].weight, others["model"].weight)
    assert torch.equal(modules["model"].bias, others["model"].bias)


def test_a_checkpoint_holds_no_pickle(saved):
    path, *_ = saved
    tensors = load_file(path)
    assert {key.split(".")[0] for key in tensors} == {"model", "average", "optimizer", "best"}


def test_killed_while_writing_the_checkpoint_before_stays(saved, monkeypatch):
    path, modules, optimizer = saved
    before = path.read_bytes()

    def killed(tensors, partial, metadata):
        partial.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "save_file", killed)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(path, modules, optimizer, {}, Progress(2, 6, []))
    assert path.read_bytes() == before


def damaged(path, kind: str) -> None:
    tensors = load_file(path)
    metadata = {"progress": json.dumps([1, 3, HISTORY])}
    if kind == "truncated":
        path.write_bytes(path.read_bytes()[:-7])
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "text":
        path.write_text("not a checkpoint, whatever its name says")
    elif kind == "no progress":
        save_file(tensors, path)
    elif kind == "progress of another shape":
        save_file(tensors, path, {"progress": "[1]"})
    elif kind == "progress no JSON":
        save_file(tensors, path, {"progress": "{"})
    elif kind == "a weight is missing":
        save_file({key: value for key, value in tensors.items() if key != "model.weight"}, path, metadata)
    else:
        save_file({**tensors, "model.weight": torch.zeros(7, 7)}, path, metadata)


@pytest.mark.parametrize(
    "kind",
    [
        "truncated",
        "empty",
        "text",
        "no progress",
        "progress of another shape",
        "progress no JSON",
        "a weight is missing",
        "another shape",
    ],
)
def test_a_damaged_checkpoint_is_refused_in_a_sentence_with_its_path(saved, kind):
    path, *_ = saved
    damaged(path, kind)
    modules, optimizer = parts()
    with pytest.raises(InputError, match=r"checkpoint\.safetensors: .*Delete it") as caught:
        load_checkpoint(path, modules, optimizer, CPU)
    assert "\n" not in str(caught.value)
