from datetime import UTC, date, datetime

import pytest

from gnnretrieval.feedback.values import (
    WITHDRAWN,
    BadValue,
    by_passage,
    id_of,
    is_clicked,
    items_of,
    seconds_of,
    thumb_of,
    time_of,
)

MOMENT = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    "value",
    [
        "2026-03-01T09:30:00Z",
        "2026-03-01 09:30:00",
        "2026-03-01T10:30:00+01:00",
        "2026-03-01 09:30:00.000 UTC",
        MOMENT,
        MOMENT.replace(tzinfo=None),
        MOMENT.timestamp(),
        str(int(MOMENT.timestamp())),
        int(MOMENT.timestamp() * 1000),
        int(MOMENT.timestamp()) * 10**9,
        "20260301093000",
        20260301093000,
    ],
)
def test_a_time_is_read_in_every_usual_form(value):
    assert time_of(value) == pytest.approx(MOMENT.timestamp(), abs=1e-3)


@pytest.mark.parametrize(
    "value", ["20260301", 20260301, " 20260301 ", date(2026, 3, 1), "2026-03-01", "20260301T000000"]
)
def test_a_date_is_its_midnight_and_no_number_of_seconds(value):
    assert time_of(value) == datetime(2026, 3, 1, tzinfo=UTC).timestamp()


def test_digits_that_are_no_date_are_seconds():
    assert [time_of(one) for one in ("20269901", "12345678", 5)] == [20269901, 12345678, 5]


@pytest.mark.parametrize("value", ["yesterday", True, float("inf"), ["2026"], None, -1e11, "0001-01-01"])
def test_what_is_no_time_is_refused(value):
    with pytest.raises(BadValue, match="found time"):
        time_of(value)


@pytest.mark.parametrize("value", ["a b", "a|b", "a;b", "a, b", '["a", "b"]', ["a", "b"]])
def test_a_cell_of_several_ids_is_read_in_every_usual_form(value):
    assert items_of(value) == ["a", "b"]


def test_ids_may_be_whole_numbers_also_of_a_column_with_gaps():
    assert [id_of(7), id_of(7.0), id_of(" p7 ")] == ["7", "7", "p7"]
    for value in (None, "", 7.5, True):
        with pytest.raises(BadValue):
            id_of(value)


def test_clicks_and_thumbs_are_read_from_words_and_numbers():
    assert [is_clicked(one) for one in ("true", "1", 2, True, "Y")] == [True] * 5
    assert [is_clicked(one) for one in ("false", "0", 0, None, "", float("nan"))] == [False] * 6
    assert [thumb_of(one) for one in ("up", 1, True, "👍", "down", -1, False, "👎", 0, "", None)] == [
        *[1] * 4,
        *[-1] * 4,
        *[0] * 3,
    ]
    assert [thumb_of(one) for one in ("withdrawn", "Taken back")] == [WITHDRAWN] * 2
    for read in (is_clicked, thumb_of):
        with pytest.raises(BadValue):
            read("perhaps")


def test_dwell_times_belong_to_passages_by_name_or_in_the_order_of_the_clicks():
    assert dict(by_passage({"a": 3}, ["a", "b"])) == {"a": 3}
    assert dict(by_passage('{"a": 3}', ["a", "b"])) == {"a": 3}
    assert dict(by_passage([3, None], ["a", "b"])) == {"a": 3}
    assert dict(by_passage(5, ["a", "b"])) == {"a": 5, "b": 5}
    assert dict(by_passage(None, ["a"])) == {}
    with pytest.raises(BadValue, match="3 values for 2"):
        by_passage([1, 2, 3], ["a", "b"])
    assert (seconds_of("1500", True), seconds_of(2, False), seconds_of(0.00001, False)) == (1.5, 2.0, 1e-5)
    with pytest.raises(BadValue, match="found dwell time '1e', wanted a number of seconds"):
        seconds_of("1e", False)
