import json
import re
from html import unescape
from types import MappingProxyType

import plotly.graph_objects as go
import pytest

from gnnretrieval.data import Dataset, inspect_dataset
from gnnretrieval.data.inspect import inspect_files
from gnnretrieval.data.inspection_page import page_of, write_page
from gnnretrieval.errors import GnnRetrievalError

EVIL = "</script><script>alert(1)</script><img src=http://example.org/x>"


class Tokens:
    name = "an encoder"
    limits = MappingProxyType({"passage": 11, "query": None})

    def count(self, texts, side):
        import numpy as np

        return np.array([len(text.split()) for text in texts])


@pytest.fixture(scope="module")
def figures(tiny_dataset):
    return inspect_dataset(Dataset.open(tiny_dataset), Tokens())


def plots_on(text: str) -> dict:
    data = re.search(r'<script type="application/json" id="plots">(.*?)</script>', text, re.DOTALL).group(1)
    return json.loads(data)


def seen(text: str) -> str:
    return unescape(re.sub(r"<(script|style)>.*?</\1>", "", text, flags=re.DOTALL))


def test_every_figure_has_its_plot_and_every_plot_its_place(figures):
    text = page_of(figures)
    plots = plots_on(text)
    assert {f"plot-{name}" for name in plots} == set(re.findall(r'class="plot" id="([\w-]+)"', text))
    names = ["words-passage", "words-query", "tokens-passage", "tokens-query", "questions", "judgements"]
    assert list(plots) == names
    assert sum(plots["words-passage"]["data"][0]["y"]) == 40
    assert sum(plots["questions"]["data"][0]["y"]) == 40
    assert [trace["name"] for trace in plots["judgements"]["data"]] == ["train", "dev", "test"]
    for plot in plots.values():
        go.Figure(plot)  # raises ValueError for a setting that plotly does not know
    without = page_of(figures | {"tokens": None})
    assert list(plots_on(without)) == [name for name in names if not name.startswith("tokens")]


def test_the_limit_is_drawn_where_texts_are_cut(figures):
    plots = plots_on(page_of(figures))
    assert [shape["x0"] for shape in plots["tokens-passage"]["layout"]["shapes"]] == [11.5]
    assert "shapes" not in plots["tokens-query"]["layout"]


def test_tables_tiles_warnings_and_problems_can_be_read(figures):
    problem = {"kind": "HTML tag", "severity": "notice", "file": "corpus.jsonl", "count": 1234}
    lines = [{"line": 7, "says": "a tag."}, {"line": None, "says": "of the file."}]
    page = seen(page_of(figures | {"problems": [problem | {"lines": lines}], "warnings": ["Do & change."]}))
    for text in ("Do & change.", "corpus.jsonl:7", "a tag.", "of the file.", "1,234", "HTML tag"):
        assert text in page
    for leak in figures["leakage"]:
        assert f"{leak['split']} of {leak['of']}" in page
    assert "No warnings." in seen(page_of(figures | {"warnings": []}))
    assert f"{figures['tokens']['passages']['share_cut']:.1%}" in page


def test_a_directory_that_cannot_be_opened_has_a_page_of_its_problems(tmp_path):
    (tmp_path / "corpus.jsonl").write_text("{\n")
    text = page_of(inspect_files(tmp_path))
    assert plots_on(text) == {}
    page = seen(text)
    assert "cannot be opened" in page
    assert "corpus.jsonl:1" in page
    assert "not JSON" in page


def test_it_loads_nothing_and_follows_the_reader_s_scheme(figures):
    text = page_of(figures)
    outside = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert not re.search(r"(src|href|srcset)\s*=|@import|url\(|https?://", outside)
    assert "default-src 'none'" in outside
    assert "prefers-color-scheme: dark" in outside


def test_texts_are_shown_as_they_are_and_never_run(figures):
    example = {"similarity": 0.9, "pair": [{"id": EVIL, "text": EVIL}, {"id": "b", "text": "b"}]}
    near = figures["near_duplicates"] | {"queries": figures["near_duplicates"]["queries"] | {"examples": [example]}}
    splits = {EVIL: figures["splits"]["train"]}
    text = page_of(figures | {"name": EVIL, "near_duplicates": near, "splits": splits})
    assert EVIL not in text
    assert EVIL in seen(text)
    assert text.count("<script") == page_of(figures).count("<script")
    assert plots_on(text)["judgements"]["data"][0]["name"] == EVIL


def test_a_place_that_cannot_take_it_is_a_sentence(figures, tmp_path):
    write_page(figures, tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    with pytest.raises(GnnRetrievalError, match="cannot be written"):
        write_page(figures, tmp_path)
