import logging
import sys
import time
import warnings

import pytest

from gnnretrieval.progress import indented, printable, progress, say, show_progress


@pytest.fixture
def shown(monkeypatch):
    """Lines are printed during a test, and no longer after it."""
    logger = logging.getLogger("gnnretrieval")
    before, level = [*logger.handlers], logger.level
    show_progress()
    yield
    logger.handlers[:] = before
    logger.setLevel(level)


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 100.0

    monkeypatch.setattr(time, "monotonic", lambda: Clock.now)
    return Clock


def test_lines_go_to_standard_error_once(capsys, shown):
    show_progress()
    say("a line")
    with indented(), indented():
        say("a line of a part")
    say("a line again")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "a line\n    a line of a part\na line again\n")


def test_a_program_that_does_not_ask_for_them_gets_no_lines(capsys):
    logger = logging.getLogger("gnnretrieval")
    handlers, level = [*logger.handlers], logger.level
    logger.handlers.clear()
    logger.setLevel(logging.NOTSET)
    say("a line")
    assert capsys.readouterr() == ("", "")
    logger.handlers[:] = handlers
    logger.setLevel(level)


def test_of_several_processes_only_the_first_one_tells(capsys, shown, monkeypatch):
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        say(f"process {rank}")
    assert capsys.readouterr().err == "process 0\n"


def test_off_a_terminal_there_is_a_line_now_and_then_with_rate_and_time_left(capsys, shown, clock):
    with progress("encoding", 1000, "passages") as meter:
        for _ in range(3):
            clock.now += 4
            meter.advance(100)
        assert capsys.readouterr().err == "encoding: 200/1,000 passages, 25/s, 32 s left\n"
        clock.now += 6
        meter.advance(100, note="loss 0.5")
        assert capsys.readouterr().err == "encoding: 400/1,000 passages, 22/s, 27 s left, loss 0.5\n"


def test_the_rate_leaves_out_what_an_earlier_run_did(capsys, shown, clock):
    with progress("encoding", 1000, "passages", done=600) as meter:
        clock.now += 10
        meter.advance(200)
    assert capsys.readouterr().err.splitlines()[0] == "encoding: 800/1,000 passages, 20/s, 10 s left"


def test_long_work_ends_with_a_line_and_short_work_is_silent(capsys, shown, clock):
    with progress("encoding", 10, "passages") as meter:
        clock.now += 3
        meter.advance(10)
    assert capsys.readouterr().err == "encoding: 10 passages in 3 s\n"
    with progress("encoding", 10, "passages") as meter:
        clock.now += 1
        meter.advance(10)
    assert capsys.readouterr().err == ""


def test_on_a_terminal_there_is_a_bar_that_ends_full(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    note = "loss 0.123, epoch 10, dev RR@10 77.8 ▁▂▃▄▅▆▇█▁▂▃▄▅▆▇█▁▂▃▄"
    with progress("encoding", 10_000, "passages", done=4) as meter:
        meter.advance(9_996, note=note)
    lines = capsys.readouterr().err.splitlines()
    bar = next(line for line in reversed(lines) if "encoding" in line)
    assert "10000/10000" in bar
    assert "0:00:00" in bar
    assert "passages/s" in bar
    assert any(note in line for line in lines)


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("a\tb\nç 日本 🙂", "a\tb\nç 日本 🙂"),
        ("\x1b[2J\x1b]0;title\x07", "\\u001b[2J\\u001b]0;title\\u0007"),
        ("\x9b31m\x7f", "\\u009b31m\\u007f"),
        ("over\rwritten\r\n", "over\\u000dwritten\r\n"),
        ("\u202egpj.exe \ud800", "\\u202egpj.exe \\ud800"),
    ],
)
def test_what_a_terminal_would_obey_is_shown(text, seen, capsys, shown):
    assert printable(text) == seen
    say(text)
    assert capsys.readouterr().err == f"{seen}\n"


@pytest.mark.parametrize("has_widgets", [True, False])
def test_a_notebook_has_a_bar_only_with_ipywidgets(has_widgets, monkeypatch):
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("gnnretrieval.progress.find_spec", lambda name: object() if has_widgets else None)
    with warnings.catch_warnings(record=True), progress("encoding", 2, "texts") as meter:
        assert (meter._bar is not None) == has_widgets
