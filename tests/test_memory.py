import os
import subprocess
import sys

import numpy as np
import pytest

from gnnretrieval.data.dataset import Dataset
from gnnretrieval.encoders.features import Features
from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.graph.build import build_graph
from gnnretrieval.graph.settings import GraphSettings
from gnnretrieval.platform import memory
from gnnretrieval.platform.memory import require_memory
from gnnretrieval.training.gnn.settings import TrainSettings
from gnnretrieval.training.gnn.train import train_gnn

SCRIPT = """
import ctypes, resource
from gnnretrieval.platform.memory import give_back_freed_memory, keep_freed_memory

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

keep_freed_memory()
blocks = [bytearray(2**20) for _ in range(200)]
full = resident()
del blocks
kept = resident()
give_back_freed_memory()
print(full, kept, resident())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator is Linux's")
def test_freed_memory_is_kept_until_it_is_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    full, kept, left = map(int, done.stdout.split())
    assert kept > full - 50 * 2**20
    assert left < full - 150 * 2**20


def test_the_limit_is_the_machine_s_or_the_process_s() -> None:
    script = "import sys, resource; from gnnretrieval.platform.memory import memory_limit; print(memory_limit())"
    lower = "resource.setrlimit(resource.RLIMIT_AS, (2**33 // 10, resource.RLIM_INFINITY));"
    whole, limited = (
        int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
        for code in (script, script.replace("print", f"{lower} print"))
    )
    assert limited == 2**33 // 10 <= whole <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_what_cannot_fit_is_refused_in_a_sentence() -> None:
    require_memory(2**20, "this", "Less.")
    with pytest.raises(GnnRetrievalError, match=r"^this needs about 1,048,576 GiB of memory, and there are .* Less\.$"):
        require_memory(2**50, "this", "Less.")


@pytest.mark.parametrize("layer", ["linear", "gat"])
def test_vectors_too_wide_to_train_on_are_refused_before_memory_is_taken(layer, tmp_path, tiny_dataset, monkeypatch):
    dataset, width = Dataset.open(tiny_dataset), 2**10
    draw = np.random.default_rng(0).standard_normal
    passages, queries = (
        draw((count, width), dtype=np.float32) for count in (len(dataset.passage_ids), len(list(dataset.queries())))
    )
    features = Features.from_vectors(dataset, passages, queries, tmp_path / "features")
    graph = build_graph(dataset, features, GraphSettings(k=2), tmp_path / "graph")
    # Each layer has a width x width matrix of float32, and what trains it: above the limit, which the vectors are not.
    monkeypatch.setattr(memory, "memory_limit", lambda: 4 * width**2)
    with pytest.raises(GnnRetrievalError, match=r"needs about [\d.]+ GiB of memory, and there are 0\.0 GiB"):
        train_gnn(graph, dataset, features, TrainSettings(layer=layer), tmp_path / "model")
