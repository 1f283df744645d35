"""The explorer's panel of the last update, in a real browser."""

import pytest

from gnnretrieval import Retriever
from gnnretrieval.nightly.moved import read_moved
from tests.accessibility import require_no_breach
from tests.chromium import TIMEOUT, browser, served

__all__ = ["browser"]


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_the_last_update_is_on_the_first_page_and_its_questions_can_be_asked(browser, two_nights, width, scheme):
    search, report = two_nights
    with served(Retriever.open(search.run.path)) as address:
        page = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme)
        page.set_default_timeout(TIMEOUT)
        page.goto(address)
        page.wait_for_selector("#update table")
        text = page.inner_text("#update")
        assert "Last update: version 2" in text
        assert report.decision() in text
        assert f"+{100 * report.gate.gain:.1f}" in text
        assert page.locator("#update tbody tr").count() == 1 + sum(one.questions > 0 for one in report.gate.slices)
        assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")
        require_no_breach(page)
        first = read_moved(search.run.place(2))[0].question
        page.click("#update button >> nth=0")
        page.wait_for_selector("#after .hit")
        assert page.input_value("#question") == first
        page.close()


def test_of_an_index_that_no_update_made_there_is_no_panel(browser, tiny_run):
    with served(Retriever.open(tiny_run)) as address:
        page = browser.new_page()
        page.set_default_timeout(TIMEOUT)
        page.goto(address)
        page.wait_for_selector("#tiles div")
        assert page.locator("#update").is_hidden()
        page.close()
