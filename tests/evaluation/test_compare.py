import csv
import io
import json

import pytest

from gnnretrieval.data.records import ScoredPassage
from gnnretrieval.errors import InputError
from gnnretrieval.evaluation import (
    Comparison,
    bootstrap_interval,
    compare,
    csv_comparison,
    detailed_comparison,
    effect_size,
    format_comparison,
    holm,
    latex_comparison,
    markdown_comparison,
    most_changed,
    paired_test,
    per_query,
)
from gnnretrieval.storage.provenance import write_json

QUERIES = [f"q{n}" for n in range(20)]
QRELS = {query: {"gold": 1} for query in QUERIES}
MEASURES = ["RR@10", "nDCG@10", "R@1"]
PROVENANCE = {"dataset": "53aa51", "seed": 7}


def ranking(position):
    """A ranking with the relevant passage at ``position``, from 1."""
    names = [f"d{n}" for n in range(10)]
    names.insert(position - 1, "gold")
    return [ScoredPassage(name, -float(n)) for n, name in enumerate(names)]


RUNS = {
    "bm25": {query: ranking(1 + n % 5) for n, query in enumerate(QUERIES)},
    "dual-encoder": {query: ranking(1 + n % 3) for n, query in enumerate(QUERIES)},
    "gnn-encoder": {query: ranking(1 + (n % 10 == 9)) for n, query in enumerate(QUERIES)},
}


@pytest.fixture(scope="module")
def comparison():
    return compare(QRELS, RUNS, "dual-encoder", MEASURES, "test", PROVENANCE)


def test_the_json_has_exactly_the_agreed_form(comparison):
    value = json.loads(json.dumps(comparison.as_json()))
    assert value.keys() == {"split", "baseline", "queries", "systems", "tests", "intervals", "provenance"}
    assert (value["split"], value["baseline"], value["queries"]) == ("test", "dual-encoder", 20)
    assert value["provenance"] == PROVENANCE
    assert [system["name"] for system in value["systems"]] == ["bm25", "dual-encoder", "gnn-encoder"]
    assert [(test["system"], test["measure"]) for test in value["tests"]] == [
        (system, measure) for system in ("bm25", "gnn-encoder") for measure in MEASURES
    ]
    for system in value["systems"]:
        assert system.keys() == {"name", "measures"}
        assert list(system["measures"]) == list(value["intervals"][system["name"]]) == MEASURES
    for test in value["tests"]:
        assert test.keys() == {
            *("system", "measure", "difference", "p", "p_holm", "wins", "ties", "losses"),
            *("interval", "effect_size", "p_randomisation", "p_randomisation_holm"),
        }


def test_means_differences_and_tests_are_those_of_the_values(comparison):
    means = {system.name: system.measures for system in comparison.systems}
    assert means["gnn-encoder"]["RR@10"] == pytest.approx((18 * 1 + 2 * 0.5) / 20)
    assert means["dual-encoder"]["R@1"] == pytest.approx(7 / 20)
    values = {name: per_query(QRELS, run, MEASURES) for name, run in RUNS.items()}
    for test in comparison.tests:
        expected = paired_test(values[test.system][test.measure], values["dual-encoder"][test.measure])
        assert test.p == expected.p
        assert test.difference == pytest.approx(means[test.system][test.measure] - means["dual-encoder"][test.measure])
        assert test.wins + test.ties + test.losses == 20
    assert [test.p_holm for test in comparison.tests] == holm([test.p for test in comparison.tests])


def test_a_comparison_is_read_back_from_its_file(comparison, tmp_path):
    path = tmp_path / "comparison.json"
    write_json(path, comparison.as_json())
    read = Comparison.from_json(json.loads(path.read_text()), path)
    assert read == comparison
    assert format_comparison(read) == format_comparison(comparison)


def test_keys_that_are_not_known_are_kept_and_missing_ones_are_an_error(comparison):
    value = comparison.as_json()
    assert Comparison.from_json({**value, "note": "x"}).as_json()["note"] == "x"
    del value["systems"][0]["name"]
    with pytest.raises(InputError, match=r"comparison.json: systems.0.name"):
        Comparison.from_json(value, "comparison.json")
    with pytest.raises(InputError, match="'bm42' is not among the systems"):
        Comparison.from_json({**comparison.as_json(), "baseline": "bm42"})


def test_without_the_optional_counts_the_agreed_form_is_enough():
    value = {
        "split": "test",
        "baseline": "bm25",
        "systems": [{"name": "bm25", "measures": {"RR@10": 0.2}}, {"name": "gnn", "measures": {"RR@10": 0.3}}],
        "tests": [{"system": "gnn", "measure": "RR@10", "difference": 0.1, "p": 0.02, "p_holm": 0.02}],
        "provenance": {},
    }
    assert "30.0*†" in format_comparison(Comparison.from_json(value))


def test_the_table_reads_as_in_a_paper(comparison):
    # bm25's RR@10: a fifth each of 1, 1/2, 1/3, 1/4, 1/5. On q5, q10 and q11 alone it is above the dual-encoder.
    assert format_comparison(comparison).splitlines() == [
        "test: 20 queries, measures × 100",
        "",
        "              RR@10    nDCG@10     R@1    Δ RR@10   W/T/L",
        "---------------------------------------------------------",
        "bm25           45.7       59.0    20.0      -16.8  3/6/11",
        "dual-encoder   62.5       72.1    35.0          –       –",
        "gnn-encoder    95.0*‡     96.3*‡  90.0*‡    +32.5  12/7/1",
        "",
        "* highest of its column.",
        "† p < 0.05, ‡ p < 0.01: differs from dual-encoder, two-sided paired t-test,"
        " Holm's correction over the 6 tests here.",
        "Δ and W/T/L (queries won, tied, lost): RR@10 against dual-encoder.",
    ]


def test_markdown_is_the_same_table(comparison):
    lines = markdown_comparison(comparison).splitlines()
    assert lines[2:7] == [
        "|  | RR@10 | nDCG@10 | R@1 | Δ RR@10 | W/T/L |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        "| bm25 | 45.7 | 59.0 | 20.0 | -16.8 | 3/6/11 |",
        "| dual-encoder | 62.5 | 72.1 | 35.0 | – | – |",
        "| gnn-encoder | **95.0**‡ | **96.3**‡ | **90.0**‡ | +32.5 | 12/7/1 |",
    ]


def test_the_highest_of_each_column_is_marked_also_when_shared():
    runs = {"a": {"q0": ranking(1)}, "b": {"q0": ranking(1)}, "c": {"q0": ranking(2)}}
    table = format_comparison(compare({"q0": {"gold": 1}}, runs, "c", ["RR@10"], "test", {}))
    assert table.count("100.0*") == 2
    assert "50.0*" not in table


def test_a_single_system_is_a_table_without_tests():
    comparison = compare(QRELS, {"bm25": RUNS["bm25"]}, "bm25", ["RR@10"], "dev", {})
    assert comparison.tests == []
    assert format_comparison(comparison).splitlines()[-1] == "bm25   45.7"
    assert "Δ" not in markdown_comparison(comparison)


def test_a_significantly_lower_system_is_marked_too_and_named_as_a_difference():
    runs = {"good": {query: ranking(1) for query in QUERIES}, "bad": RUNS["bm25"]}
    table = format_comparison(compare(QRELS, runs, "good", ["RR@10"], "test", {}))
    assert "45.7 ‡" in table
    assert "differs from good" in table
    assert "0/4/16" in table


def test_a_system_name_with_a_bar_does_not_break_the_markdown():
    comparison = compare(QRELS, {"a|b": RUNS["bm25"]}, "a|b", ["RR@10"], "dev", {})
    assert "| a\\|b | 45.7 |" in markdown_comparison(comparison)


def test_errors_name_the_system():
    with pytest.raises(InputError, match=r"baseline 'bm52' is not among the runs \(bm25, .*\). Did you mean 'bm25'"):
        compare(QRELS, RUNS, "bm52", MEASURES, "test", {})
    with pytest.raises(InputError, match="system 'other': the run has no query in common with the qrels"):
        compare(QRELS, {**RUNS, "other": {"x1": ranking(1)}}, "bm25", MEASURES, "test", {})
    with pytest.raises(InputError, match="Did you mean 'nDCG'"):
        compare(QRELS, RUNS, "bm25", ["nDGC@10"], "test", {})


def test_intervals_effect_sizes_and_randomisation_are_those_of_the_values():
    table = compare(QRELS, RUNS, "dual-encoder", MEASURES, "test", PROVENANCE, randomisation=True)
    values = {name: per_query(QRELS, run, MEASURES) for name, run in RUNS.items()}
    for system in table.systems:
        for measure in MEASURES:
            low, high = table.intervals[system.name][measure]
            assert (low, high) == bootstrap_interval(list(values[system.name][measure].values()))
            assert low <= system.measures[measure] <= high
    ps = []
    for test in table.tests:
        before = values["dual-encoder"][test.measure]
        differences = [value - before[query] for query, value in values[test.system][test.measure].items()]
        assert test.interval == bootstrap_interval(differences)
        assert test.effect_size == effect_size(differences)
        ps.append(paired_test(values[test.system][test.measure], before, "randomisation").p)
        assert test.p_randomisation == ps[-1]
    assert [test.p_randomisation_holm for test in table.tests] == holm(ps)
    lines = detailed_comparison(table).splitlines()
    assert lines[2].split()[-3:] == ["(randomisation)", "its", "Holm"]
    assert len(lines) == 3 + len(table.tests)


def test_a_table_for_a_paper(comparison):
    lines = latex_comparison(comparison).splitlines()
    assert lines[0].startswith(r"\begin{tabular}{lr")
    assert any(line.startswith("gnn-encoder & ") and r"\textbf{" in line for line in lines)
    renamed = comparison.model_copy(
        update={
            "baseline": "a_b%",
            "systems": [s.model_copy(update={"name": "a_b%"}) for s in comparison.systems[1:2]]
            + comparison.systems[2:],
            "tests": [],
        }
    )
    assert r"a\_b\% & " in latex_comparison(renamed)


def test_every_figure_is_in_the_csv(comparison):
    rows = list(csv.DictReader(io.StringIO(csv_comparison(comparison))))
    assert len(rows) == 3 * len(MEASURES)
    for row in rows:
        test = comparison.test(row["system"], row["measure"])
        mean = next(system.measures[row["measure"]] for system in comparison.systems if system.name == row["system"])
        assert float(row["mean"]) == mean
        if test is None:
            assert (row["system"], row["p"]) == ("dual-encoder", "")
        else:
            assert (float(row["difference"]), float(row["p_holm"])) == (test.difference, test.p_holm)
            assert (float(row["low"]), float(row["high"])) == test.interval


def test_the_questions_that_changed_most():
    after = {"a": 1.0, "b": 0.0, "c": 0.5, "d": 0.5, "e": 0.2}
    before = {"a": 0.5, "b": 1.0, "c": 0.0, "d": 0.5, "e": 0.3}
    helped, hurt = most_changed(after, before, 2)
    assert [change.query for change in helped] == ["a", "c"]
    assert [(change.query, change.before, change.after) for change in hurt] == [("b", 1.0, 0.0), ("e", 0.3, 0.2)]
    assert most_changed(before, before, 3) == ([], [])
