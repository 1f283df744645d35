import json
import re
from html.parser import HTMLParser

import pytest

from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.graph import inspect_graph
from gnnretrieval.graph.inspection_page import page_of, write_page
from gnnretrieval.page import require_page_place

EVIL = "</script><script>alert(1)</script><img src=http://example.org/x> & \"quoted\" 'text'"


class Page(HTMLParser):
    """Collects elements, scripts and the text that a reader sees."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.seen = ""
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        self._inside = ""

    def handle_data(self, data):
        if self._inside == "script":
            self.scripts[-1] += data
        elif self._inside != "style":
            self.seen += data


@pytest.fixture(scope="module")
def page(tiny_graph):
    return Page(page_of(inspect_graph(tiny_graph), "tiny"))


def test_the_page_loads_nothing_and_forbids_loading(page):
    loading = [(tag, attributes) for tag, attributes in page.elements if {"src", "href", "srcset"} & attributes.keys()]
    assert loading == []
    assert {"link", "iframe", "object", "embed", "base"}.isdisjoint(tag for tag, _ in page.elements)
    (policy,) = (a["content"] for _, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")
    assert "http" not in policy
    assert "http" not in page.seen


def test_plotly_s_script_is_in_it_once(page):
    plotly, _, drawing = page.scripts
    assert len(plotly) > 2**20
    assert "Plotly.react" in drawing
    assert "@import" not in drawing


def test_every_plot_has_its_place_and_its_data(page, tiny_graph):
    plots = json.loads(page.scripts[1])
    places = {attributes["id"] for tag, attributes in page.elements if attributes.get("class") == "plot"}
    assert places == {f"plot-{name}" for name in ("degrees", "recall", "agreement", "scores", "disk")}
    assert {f"plot-{name}" for name in plots} == places
    figures = inspect_graph(tiny_graph)
    assert plots["recall"]["data"][0]["y"] == list(figures["labelled_passage_among_neighbours"].values())
    assert sum(plots["degrees"]["data"][0]["y"]) == 40
    assert plots["degrees"]["layout"]["yaxis"]["type"] == "log"
    assert [trace["name"] for trace in plots["scores"]["data"]] == ["rank 1", "rank 2", "rank 5"]
    assert sorted(plots["disk"]["data"][0]["y"]) == sorted(figures["files"])


def test_warnings_and_tables_are_on_the_page(tiny_graph):
    figures = inspect_graph(tiny_graph) | {"warnings": ["Something is wrong & must change."]}
    page = Page(page_of(figures, "tiny"))
    assert "Something is wrong & must change." in page.seen
    for passage in figures["most_found"]:
        assert passage["id"] in page.seen
    assert all(row["id"] in page.seen for row in figures["agreement"]["disagreeing"])
    assert "No warnings." in Page(page_of(figures | {"warnings": []}, "tiny")).seen


def test_texts_are_shown_as_they_are_and_never_run(hand_made):
    queries = [[1, 0], [1, 0.01], [0, 1], [0, 1.0]]
    store = hand_made(
        [[0, 1]] * 4,
        passages=[[1, 0], [0.99, 0]],
        queries=queries,
        labels=[(0, 0), (2, 0)],
        passage_texts=[EVIL] * 2,
        query_texts=[EVIL] * 4,
    )
    page = Page(page_of(inspect_graph(store), EVIL))
    assert EVIL in page.seen
    assert len(page.scripts) == 3
    assert "img" not in {tag for tag, _ in page.elements}
    assert not re.search(r"</script", page.scripts[1], re.IGNORECASE)


def test_a_name_in_a_plot_cannot_end_its_script(tiny_graph):
    page = Page(page_of(inspect_graph(tiny_graph) | {"files": {EVIL: 1}}, "tiny"))
    assert len(page.scripts) == 3
    assert json.loads(page.scripts[1])["disk"]["data"][0]["y"] == [EVIL]


def test_it_follows_the_reader_s_scheme(tiny_graph):
    assert "prefers-color-scheme: dark" in page_of(inspect_graph(tiny_graph), "tiny")


def test_a_place_that_cannot_take_it_is_refused_before_any_work(tmp_path, tiny_graph):
    with pytest.raises(GnnRetrievalError, match="is a directory"):
        require_page_place(tmp_path)
    with pytest.raises(GnnRetrievalError, match="there is no directory"):
        require_page_place(tmp_path / "none" / "page.html")
    require_page_place(tmp_path / "page.html")
    write_page(inspect_graph(tiny_graph), tmp_path / "page.html", "tiny")
    assert (tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    with pytest.raises(GnnRetrievalError, match="cannot be written"):
        write_page(inspect_graph(tiny_graph), tmp_path, "tiny")
