"""Killed and without power at any call (every command of the command line: benchmarks/faults.py)."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

TRIALS = Path(__file__).with_name("small_trials.py")
COMMANDS = ("make", "make another", "update", "write a file")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory):
    """What :mod:`small_trials` tells of each trial."""
    words = [sys.executable, TRIALS, tmp_path_factory.mktemp("trials")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("trial", [*(f"kill, {name}" for name in COMMANDS), "kill without exchange"])
def test_killed_anywhere_a_reader_sees_a_whole_one_and_the_command_finishes(found, trial):
    assert found[trial]["failures"] == []
    assert found[trial]["killed"] == sum(found[trial]["calls"].values()) >= 5


@pytest.mark.parametrize("name", COMMANDS)
def test_after_a_power_loss_a_reader_finds_a_whole_one_or_an_error_and_the_command_finishes(found, name):
    trial = found[f"power, {name}"]
    assert trial["failures"] == []
    assert trial["old"] + trial["new"] + trial["refused"] == 20


def test_the_trials_notice_a_gap_that_nobody_closes(found):
    assert "a reader is refused" in found["a gap"]["failures"][0]


@pytest.mark.parametrize("name", ["make", "update"])
def test_the_trials_notice_bytes_that_are_not_synced(found, name):
    assert "lacks its file inner/first" in found[f"not synced, {name}"]["failures"][0]


def test_random_sequences_end_as_one_build_does(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(TRIALS.parents[2] / "benchmarks"))
    from fault_process import in_fork
    from faults_sequences import try_sequences

    found, log = tmp_path / "found.json", tmp_path / "log"

    def trying() -> None:  # in a fork, since it shortens training for good
        found.write_text(json.dumps(try_sequences(tmp_path / "work", "scores and ranks", 2)))

    assert in_fork(trying, log) == 0, log.read_text()
    done, failures = json.loads(found.read_text())
    assert failures == []
    assert done["killed"] > 0


def crashed(root: Path, work: Callable[[], None], image: Path) -> None:
    """Do ``work`` below ``root`` in a fork and let the power fail; 20 disks that this may leave lie in ``image``."""
    from fault_disk import Disk
    from fault_process import in_fork

    def following() -> None:
        disk = Disk(root)
        disk.follow(lambda number, name: None)
        work()
        for seed in range(20):
            disk.crash(image / str(seed), Random(seed))

    image.mkdir()
    assert in_fork(following, image.with_suffix(".log")) == 0, image.with_suffix(".log").read_text()


def test_a_disk_keeps_what_is_synced_and_may_lose_what_is_not(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(TRIALS.parents[2] / "benchmarks"))
    root, image = tmp_path / "root", tmp_path / "image"
    root.mkdir()
    (root / "before").write_bytes(b"old")

    def work() -> None:
        with (root / "kept").open("wb") as file:
            file.write(b"kept")
            file.flush()
            os.fsync(file.fileno())
        os.fsync(os.open(root, os.O_RDONLY))
        (root / "lost").write_bytes(b"lost" * 5000)
        (root / "before").rename(root / "after")

    crashed(root, work, image)
    names = {tuple(sorted(file.name for file in disk.iterdir())) for disk in image.iterdir()}
    assert names == {("before", "kept"), ("before", "kept", "lost"), ("after", "kept", "lost")}
    assert {(disk / "kept").read_bytes() for disk in image.iterdir()} == {b"kept"}
    lost = {(disk / "lost").read_bytes() for disk in image.iterdir() if (disk / "lost").exists()}
    assert {b"", b"lost" * 5000} < lost
