"""Graph layers over a frozen dual-encoder in several processes: the loss and the weights of one."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from gnnretrieval.data import Dataset
from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.graph.subgraph import Subgraph
from gnnretrieval.training import TrainSettings, train_gnn
from gnnretrieval.training.ranks import Ranks
from tests.forks import ROOT

TRAINING = """
import json
import sys
from pathlib import Path
import numpy as np
import scipy.stats
import torch._dynamo  # the optimizer imports it: here once, not in every process
from gnnretrieval.graph import open_graph
from gnnretrieval.training import TrainSettings
from gnnretrieval.training.gnn.dev import DevSet
from gnnretrieval.training.gnn.loop import GNNTraining
from gnnretrieval.training.ranks import started_ranks
from tests.forks import as_ranks

graph, place = sys.argv[1], Path(sys.argv[2])
settings = {"layer": "gat", "epochs": 1, "batch_size": 5, "learning_rate": 0.01, "precision": "float32"}
cases = {"batch": {"neighbors": 2}, "corpus": {"candidates": "corpus"}}

def train(out, case):
    store = open_graph(graph)
    dev = DevSet(np.asarray(store.query_features[:4]), [[0], [1], [2], [3]], store.similarity)
    with started_ranks("cpu") as ranks:
        training = GNNTraining(store, dev, TrainSettings(**settings, **case), out, ranks=ranks)
        training.run()
    steps = [step for record in training.progress.history for step in record["steps"]]
    weights = [parameter.detach().ravel().tolist() for parameter in training.model.parameters()]
    (out / f"{ranks.rank}.json").write_text(json.dumps({"steps": steps, "weights": sum(weights, [])}))

for name, case in cases.items():
    for count in (1, 2, 4) if name == "batch" else (1, 2):
        out = place / f"{name}-{count}"
        out.mkdir()
        codes = as_ranks(lambda: train(out, case), out, count)
        assert codes == [0] * count, (out / "0.log").read_text() + (out / f"{count - 1}.log").read_text()
"""


def test_two_and_four_processes_have_the_loss_gradients_and_weights_of_one(tiny_graph, tmp_path):
    words = [sys.executable, "-c", TRAINING, tiny_graph.path, tmp_path]
    alone = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([*map(str, words)], cwd=ROOT, capture_output=True, text=True, env=alone)
    assert done.returncode == 0, done.stderr[-3000:]
    for case in ("batch", "corpus"):
        one = json.loads((tmp_path / f"{case}-1/0.json").read_text())
        assert len(one["steps"]) > 2
        for count in (2, 4) if case == "batch" else (2,):
            ranks = [json.loads((tmp_path / f"{case}-{count}/{rank}.json").read_text()) for rank in range(count)]
            for name in ("loss", "gradient_norm"):
                expected = [step[name] for step in one["steps"]]
                for rank in ranks:
                    np.testing.assert_allclose([step[name] for step in rank["steps"]], expected, rtol=2e-4)
            assert all(rank["weights"] == ranks[0]["weights"] for rank in ranks), "all have the same weights"
            np.testing.assert_allclose(ranks[0]["weights"], one["weights"], atol=2e-3)


@pytest.mark.parametrize("rows", [slice(0, 4), slice(3, 9), slice(5, 5)])
def test_a_part_of_a_subgraph_is_the_subgraph_of_its_passages(tiny_graph, rows):
    passages = np.array([1, 4, 5, 8, 13, 21, 22, 30, 39])
    visible = np.arange(tiny_graph.num_queries) % 3 > 0
    found = tiny_graph.subgraph(passages, visible).part(rows)
    expected = tiny_graph.subgraph(passages[rows], visible)
    for name, one, other in zip(Subgraph._fields, found, expected, strict=True):
        assert np.array_equal(one, other), name


def test_a_linear_layer_over_a_frozen_encoder_refuses_several_processes(
    tiny_graph, tiny_dataset, tiny_features, tmp_path
):
    with pytest.raises(
        GnnRetrievalError, match="trains in one process, in seconds to minutes: start it without torchrun"
    ):
        train_gnn(
            tiny_graph, Dataset.open(tiny_dataset), tiny_features, TrainSettings(), tmp_path / "m", ranks=Ranks(0, 2)
        )
