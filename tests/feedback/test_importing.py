import json
from datetime import UTC, datetime
from random import Random

import pytest

from gnnretrieval.data import Dataset
from gnnretrieval.errors import ArtifactError, InputError
from gnnretrieval.feedback import (
    FeedbackSettings,
    SimulationSettings,
    import_feedback,
    make_feedback_examples,
    open_feedback,
    simulate_log,
)
from gnnretrieval.feedback.cleaning import question_key

PRIVATE = ("anna.b@example.org", "+49 30 1234567", "DE89 3704 0044 0532 0130 00", "4111 1111 1111 1111")


@pytest.fixture(scope="module")
def log(tiny_dataset, tmp_path_factory):
    """A log of 1,000 lists without wrong clicks, and when dev and test begin."""
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    settings = SimulationSettings(impressions=1000, shown=6, wrong_clicks=0.0, variation=1.0)
    report = simulate_log(Dataset.open(tiny_dataset), path, settings)
    return path, datetime.fromisoformat(report.dev_from), datetime.fromisoformat(report.test_from)


@pytest.fixture(scope="module")
def made(log, tiny_dataset, tmp_path_factory):
    return imported(log, tiny_dataset, tmp_path_factory.mktemp("made") / "made")


def imported(log, passages, out, **more):
    path, dev, test = log
    return import_feedback([path], passages, out, dev_from=dev, test_from=test, **more)


def files(place):
    """Bytes of each file of a dataset but its meta.json, which has the time."""
    return {one.name: one.read_bytes() for one in place.rglob("*") if one.is_file() and one.name != "meta.json"}


def lines_of(log):
    return log[0].read_text(encoding="utf-8").splitlines()


def test_judgements_are_the_truth_that_was_simulated(made, tiny_dataset):
    truth, found = Dataset.open(tiny_dataset), Dataset.open(made.path)
    assert found.splits == ["train", "dev", "test"]
    assert found.passage_ids == truth.passage_ids
    for split in found.splits:
        relevant = {
            (question_key(query.text), passage)
            for query in truth.queries_of(split)
            for passage, value in truth.split(split)[query.id].items()
            if value > 0
        }
        judged = {
            (question_key(query.text), passage): value
            for query in found.queries_of(split)
            for passage, value in found.split(split)[query.id].items()
        }
        assert {pair for pair, value in judged.items() if value > 0} <= relevant
        assert {pair for pair, value in judged.items() if value == 0}.isdisjoint(relevant)
        assert all(0 <= value <= 10 for value in judged.values())
    assert sum(value > 0 for its in found.split("train").values() for value in its.values()) > 30
    propensities = [one.propensity for one in made.report.positions]
    assert propensities == pytest.approx([1 / k for k in range(1, 7)], rel=0.4)


def test_no_question_is_in_two_splits_and_the_report_counts_what_the_files_hold(made):
    dataset = Dataset.open(made.path)
    keys = [question_key(query.text) for query in dataset.queries()]
    assert len(keys) == len(set(keys))
    asked = [query for split in dataset.splits for query in dataset.split(split)]
    assert len(asked) == len(set(asked)) == len(dataset.query_ids)
    for one in made.report.splits:
        values = [value for its in dataset.split(one.split).values() for value in its.values()]
        assert one.relevant == sum(value > 0 for value in values)
        assert one.hard_negatives == values.count(0)
    rows = (made.path / "judgements.tsv").read_text().splitlines()[1:]
    judged = sum(bool(row.split("\t")[-1]) for row in rows)
    assert judged == sum(one.relevant + one.hard_negatives for one in made.report.splits)
    assert open_feedback(made.path).report == made.report


def test_the_order_of_lines_decides_nothing(log, made, tiny_dataset, tmp_path):
    lines = lines_of(log)
    Random(0).shuffle(lines)
    (tmp_path / "log.jsonl").write_text("\n".join(lines), encoding="utf-8")
    shuffled = imported((tmp_path / "log.jsonl", *log[1:]), tiny_dataset, tmp_path / "shuffled")
    assert files(shuffled.path) == files(made.path)


def test_redaction_leaves_no_planted_address_in_any_file(log, tiny_dataset, tmp_path):
    records = [json.loads(line) for line in lines_of(log)[:500]]
    for number, record in enumerate(records):
        private = PRIVATE[number % len(PRIVATE)]
        record |= {"query": f"{record['query']} {private}", "query_id": private, "session": f"{private} {number}"}
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    made = import_feedback([path], tiny_dataset, tmp_path / "made", redact=True)
    written = "\n".join(one.read_text(encoding="utf-8") for one in made.path.rglob("*") if one.is_file())
    assert not [one for one in PRIVATE if one in written]
    assert "[email]" in written
    assert made.report.cleaning.redacted_questions == len(records)
    open_text = import_feedback([path], tiny_dataset, tmp_path / "plain")
    assert PRIVATE[0] in (open_text.path / "queries.jsonl").read_text(encoding="utf-8")


def test_passages_may_come_from_a_table_and_unknown_ones_are_counted(log, tiny_dataset, tmp_path):
    passages = [one for one in Dataset.open(tiny_dataset).passages() if one.id != "p00"]
    table = tmp_path / "docs.csv"
    table.write_text("id,text\n" + "".join(f"{one.id},{one.text}\n" for one in passages), encoding="utf-8")
    made = imported(log, table, tmp_path / "made")
    assert made.report.cleaning.unknown_passages > 0
    assert "p00" not in Dataset.open(made.path).passage_ids


def test_hard_negatives_become_training_examples(made, tmp_path):
    judged = Dataset.open(made.path).split("train")
    examples = make_feedback_examples(Dataset.open(made.path), tmp_path / "examples")
    found = list(examples.examples())
    assert found
    for one in found:
        assert {candidate.passage for candidate in one.positives} == {p for p, v in judged[one.query].items() if v > 0}
        assert {candidate.passage for candidate in one.negatives} == {p for p, v in judged[one.query].items() if not v}
    assert examples.report.candidates.negatives == made.report.splits[0].hard_negatives


def test_of_clicks_alone_there_are_no_hard_negatives_and_no_setting_that_helps(log, tiny_dataset, tmp_path):
    clicks = tmp_path / "clicks.jsonl"
    records = [{name: one[name] for name in one if name != "shown"} for one in map(json.loads, lines_of(log))]
    clicks.write_text("".join(json.dumps(one) + "\n" for one in records), encoding="utf-8")
    alone = import_feedback([clicks], tiny_dataset, tmp_path / "alone")
    with pytest.raises(InputError, match=r"its logs do not have what was shown and not clicked. Log it"):
        make_feedback_examples(Dataset.open(alone.path), tmp_path / "examples")


def test_a_passage_with_the_text_of_a_relevant_one_is_no_hard_negative(tmp_path):
    passages = [{"_id": name, "title": "", "text": text} for name, text in (("a", "Yes."), ("b", "yes"), ("c", "no"))]
    (tmp_path / "corpus.jsonl").write_text("\n".join(map(json.dumps, passages)))
    record = {"query": "q", "time": 1, "shown": ["a", "b", "c"], "clicked": ["a"]}
    log = tmp_path / "log.jsonl"
    log.write_text("\n".join(json.dumps(record | {"session": f"s{n}", "time": n}) for n in range(60)))
    settings = FeedbackSettings(dev_share=0, test_share=0)
    made = import_feedback([log], tmp_path / "corpus.jsonl", tmp_path / "made", settings)
    (judged,) = Dataset.open(made.path).split("train").values()
    assert judged.keys() == {"a", "c"}
    assert made.report.splits[0].same_text == 1


def test_old_events_are_not_kept(log, tiny_dataset, tmp_path):
    made = imported(log, tiny_dataset, tmp_path / "made", keep_from=datetime(2026, 1, 15, tzinfo=UTC))
    assert made.report.cleaning.too_old > 200
    assert made.report.begins >= "2026-01-15"
    queries = (made.path / "queries.jsonl").read_text(encoding="utf-8")
    assert '"first": "2026-01-0' not in queries


def test_the_same_import_is_reused_and_another_one_is_refused(log, tiny_dataset, tmp_path, said):
    imported(log, tiny_dataset, tmp_path / "made")
    imported(log, tiny_dataset, tmp_path / "made")
    assert "already made" in said[-1]
    with pytest.raises(ArtifactError, match="level was"):
        imported(log, tiny_dataset, tmp_path / "made", settings=FeedbackSettings(level=0.2))
    with pytest.raises(ArtifactError, match="not made by feedback import"):
        open_feedback(Dataset.from_records(["a"], ["b"], {"0": "0"}, tmp_path / "other").path)


def test_random_clicks_are_not_believed(tiny_dataset, tmp_path):
    path = tmp_path / "log.jsonl"
    simulated = SimulationSettings(impressions=1500, shown=6, wrong_clicks=1.0, variation=1.0)
    report = simulate_log(Dataset.open(tiny_dataset), path, simulated)
    times = (datetime.fromisoformat(report.dev_from), datetime.fromisoformat(report.test_from))
    report = imported((path, *times), tiny_dataset, tmp_path / "made").report
    assert report.splits[0].relevant < report.splits[0].pairs / 50
    assert any("Clicks hardly depend" in one for one in report.warnings)


@pytest.mark.parametrize(
    ("record", "says"),
    [
        ({"shown": ["zz"], "clicked": ["zz"]}, "1 unknown passages.*check --passages"),
        ({"shown": ["p01"], "clicked": []}, "the logs have no click on a passage"),
        ({"shown": ["p01", "p02"], "clicked": ["p01"]}, "no passage is relevant"),
    ],
)
def test_a_log_of_no_use_is_refused_and_leaves_nothing(tiny_dataset, tmp_path, record, says):
    log = tmp_path / "log.jsonl"
    log.write_text(json.dumps({"query": "q", "time": 1} | record))
    with pytest.raises(InputError, match=says):
        import_feedback([log], tiny_dataset, tmp_path / "made")
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("clicked", [("", ""), (",clicked", ",1")])
def test_a_log_of_clicks_alone_says_what_it_lacks(tiny_dataset, tmp_path, clicked):
    log = tmp_path / "log.csv"
    rows = (f"q{n % 5},{n},p0{n % 5}{clicked[1]}\n" for n in range(60))
    log.write_text(f"query,time,passage{clicked[0]}\n" + "".join(rows))
    made = import_feedback([log], tiny_dataset, tmp_path / "made", FeedbackSettings(dev_share=0, test_share=0))
    assert made.report.positions == []
    assert made.report.splits[0].relevant == 5
    assert any("clicks without what was shown" in one for one in made.report.warnings)
    assert any("no sessions" in one for one in made.report.warnings)
    assert any("no test split" in one for one in made.report.warnings)


def test_the_report_is_text_and_a_page(made):
    report = made.report
    text, page = report.to_text(), report.to_html()
    for part in ("Position bias", "Judgements", "Drift", "question = query"):
        assert part in text
        assert part in page
    assert f"{report.positions[1].propensity:.3f}" in text
    assert "<svg" in page


def test_an_empty_log_is_left_out_and_nothing_but_empty_logs_is_refused(log, made, tiny_dataset, tmp_path):
    empty = []
    for name in ("a.jsonl", "b.csv", "c.log"):
        (tmp_path / name).write_text("\n")
        empty.append(tmp_path / name)
    path, dev, test = log
    again = import_feedback([*empty, path], tiny_dataset, tmp_path / "again", dev_from=dev, test_from=test)
    assert files(again.path) == files(made.path)
    with pytest.raises(InputError, match="there is no log to import: give one with events"):
        import_feedback(empty, tiny_dataset, tmp_path / "none")


def test_rows_of_dates_without_sessions_are_warned_of_as_their_lists_cannot_be_told_apart(log, tiny_dataset, tmp_path):
    rows = {name: ["time,query,passage,position,clicked"] for name in ("dates", "times")}
    for one in map(json.loads, lines_of(log)):
        for place, passage in enumerate(one["shown"], 1):
            rest = f'"{one["query"]}",{passage},{place},{passage in one["clicked"]}'
            rows["dates"].append(f"{one['time'][:10]},{rest}")
            rows["times"].append(f"{one['time']},{rest}")
    reports = {}
    for name, lines in rows.items():
        (tmp_path / f"{name}.csv").write_text("\n".join(lines), encoding="utf-8")
        reports[name] = import_feedback([tmp_path / f"{name}.csv"], tiny_dataset, tmp_path / name).report
    assert reports["dates"].cleaning.joined > 1000
    assert "with others of the same question and time to one list" in reports["dates"].to_text()
    assert any("times to the second instead of dates" in sentence for sentence in reports["dates"].warnings)
    assert reports["times"].cleaning.joined == 0
    assert not any("instead of dates" in sentence for sentence in reports["times"].warnings)
