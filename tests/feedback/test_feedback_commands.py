import json
from inspect import signature

import pytest
from click.testing import CliRunner

from gnnretrieval.cli import cli
from gnnretrieval.data import Dataset
from gnnretrieval.mining import open_examples

# Before 8.2, click mixes standard error into standard output unless it is told not to.
APART = {"mix_stderr": False} if "mix_stderr" in signature(CliRunner).parameters else {}


def run(*words):
    done = CliRunner(**APART).invoke(cli, ["feedback", *map(str, words)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done


@pytest.fixture(scope="module")
def log(tiny_dataset, tmp_path_factory):
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    done = run("simulate", tiny_dataset, "--out", path, "--impressions", 1000, "--shown", 6, "--variation", 1, "--json")
    return path, json.loads(done.stdout)


def test_a_simulated_log_is_imported_with_page_json_and_hard_negatives(log, tiny_dataset, tmp_path):
    path, truth = log
    splits = ["--dev-from", truth["dev_from"], "--test-from", truth["test_from"]]
    outputs = ["--html", tmp_path / "page.html", "--hard-negatives", tmp_path / "negatives", "--json"]
    done = run("import", path, "--passages", tiny_dataset, "--out", tmp_path / "made", *splits, *outputs)
    report = json.loads(done.stdout)
    assert report["cleaning"]["events"] == truth["impressions"]
    assert [one["split"] for one in report["splits"]] == Dataset.open(tmp_path / "made").splits
    assert "Position bias" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert open_examples(tmp_path / "negatives").report.kind == "feedback"
    assert done.stderr.endswith(f"then gnnretrieval encoder encode {tmp_path / 'made'}\n")


def test_a_simulation_does_not_replace_a_log_that_is_there_unless_it_is_told_to(tiny_dataset, tmp_path):
    real = tmp_path / "log.jsonl"  # the default place beside a dataset
    real.write_text("people's clicks\n")
    words = ("simulate", tiny_dataset, "--out", real, "--impressions", 100)
    failed = CliRunner().invoke(cli, ["feedback", *map(str, words)])
    assert "this file exists. Give another --out, or replace it by --overwrite" in str(failed.exception)
    assert real.read_text() == "people's clicks\n"
    run(*words, "--overwrite")
    assert len(real.read_text(encoding="utf-8").splitlines()) == 100


def test_the_report_is_printed_and_columns_can_be_given(log, tiny_dataset, tmp_path):
    records = [json.loads(line) for line in log[0].read_text(encoding="utf-8").splitlines()]
    renamed = tmp_path / "renamed.jsonl"
    renamed.write_text(
        "\n".join(json.dumps({"eingabe" if k == "query" else k: v for k, v in one.items()}) for one in records)
    )
    words = ("import", renamed, "--passages", tiny_dataset, "--out", tmp_path / "made")
    failed = CliRunner().invoke(cli, ["feedback", *map(str, words)])
    assert "--column question=NAME" in str(failed.exception)
    assert "question = eingabe" in run(*words, "--column", "question=eingabe").stdout


def test_only_the_newest_days_are_kept(log, tiny_dataset, tmp_path):
    words = ["import", log[0], "--passages", tiny_dataset, "--out", tmp_path / "made", "--keep-days", 36500, "--json"]
    assert json.loads(run(*words).stdout)["cleaning"]["too_old"] == 0
    words[-2] = 1  # the log ends in January 2026
    failed = CliRunner().invoke(cli, ["feedback", *map(str, words), "--overwrite"])
    assert "1,000 too old" in str(failed.exception)


def test_a_date_that_is_none_is_a_usage_error(log, tiny_dataset, tmp_path):
    words = ["feedback", "import", str(log[0]), "--passages", str(tiny_dataset), "--out", str(tmp_path / "made")]
    done = CliRunner().invoke(cli, [*words, "--dev-from", "monday"])
    assert done.exit_code == 2
    assert "write a date such as 2026-03-01" in done.output


def test_a_query_may_begin_with_a_byte_order_mark(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr("gnnretrieval.feedback.fetch_events", lambda query, *_: asked.append(query) or 1, raising=False)
    (tmp_path / "clicks.sql").write_text("SELECT 1", encoding="utf-8-sig")
    run("fetch", tmp_path / "clicks.sql")
    assert asked == ["SELECT 1"]
