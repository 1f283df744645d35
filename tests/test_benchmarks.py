"""What the benchmark of the GNN-encoder plans, and that its pages say what their JSON files have."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"
PAGES = sorted((BENCHMARKS / "results").glob("gnn_encoder-*.json"))


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The benchmarks import each other as a script's neighbours."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))


@pytest.fixture
def benchmark(scripts: None) -> ModuleType:
    import gnn_encoder

    return gnn_encoder


def test_no_masking_trains_for_as_many_steps(benchmark: ModuleType) -> None:
    of_set = {"train": {"epochs": 20, "mask_ratio": 0.2}}
    without = benchmark.train_settings(of_set, benchmark.PLAN["variants"]["without-masking"], 3)
    assert (without.mask_unit, without.epochs, without.seed) == ("none", 4, 3)
    assert benchmark.train_settings(of_set, {}, 3).epochs == 20
    assert benchmark.train_settings(of_set, {"train": {"epochs": 7}}, 3).epochs == 7


def test_every_set_names_variants_that_there_are(benchmark: ModuleType) -> None:
    known = {*benchmark.PLAN["variants"], *benchmark.PLAN["sweeps"]}
    for its in benchmark.PLAN["sets"].values():
        assert set(benchmark.planned(its["variants"])) <= known
    assert "joint" not in benchmark.planned("all")
    assert "mask_ratio" in benchmark.planned("all")


def test_every_variant_s_settings_are_settings(benchmark: ModuleType) -> None:
    for its in benchmark.PLAN["variants"].values():
        benchmark.train_settings({}, its, 0)
        teacher = {"cross_encoder": "its cross-encoder"} if its.get("cross_encoder") else {}
        benchmark.GraphSettings.parse({**its.get("graph", {}), **teacher})


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_says_what_its_json_file_has(path: Path, scripts: None) -> None:
    import gnn_encoder_page

    page = gnn_encoder_page.markdown(path.stem.removeprefix("gnn_encoder-"), json.loads(path.read_text("utf-8")))
    assert path.with_suffix(".md").read_text("utf-8") == page


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_table_s_differences_are_of_its_means(path: Path) -> None:
    result = json.loads(path.read_text("utf-8"))
    systems = {one["name"]: one["measures"]["RR@10"] for one in result["baselines"]["systems"]}
    for row in result["variants"].values():
        found = row["measures"]["RR@10"]
        assert found["mean"] - systems["dual-encoder"] == pytest.approx(found["difference"])
        assert found["worst_difference"] <= found["difference"] + 1e-6


def test_there_are_pages() -> None:
    assert len(PAGES) > 5


def test_the_gains_of_graph_attention_are_the_pages() -> None:
    text = (BENCHMARKS / "graph_attention.md").read_text("utf-8")
    rows = re.findall(r"^\| \[[^|]*/(gnn_encoder-[\w-]+)\.md\).* ([\d.]+) → ([\d.]+) \(([+-][\d.]+)\) \|$", text, re.M)
    assert len(rows) > 4
    for page, before, after, gain in rows:
        result = json.loads((BENCHMARKS / "results" / f"{page}.json").read_text("utf-8"))
        found = result["variants"]["gnn-encoder"]["measures"]["RR@10"]
        figures = (found["mean"] - found["difference"], found["mean"], found["difference"])
        assert (before, after, gain) == tuple(
            f"{100 * figure:{sign}.1f}" for figure, sign in zip(figures, ("", "", "+"), strict=True)
        )


def script_of(figures: Path) -> str | None:
    """The module that makes the page beside these figures from them alone."""
    name = figures.stem.removesuffix("-e5")
    for script in (BENCHMARKS / f"{name}_page.py", BENCHMARKS / f"{name}.py"):
        if script.is_file() and "def markdown(results" in script.read_text("utf-8"):
            return script.stem
    return None


WITH_PAGES = sorted(path.stem for path in (BENCHMARKS / "results").glob("*.json") if script_of(path))


@pytest.mark.parametrize("name", WITH_PAGES)
def test_another_page_says_what_its_json_file_has(name: str, scripts: None) -> None:
    path = BENCHMARKS / "results" / f"{name}.json"
    try:
        script = import_module(str(script_of(path)))
    except ModuleNotFoundError as error:
        if error.name != "playwright":  # of the extra browser
            raise
        pytest.skip(f"this benchmark wants {error.name}")
    page = script.markdown(json.loads(path.read_text("utf-8")))
    assert path.with_suffix(".md").read_text("utf-8") == page


@pytest.mark.parametrize(("name", "tables"), [("gnn-encoder", 6), ("rocketqa", 7), ("pair", 5), ("dcsr", 8)])
def test_a_paper_s_page_is_of_the_result_files_and_has_every_table(name: str, tables: int, scripts: None) -> None:
    import papers

    page = (BENCHMARKS / "papers" / f"{name}.md").read_text("utf-8")
    assert page == papers.markdown(name)
    sections = re.findall(r"^## Table (\d+):", page, re.M)
    assert sorted(map(int, sections)) == list(range(1, tables + 1))


def test_a_finding_of_a_paper_is_judged_by_sign_and_significance(scripts: None) -> None:
    import papers_rows as rows

    def judged(first: float, second: float, gain: float, p: float | None) -> str:
        return rows.Claim("", (first, second), "R@5", gain, p).verdict

    assert judged(74.9, 73.6, 0.01, 0.04) == rows.HOLDS
    assert judged(74.9, 73.6, 0.01, 0.06) == rows.EQUAL
    assert judged(74.9, 73.6, -0.01, 0.04) == rows.REVERSED
    assert judged(26.0, 33.3, 0.01, 0.04) == rows.REVERSED  # the paper's second is better
    assert judged(26.0, 33.3, -0.01, 0.04) == rows.HOLDS
    assert judged(74.9, 73.6, 0.01, None) == rows.UNTESTED


@pytest.mark.parametrize(("number", "page"), [(1, "same_labels"), (2, "same_labels-debian")])
def test_the_tables_in_readme_are_the_pages(number: int, page: str) -> None:
    text = (BENCHMARKS.parent / "README.md").read_text("utf-8")
    sets = json.loads((BENCHMARKS / "results" / f"{page}.json").read_text("utf-8"))["sets"]
    lines = text.split("| RR@10 × 100 |")[number].split("\n\n")[0].splitlines()
    table = [line.strip("| ").split(" | ") for line in lines]
    head, rows = table[0], {row[0].strip("*"): row[1:] for row in table[2:]}
    assert head == list(sets)
    assert {"strongest dense baseline", "gnn-encoder", "gnn-encoder-one-vector", "best with the graph"} <= set(rows)
    for label, row in rows.items():
        for its, shown in zip(sets.values(), row, strict=True):
            name = its["strongest"] if label == "strongest dense baseline" else label
            assert shown.strip("*") == f"{100 * its['groups']['all']['RR@10'][name]:.1f}", (label, name)


@pytest.mark.parametrize("name", ["squad-open-by-passage", "fairytaleqa"])
def test_the_gains_in_the_faq_are_the_page_s(name: str) -> None:
    text = (BENCHMARKS.parent / "docs" / "faq.md").read_text("utf-8")
    one = json.loads((BENCHMARKS / "results" / "same_labels.json").read_text("utf-8"))["sets"][name]
    values = one["groups"]["all"]["RR@10"]
    gain = f"{100 * (values['gnn-encoder'] - values[one['strongest']]):.1f}"
    assert f" {gain} " in text.split("**What about passages without any question?**")[1].split("**")[0]
