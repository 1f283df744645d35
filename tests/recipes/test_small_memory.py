"""A recipe by the default layer where memory does not hold all vectors."""

import pytest

from gnnretrieval.recipes.report import write_report
from gnnretrieval.recipes.run import run_recipe
from gnnretrieval.training.gnn import corpus_part, message_memory, messages

RECIPE = """name = "tiny"
[encoder]
checkpoint = "{checkpoint}"
max_tokens = 48
precision = "float32"
[train]
evidence = 1.0
"""


@pytest.fixture
def run(tiny_dataset, tiny_checkpoint, tmp_path, monkeypatch, said):
    for module in (messages, message_memory):
        monkeypatch.setattr(module, "memory_limit", lambda: 0)
    monkeypatch.setattr(messages, "PASSAGES", 30)
    monkeypatch.setattr(corpus_part, "HARD", 1)
    (tmp_path / "tiny.toml").write_text(RECIPE.format(checkpoint=tiny_checkpoint), encoding="utf-8")
    return run_recipe(tmp_path / "tiny.toml", data=tiny_dataset)


def test_it_runs_to_its_report_without_what_needs_all_vectors(run, said):
    assert run.model.meta["dev"]["passages"] < run.graph.num_passages
    assert run.model.meta["messages"]["rounds"] == 0
    assert run.index.meta["num_passages"] == run.graph.num_passages
    assert run.map is None
    assert "no map: its vectors do not fit into memory" in said
    assert "no baselines: their vectors do not fit into memory" in said
    assert "Examples before and after" in write_report(run).read_text(encoding="utf-8")
