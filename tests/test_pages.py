import pytest

from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.pages.html import (
    Figure,
    Html,
    element,
    escape,
    facts,
    figures,
    folded,
    join,
    page,
    paragraph,
    require_page_place,
    section,
    short,
    source,
    table,
    tiles,
    warnings,
    write_page,
)
from tests.html_page import EVIL, assert_opens_offline


def test_every_part_escapes_what_is_no_html_and_nothing_twice():
    plot = Html('<svg role="img" aria-label="a plot"></svg>')
    whole = page(
        EVIL,
        EVIL,
        section(EVIL, paragraph(EVIL), table((EVIL, EVIL), [(EVIL, EVIL)], name=EVIL)),
        figures([Figure(EVIL, EVIL, plot, source("a file"))]),
        tiles([(EVIL, EVIL)]),
        facts({EVIL: EVIL}),
        warnings([EVIL]),
        folded(EVIL, element("p", EVIL, title=EVIL)),
        inputs=EVIL,
    )
    seen = assert_opens_offline(whole)
    assert seen.seen.count(EVIL) == 18
    assert seen.attributes("title") == [EVIL]
    assert "&amp;amp;" not in whole
    assert escape(escape("<b>")) == "&lt;b&gt;"
    assert join(["<", Html("<br>")], "&") == "&lt;&amp;<br>"


def test_a_file_s_name_is_a_link_where_the_page_lies_beside_it():
    assert source("a b/c#d.json") == (
        '<p class="source">From <a href="a%20b/c%23d.json"><code>a b/c#d.json</code></a></p>'
    )
    assert source("one", "two", linked=False) == '<p class="source">From <code>one</code>, <code>two</code></p>'


def test_a_table_heads_its_columns_and_rows_and_one_without_rows_is_a_line():
    made = table(("name", "value"), [("one", 1)], numbers=[1])
    assert '<th scope="col">name</th><th class="number" scope="col">value</th>' in made
    assert '<th scope="row">one</th><td class="number">1</td>' in made
    assert table(("name",), []) == "<p>None.</p>"


def test_a_long_text_is_cut_to_one_line():
    assert short("one\n two") == "one two"
    assert short("x" * 300, 10) == "xxxxxxxxx…"


def test_a_place_that_cannot_take_a_page_is_refused(tmp_path):
    with pytest.raises(GnnRetrievalError, match="is a directory"):
        require_page_place(tmp_path)
    with pytest.raises(GnnRetrievalError, match="there is no directory"):
        require_page_place(tmp_path / "none" / "page.html")
    require_page_place(tmp_path / "page.html")
    write_page(page("title", "summary"), tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    (tmp_path / "directory").mkdir()
    with pytest.raises(GnnRetrievalError, match="cannot be written"):
        write_page("page", tmp_path / "directory")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
