import io
import logging

from gnnretrieval.serve.logs import Seldom


def test_a_line_of_the_code_writes_a_few_times_a_minute_and_then_says_how_often_it_did_not():
    now, written = [0.0], io.StringIO()
    handler = logging.StreamHandler(written)
    handler.addFilter(Seldom(most=3, seconds=60, clock=lambda: now[0]))
    logger = logging.Logger("test")
    logger.addHandler(handler)
    for number in range(100_000):
        logger.warning("it failed: %s", number)
    assert written.getvalue().splitlines() == ["it failed: 0", "it failed: 1", "it failed: 2"]
    logger.warning("another")
    assert written.getvalue().splitlines()[3:] == ["another"]


def test_what_was_not_written_is_counted():
    now, written = [0.0], io.StringIO()
    handler = logging.StreamHandler(written)
    handler.addFilter(Seldom(most=2, seconds=60, clock=lambda: now[0]))
    logger = logging.Logger("test")
    logger.addHandler(handler)
    for number in range(1002):
        now[0] = 60.0 if number == 1001 else 0.0
        logger.warning("it failed: %s", number)
    assert written.getvalue().splitlines() == [
        "it failed: 0",
        "it failed: 1",
        "it failed: 1001 (999 more like this were not written)",
    ]
