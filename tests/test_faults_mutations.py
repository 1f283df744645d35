"""A few trials of benchmarks/faults_mutations.py, and that it sees what it is to count."""

import faulthandler
import os
import shutil
import signal
from pathlib import Path
from random import Random

import pytest


@pytest.fixture
def trial(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[1] / "benchmarks"))
    import faults_mutations

    return faults_mutations


def test_mutated_graphs_and_features_are_read_or_refused(trial, tiny_graph, tiny_features, tmp_path):
    for artifact, words in ((tiny_graph, "graph neighbors {} p01"), (tiny_features, "index build {} --out {out}")):
        shutil.copytree(artifact.path, tmp_path / artifact.meta["kind"])
        kind = trial.Kind(artifact.meta["kind"], (words,))
        row, failures = trial.measure(kind.name, kind, 6, tmp_path)
        assert failures == []
        assert sum(row[name] for name in ("same", "refused", "noticed by verify")) == 6


def interrupted():
    faulthandler.disable()  # pytest's
    os.kill(os.getpid(), signal.SIGSEGV)


def wrong():
    raise ValueError("wrong")


def endless():
    while True:
        pass


def greedy():
    try:
        bytearray(10**12)
    except MemoryError:
        os.write(2, b"Error: there is not enough memory for this.\n")
        raise SystemExit(1) from None


def refusing():
    os.write(2, b"Error: no.\n")
    raise SystemExit(1)


def talkative():
    os.write(2, b"one\nError: no.\ntwo\n")
    raise SystemExit(1)


@pytest.mark.parametrize(
    ("command", "verdict"),
    [
        (interrupted, "failed: signal 11"),
        (wrong, "failed: traceback: ValueError: wrong"),
        (endless, "failed: signal"),
        (greedy, "failed: out of memory"),
        (talkative, "failed: no sentence"),
        (refusing, "refused"),
        (lambda: print("whole"), "same"),
        (lambda: print("other"), "failed: another result that verify does not notice"),
    ],
    ids=["crash", "exception", "hang", "memory", "two lines", "refused", "same", "another result"],
)
def test_each_outcome_is_told_from_the_others(command, verdict, trial, tiny_graph, monkeypatch, tmp_path):
    monkeypatch.setattr(trial, "main", command)
    monkeypatch.setattr(trial, "SECONDS", 1)
    whole = trial.Outcome(0, "whole\n", "", "")
    outcome = trial.forked("command", tmp_path / "out")
    assert trial.judge(outcome, whole, tiny_graph.path).startswith(verdict)


def test_a_change_of_a_file_or_of_meta_json_is_noticed(trial, tiny_graph, tmp_path):
    case = shutil.copytree(tiny_graph.path, tmp_path / "case")
    assert not trial.noticed(case)
    (case / "meta.json").write_text((case / "meta.json").read_text().replace('"num_queries": 60', '"num_queries": 59'))
    assert trial.noticed(case)
    shutil.copy(tiny_graph.path / "meta.json", case)
    os.truncate(case / "neighbors.npy", 200)
    assert trial.noticed(case)


def test_every_mutation_changes_something_and_follows_from_its_seed(trial, tiny_graph, tmp_path):
    def mutated(seed):
        case = tmp_path / "case"
        shutil.rmtree(case, ignore_errors=True)
        shutil.copytree(tiny_graph.path, case)
        return trial.mutate(case, Random(seed)), {file.name: file.read_bytes() for file in case.rglob("*.*")}

    whole = {file.name: file.read_bytes() for file in tiny_graph.path.rglob("*.*")}
    assert all(mutated(seed)[1] != whole for seed in range(20))
    assert mutated(3) == mutated(3)
