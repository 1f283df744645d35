import errno
import fcntl
import json
import os
import socket
import threading
import time

import pytest

from gnnretrieval.errors import ArtifactError
from gnnretrieval.storage import locks
from gnnretrieval.storage.locks import STALE, beside, locked
from gnnretrieval.storage.making import make_artifact


@pytest.fixture
def without_locks(monkeypatch):
    def flock(file, how):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)


def write_lease(path, host: str, pid: int, age: float = 0.0) -> None:
    lease = beside(path, "lease")
    lease.write_text(json.dumps({"host": host, "pid": pid, "token": "theirs"}))
    os.utime(lease, (time.time() - age, time.time() - age))


def test_where_the_file_system_has_no_locks_a_lease_keeps_others_away_and_that_is_said(tmp_path, without_locks, said):
    with locked(tmp_path / "a", "graph"):
        assert [file.name for file in tmp_path.iterdir()] == [".a.lease"]
        with (
            pytest.raises(ArtifactError, match=f"process {os.getpid()} on {socket.gethostname()} is making this graph"),
            locked(tmp_path / "a", "graph"),
        ):
            pass
    assert "this file system has no locks; a lease (.a.lease) keeps other processes away instead" in said[0]
    assert list(tmp_path.iterdir()) == []


def test_an_artifact_is_made_without_locks(tmp_path, without_locks):
    make_artifact(tmp_path / "a", "numbers", inputs={}, config={}, write=lambda directory: None)
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


def test_a_lease_holds_where_this_machine_has_locks_too(tmp_path):
    write_lease(tmp_path / "a", "another", 7)
    with pytest.raises(ArtifactError, match="process 7 on another"), locked(tmp_path / "a", "graph"):
        pass


@pytest.mark.parametrize(
    ("host", "pid", "age"),
    [(socket.gethostname(), 2**22 + 1, 0.0), ("another", os.getpid(), STALE + 1), (socket.gethostname(), 1, STALE + 1)],
    ids=["gone", "silent elsewhere", "silent here"],
)
def test_a_lease_without_a_sign_of_life_is_taken_over(tmp_path, without_locks, host, pid, age):
    write_lease(tmp_path / "a", host, pid, age)
    with locked(tmp_path / "a", "graph"):
        assert json.loads(beside(tmp_path / "a", "lease").read_text())["pid"] == os.getpid()
    assert list(tmp_path.iterdir()) == []


def test_a_lease_of_another_machine_holds_for_its_time(tmp_path, without_locks):
    write_lease(tmp_path / "a", "another", 7, STALE / 2)
    message = "process 7 on another is making this graph"
    with pytest.raises(ArtifactError, match=message), locked(tmp_path / "a", "graph"):
        pass
    assert beside(tmp_path / "a", "lease").exists()


def test_the_lease_is_kept_alive(tmp_path, without_locks, monkeypatch):
    monkeypatch.setattr(locks, "HEARTBEAT", 0.01)
    with locked(tmp_path / "a", "graph") as require:
        lease = beside(tmp_path / "a", "lease")
        os.utime(lease, (0, 0))
        until = time.monotonic() + 10
        while time.time() - lease.stat().st_mtime > STALE and time.monotonic() < until:
            time.sleep(0.01)
        require()
        assert time.time() - lease.stat().st_mtime < STALE
    assert not any(thread.name == "lease" for thread in threading.enumerate())


def test_who_lost_the_lease_does_not_finish(tmp_path, without_locks):
    def write(directory):
        write_lease(tmp_path / "a", "another", 7)

    with pytest.raises(ArtifactError, match="gave no sign of life for 60 seconds, and another took its place"):
        make_artifact(tmp_path / "a", "numbers", inputs={}, config={}, write=write)
    assert not (tmp_path / "a").exists()
    assert beside(tmp_path / "a", "lease").exists(), "theirs"


def test_another_error_of_a_lock_is_said_as_it_is(tmp_path, monkeypatch):
    def flock(file, how):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(OSError, match="Input/output error"), locked(tmp_path / "a", "graph"):
        pass
