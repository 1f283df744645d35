"""The log of thumbs has whole lines, also with several writers, after a crash and on a full disk."""

import errno
import json
import os
import subprocess
import sys
from datetime import UTC, datetime

import pytest

from gnnretrieval.errors import InputError
from gnnretrieval.feedback import thumb_log
from gnnretrieval.feedback.events import EventLog
from gnnretrieval.feedback.thumb_log import ThumbLog

GIVEN = ("wie geht das?\n\u2028", ["a", "b"], "b", "up", "session-1", "0123456789ab")
WRITER = """
import sys
from gnnretrieval.feedback.thumb_log import ThumbLog
log = ThumbLog(sys.argv[1])
for number in range(200):
    log.add("words " * 3000, ["a", "b"], "b", "up", f"{sys.argv[2]}-{number}", "0123456789ab")
"""


@pytest.fixture
def log(tmp_path):
    return ThumbLog(tmp_path / "thumbs.jsonl")


def events(log):
    return list(EventLog(log.path).events())


def test_a_thumb_is_an_event_that_import_reads_without_options(log):
    before = datetime.now(UTC)
    when = log.add(*GIVEN)
    (event,) = events(log)
    assert (event.question, event.session) == (GIVEN[0], "session-1")
    assert abs(event.time - when.timestamp()) < 1e-5
    assert before <= when <= datetime.now(UTC)
    assert [tuple(one) for one in event.shown] == [("a", 1, False, None, 0), ("b", 2, False, None, 1)]
    assert json.loads(log.path.read_text())["version"] == "0123456789ab"
    assert EventLog(log.path).has_lists


def test_only_its_owner_can_read_it(log):
    assert log.path.stat().st_mode & 0o777 == 0o600


def test_a_line_is_one_write_to_the_end_and_is_synced_before_the_answer(log, monkeypatch):
    calls = []
    for name in ("write", "fsync"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *its, name=name, real=real: calls.append(name) or real(*its))
    log.add(*GIVEN)
    assert calls == ["write", "fsync"]


def test_two_processes_write_whole_lines_at_once(log):
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, log.path, name]) for name in ("first", "second")]
    assert [one.wait(120) for one in writers] == [0, 0]
    sessions = [event.session for event in events(log)]
    assert sorted(sessions) == sorted(f"{name}-{number}" for name in ("first", "second") for number in range(200))


def test_what_a_crash_left_of_a_line_is_cut_off(log):
    log.add(*GIVEN)
    whole = log.path.read_bytes()
    for length in range(1, len(whole) - 1):
        log.path.write_bytes(whole + whole[:length])
        ThumbLog(log.path)
        assert log.path.read_bytes() == whole
    for rest in (b"\0" * 5000, b'{"time": "\xc3'):
        log.path.write_bytes(whole + rest)
        log.add(*GIVEN)
        assert len(events(log)) == 2


def test_a_whole_line_without_its_end_is_kept(log):
    log.add(*GIVEN)
    log.path.write_bytes(log.path.read_bytes()[:-1])
    log.add(*GIVEN)
    assert len(events(log)) == 2


def test_of_a_line_that_is_longer_than_this_log_writes_nothing_is_cut(log):
    log.path.write_bytes(b"x" * (thumb_log._LONGEST + 1))
    ThumbLog(log.path)
    assert log.path.read_bytes() == b"x" * (thumb_log._LONGEST + 1) + b"\n"


@pytest.mark.parametrize("failing", ["a full disk", "a part is written", "it cannot be synced"])
def test_a_failing_disk_is_an_error_and_leaves_no_half_line(log, monkeypatch, failing):
    log.add(*GIVEN)
    before, write = log.path.read_bytes(), os.write

    def fail(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        if failing == "a part is written":
            patch.setattr(os, "write", lambda descriptor, line: write(descriptor, line[:20]))
        else:
            patch.setattr(os, "write" if failing == "a full disk" else "fsync", fail)
        with pytest.raises(OSError, match="No space left"):
            log.add(*GIVEN)
    assert log.path.read_bytes() == before
    log.add(*GIVEN)
    assert len(events(log)) == 2


def test_a_file_that_was_moved_away_is_made_again(log, tmp_path):
    log.add(*GIVEN)
    log.path.rename(tmp_path / "yesterday.jsonl")
    log.add(*GIVEN)
    assert len(events(log)) == 1


def test_a_place_that_cannot_be_written_is_a_sentence(tmp_path):
    (tmp_path / "folder.jsonl").mkdir()
    for place, says in (
        (tmp_path / "thumbs.csv", "ends in .jsonl"),
        (tmp_path / "nothing" / "thumbs.jsonl", "No such file or directory.*a directory that exists"),
        (tmp_path / "folder.jsonl", "Is a directory"),
    ):
        with pytest.raises(InputError, match=says):
            ThumbLog(place)
    assert [one.name for one in tmp_path.iterdir()] == ["folder.jsonl"]
