import json
import re

import pytest

from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.index.neighborhood import describe
from gnnretrieval.serve.view_page import view_page, write_view

EVIL = '</script><script>alert(1)</script>$style & "quoted"'


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])


def test_it_holds_the_node_its_neighbours_and_theirs(tiny_graph):
    described = describe(tiny_graph, "p03", hops=2)
    assert data_of(view_page(described)) == described


def test_a_text_cannot_end_the_script_it_stands_in(tiny_graph):
    described = describe(tiny_graph, "p03", hops=2)
    described["node"] |= {"id": EVIL, "text": EVIL}
    page = view_page(described)
    assert data_of(page)["node"]["text"] == EVIL
    assert page.count("<script") == 2
    assert "&lt;/script&gt;" in page


def test_it_loads_nothing_and_forbids_loading(tiny_graph):
    page = view_page(describe(tiny_graph, "p03", hops=2)).replace("http://www.w3.org/2000/svg", "")
    assert "default-src 'none'" in page
    assert "src=" not in page
    assert "http" not in page.replace("http-equiv", "")


def test_a_place_that_cannot_be_written_is_a_sentence(tiny_graph, tmp_path):
    with pytest.raises(GnnRetrievalError, match="the page cannot be written here"):
        write_view(describe(tiny_graph, "p03"), tmp_path / "missing" / "p03.html")
