import csv
import json

import pyarrow
import pyarrow.parquet
import pytest

from gnnretrieval.errors import InputError
from gnnretrieval.feedback.cleaning import clean
from gnnretrieval.feedback.events import EventLog, open_logs
from gnnretrieval.feedback.settings import FeedbackSettings

LISTS = [
    {"query": "Q one", "ts": 10, "sid": "s", "results": ["a", "b", "c"], "clicks": ["b"], "dwell_ms": 4000},
    {"query": "Q two", "ts": 20, "sid": "t", "results": ["c", "a"], "clicks": []},
]
ROWS = [
    {"question": "Q one", "time": 10, "session": "s", "passage": passage, "rank": rank, "click": int(passage == "b")}
    for rank, passage in enumerate("abc")
]


def written(path, records):
    """The records as JSON lines, CSV or Parquet, by the ending."""
    if path.suffix == ".parquet":
        names = dict.fromkeys(key for one in records for key in one)
        pyarrow.parquet.write_table(pyarrow.table({name: [one.get(name) for one in records] for name in names}), path)
    elif path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(dict.fromkeys(key for one in records for key in one)))
            writer.writeheader()
            cells = [
                {key: " ".join(its) if isinstance(its, list) else its for key, its in one.items()} for one in records
            ]
            writer.writerows(cells)
    else:
        path.write_text("\n".join(map(json.dumps, records)))
    return path


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_lists_are_read_alike_from_every_format(tmp_path, ending):
    log = EventLog(written(tmp_path / f"log.{ending}", LISTS))
    first, second = log.events()
    assert (first.question, first.time, first.session) == ("Q one", 10.0, "s")
    assert [(one.passage, one.position, one.clicked) for one in first.shown] == [
        ("a", 1, False),
        ("b", 2, True),
        ("c", 3, False),
    ]
    assert [one.dwell for one in first.shown] == [None, 4.0, None]
    assert not any(one.clicked for one in second.shown)
    assert log.has_lists
    assert log.columns["shown"] == "results"


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_a_row_for_each_shown_passage_is_read_and_positions_from_0_are_noticed(tmp_path, ending):
    events = list(EventLog(written(tmp_path / f"log.{ending}", ROWS)).events())
    assert [event.shown[0][:3] for event in events] == [("a", 1, False), ("b", 2, True), ("c", 3, False)]
    assert not any(event.is_whole for event in events)


def test_a_log_of_clicks_alone_has_no_lists(tmp_path):
    log = EventLog(written(tmp_path / "log.csv", [{"query": "q", "date": "2026-01-01", "page": "a"}]))
    assert not log.has_lists
    (event,) = log.events()
    assert event.shown[0][:3] == ("a", None, True)


def test_clicks_may_be_true_or_false_for_each_shown_passage(tmp_path):
    (event,) = EventLog(written(tmp_path / "log.jsonl", [LISTS[0] | {"clicks": [True, False, False]}])).events()
    assert [one.passage for one in event.shown if one.clicked] == ["a"]


def test_a_passage_shown_twice_has_its_first_position_and_clicks_outside_are_counted(tmp_path):
    (event,) = EventLog(
        written(tmp_path / "log.jsonl", [LISTS[0] | {"results": ["a", "b", "a"], "clicks": ["x"]}])
    ).events()
    assert [(one.passage, one.position) for one in event.shown] == [("a", 1), ("b", 2)]
    assert event.outside == 1


def test_given_columns_come_before_the_usual_ones(tmp_path):
    records = [LISTS[0] | {"text": "typed", "query": "rewritten"}]
    (event,) = EventLog(written(tmp_path / "log.jsonl", records), {"question": "text"}).events()
    assert event.question == "typed"


@pytest.mark.parametrize(
    ("records", "given", "says"),
    [
        ([{"q": "x", "results": ["a"], "clicks": []}], {}, "no column is the time"),
        ([{"time": 1, "results": ["a"], "clicks": []}], {}, "no column is the question"),
        ([{"q": "x", "time": 1}], {}, "shown passages"),
        ([{"q": "x", "time": 1, "shown": ["a"]}], {}, "clicked passages or the thumbs"),
        (LISTS, {"question": "qery"}, "Did you mean 'query'"),
        (LISTS, {"quest": "query"}, "Did you mean 'question'"),
        ([LISTS[0], LISTS[1] | {"ts": "noon"}], {}, r"log.jsonl:2: found time 'noon'"),
        ([LISTS[0] | {"ts": 10**400}], {}, r"log.jsonl:1: found time 1000"),
        ([ROWS[0] | {"rank": "top"}], {}, "found position 'top'"),
        ([ROWS[0] | {"rank": "9" * 5000}], {}, "found position '9999"),
    ],
)
def test_what_is_wrong_with_a_log_is_a_sentence(tmp_path, records, given, says):
    with pytest.raises(InputError, match=says):
        list(EventLog(written(tmp_path / "log.jsonl", records), given).events())


def test_an_empty_log_and_a_line_that_is_no_object_are_refused(tmp_path):
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(InputError, match="empty"):
        EventLog(tmp_path / "empty.jsonl")
    (tmp_path / "log.jsonl").write_text('{"q": "x"}\n[]\n')
    with pytest.raises(InputError, match=r"log.jsonl:2: not a JSON object"):
        EventLog(tmp_path / "log.jsonl")


@pytest.mark.parametrize(("indent", "name"), [(None, "log.json"), (2, "log.json"), (None, "log.jsonl")])
def test_an_array_of_events_is_not_taken_for_a_table(tmp_path, indent, name):
    (tmp_path / name).write_text(json.dumps(LISTS, indent=indent))
    with pytest.raises(InputError, match=r"log.jsonl?:1: this is one JSON array: write each of its events on a line"):
        EventLog(tmp_path / name)
    (tmp_path / name).write_text(json.dumps(LISTS[0], indent=2))
    with pytest.raises(InputError, match=r"not a JSON object: '\{'. Write each event on one line"):
        EventLog(tmp_path / name)


@pytest.mark.parametrize("clicked", ["true|false|false", "True, False, False", '["true", "false", "false"]', "a"])
def test_a_table_may_say_true_and_false_for_each_passage_of_its_list(tmp_path, clicked):
    row = {"query": "Q one", "ts": 10, "results": "a|b|c", "clicks": clicked}
    (event,) = EventLog(written(tmp_path / "log.csv", [row])).events()
    assert [(one.passage, one.clicked) for one in event.shown] == [("a", True), ("b", False), ("c", False)]
    assert event.outside == 0


def test_passages_may_be_called_true_and_false(tmp_path):
    row = {"query": "Q one", "ts": 10, "results": "true|false", "clicks": "false"}
    (event,) = EventLog(written(tmp_path / "log.csv", [row])).events()
    assert [(one.passage, one.clicked) for one in event.shown] == [("true", False), ("false", True)]


@pytest.mark.parametrize(("dwell", "seconds"), [([3, 40, 5], (40, 5)), ([4, 5], (4, 5)), ([7], (7, 7))])
@pytest.mark.parametrize("shown", [{"shown": ["a", "b"]}, {}])
def test_a_passage_that_was_clicked_twice_has_its_longest_dwell_time(tmp_path, dwell, seconds, shown):
    records = [{"q": "x", "time": 1, "clicked": ["a", "a", "b"], "dwell": dwell, **shown}]
    (event,) = EventLog(written(tmp_path / "log.jsonl", records)).events()
    assert [(one.passage, one.dwell) for one in event.shown] == list(zip("ab", seconds, strict=True))


LONE = [("up", 1), (-1, 1), (["down"], 1), (0, 0), ("", 0), ("withdrawn", 0), ("great", 0), ({"a": "up"}, 0)]


@pytest.mark.parametrize(("thumbs", "outside"), [*LONE, ('{"a":1}', 0)])
def test_a_thumb_of_a_list_that_names_no_passage_is_counted_as_one_on_none(tmp_path, thumbs, outside):
    record = {"q": "x", "time": 1, "shown": ["a", "b"], "clicked": [], "thumbs": thumbs}
    (event,) = EventLog(written(tmp_path / "log.jsonl", [record])).events()
    assert event.outside == outside


def test_a_thumb_in_a_log_of_votes_is_a_click_only_until_it_is_taken_back(tmp_path):
    rows = [
        {"q": "x", "time": time, "sid": "s", "page": "a", "vote": vote} for time, vote in enumerate(("up", "withdrawn"))
    ]
    log = EventLog(written(tmp_path / "log.csv", rows))
    for share, is_clicked in ((1, True), (2, False)):
        its = clean(list(log.events())[:share], {"a"}, FeedbackSettings()).impressions[0].shown
        assert [one.clicked for one in its] == [is_clicked]


@pytest.mark.parametrize("half", ['{"query": "Q th', '{"query": "é'])
def test_a_last_line_that_is_being_written_is_skipped_with_a_warning(tmp_path, caplog, half):
    file = tmp_path / "log.jsonl"
    whole = "".join(json.dumps(one) + "\n" for one in LISTS)
    file.write_bytes(whole.encode() + half.encode()[: -1 if half.endswith("é") else None])
    caplog.set_level("INFO", "gnnretrieval")
    log = EventLog(file)
    assert [event.question for event in log.events()] == ["Q one", "Q two"]
    assert caplog.messages == [f"{file}:3: the last line is not whole, as after a power cut: it is skipped."]
    file.write_text(whole + json.dumps(LISTS[0]))
    assert len(list(EventLog(file).events())) == 3


@pytest.mark.parametrize("text", ['{"query": "Q th\n', '{"query": "Q th\n{"query": "Q"}', '{"query": "a", "ts": "no"}'])
def test_any_other_malformed_line_is_an_error(tmp_path, text):
    file = tmp_path / "log.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in LISTS) + text)
    with pytest.raises(InputError, match=r"not a JSON object|found time"):
        list(EventLog(file).events())


def test_of_several_logs_each_takes_the_given_columns_that_it_has(tmp_path):
    logs = [
        written(tmp_path / f"{name}.csv", [{name: "q", "time": 1, "page": "a"}])
        for name in ("wording", "query", "query2")
    ]
    one, other = open_logs(logs[:2], {"question": "Wording"})
    assert (one.columns["question"], other.columns["question"]) == ("wording", "query")
    with pytest.raises(InputError, match="no log has a column 'word', which --column gives for the question"):
        open_logs([logs[1], logs[1]], {"question": "word"})
    with pytest.raises(InputError, match="no column is the question"):
        open_logs(logs, {"question": "wording"})
