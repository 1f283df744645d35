"""No page breaks a rule of WCAG A or AA that axe can check, on a screen and on a phone, dark and light."""

import shutil

import pytest
from accessibility import require_no_breach
from chromium import TIMEOUT, browser, served

from gnnretrieval import Retriever
from gnnretrieval.data import Dataset
from gnnretrieval.recipes import run_recipe, write_report
from gnnretrieval.serve.view_page import write_view

__all__ = ["browser"]
FOCUSED = """(here => [
    here.id || here.getAttribute('class') || here.tagName,
    getComputedStyle(here).outlineStyle !== 'none' || here.matches('.dot'),  // a dot's shape gets a wide line
])(document.activeElement)"""


@pytest.fixture(scope="module")
def address(tiny_run):
    with served(Retriever.open(tiny_run)) as found:
        yield found


@pytest.fixture(
    params=[("light", 1280), ("dark", 390), ("dark", 1280), ("light", 390)], ids=lambda one: f"{one[0]}-{one[1]}"
)
def page(browser, request):
    scheme, width = request.param
    size = {"width": width, "height": 800 if width > 500 else 844}
    page = browser.new_page(viewport=size, color_scheme=scheme, reduced_motion="reduce")
    page.set_default_timeout(TIMEOUT)
    yield page
    page.close()


def test_the_explorer(page, address, tiny_dataset):
    page.goto(address)
    page.wait_for_selector("#tiles div")
    require_no_breach(page)
    page.fill("#question", next(iter(Dataset.open(tiny_dataset).queries_of("test"))).text)
    page.keyboard.press("Enter")
    page.click("#after .hit >> nth=0")
    page.wait_for_selector(".picture svg")
    require_no_breach(page)
    page.click(".tick >> nth=0")
    page.wait_for_selector("#system:has-text('What if')")
    require_no_breach(page)


def test_the_map_and_the_api_s_page(page, address):
    page.goto(address + "map")
    page.wait_for_selector("#list .item")
    require_no_breach(page)
    page.goto(address + "docs")
    page.wait_for_selector("section >> nth=8")
    require_no_breach(page)


@pytest.fixture(scope="module")
def report(tiny_run, tmp_path_factory):
    place = shutil.copytree(tiny_run.parent, tmp_path_factory.mktemp("report") / "recipe")
    return write_report(run_recipe(place / "tiny.toml")).as_uri()


def test_a_node_s_file_and_a_run_s_report(page, retriever, report, tmp_path):
    write_view(retriever.neighborhood("p03"), tmp_path / "p03.html")
    page.goto((tmp_path / "p03.html").as_uri())
    page.wait_for_selector(".picture svg")
    require_no_breach(page)
    page.goto(report)
    page.wait_for_selector("h1")
    require_no_breach(page)


def test_the_keyboard_reaches_everything_visibly_and_nothing_moves(page, address, tiny_dataset):
    page.goto(address + "#passage=p03&q=" + next(iter(Dataset.open(tiny_dataset).queries_of("test"))).text)
    page.wait_for_selector(".picture svg")
    assert page.evaluate("getComputedStyle(document.querySelector('.busy'), '::after').animationName") == "none"
    reached = []
    for _ in range(80):
        page.keyboard.press("Tab")
        name, is_shown = page.evaluate(FOCUSED)
        if name == "BODY":
            break
        assert is_shown, name
        reached.append(name)
    assert {"question", "what-if-question", "what-if-scale", "tick", "item lit"} <= set(reached)
    assert reached.count("hit card") == 20
    assert len(reached) < 80  # it comes out at the end: no trap
