"""Thumbs in the explorer, in a real browser: pressed, taken back, and kept while the tab is open."""

import json

import pytest
from accessibility import require_no_breach
from chromium import TIMEOUT, browser, served

from gnnretrieval.data import Dataset
from gnnretrieval.feedback import thumb_log

__all__ = ["browser"]
TOKEN = "0123456789abcdef"


@pytest.fixture(scope="module")
def question(tiny_dataset):
    return next(iter(Dataset.open(tiny_dataset).queries_of("test"))).text


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return tmp_path_factory.mktemp("thumbs") / "thumbs.jsonl"


@pytest.fixture(scope="module")
def address(retriever, log):
    with served(retriever, token=TOKEN, feedback=log) as found:
        yield found


def lines(log):
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


def opened(browser, address, question, width=1280, scheme="light"):
    """The page with a question's rankings and thumbs, after the token was given."""
    page = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme, reduced_motion="reduce")
    page.set_default_timeout(TIMEOUT)
    page.goto(f"{address}#q={question}")
    page.fill("#token", TOKEN)
    page.keyboard.press("Enter")
    page.wait_for_selector("#after .thumb")
    return page


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_a_thumb_is_pressed_taken_back_and_remembered(browser, address, log, question, width, scheme):
    page = opened(browser, address, question, width, scheme)
    shown = page.eval_on_selector_all("#after .hit", "hits => hits.map(hit => hit.dataset.id)")
    assert page.locator("#after .thumb").count() == 2 * len(shown)
    assert page.locator("#before .thumb").count() == 0
    boxes = [page.locator(f"#after .thumb.{one} >> nth=0").bounding_box() for one in ("up", "down")]
    assert all(box["width"] >= 24 and box["height"] >= 24 for box in boxes)
    assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")
    before, hit = len(lines(log)), page.locator("#after .hit >> nth=1").bounding_box()

    up = page.locator("#after .thumb.up >> nth=1")
    assert up.get_attribute("aria-label").startswith("Answers the question: 2, ")
    up.focus()
    page.keyboard.press("Space")
    page.wait_for_selector('#after li:nth-child(2) .thumb.up[aria-pressed="true"]')
    page.click("#after .thumb.down >> nth=1")
    page.wait_for_selector('#after li:nth-child(2) .thumb.down[aria-pressed="true"]')
    assert up.get_attribute("aria-pressed") == "false"
    assert page.locator("#after .hit >> nth=1").bounding_box() == hit
    require_no_breach(page)
    page.reload()
    page.wait_for_selector('#after li:nth-child(2) .thumb.down[aria-pressed="true"]')
    page.click("#after .thumb.down >> nth=1")
    page.wait_for_selector('#after li:nth-child(2) .thumb.down[aria-pressed="false"]')

    its = lines(log)[before:]
    assert [one["thumbs"] for one in its] == [{shown[1]: thumb} for thumb in ("up", "down", "withdrawn")]
    assert [(one["query"], one["shown"]) for one in its] == [(question, shown)] * 3
    assert len({one["session"] for one in lines(log)}) == 1 + (before > 0)  # another tab is another session
    assert page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
    page.close()


def test_a_thumb_that_was_not_written_is_not_pressed_and_says_so(browser, address, question, monkeypatch):
    page = opened(browser, address, question)

    def fail(descriptor, line):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(thumb_log, "_write", fail)
    page.click("#after .thumb.up >> nth=0")
    page.wait_for_selector("#problem:has-text('The thumb was not written')")
    assert page.get_attribute("#after .thumb.up >> nth=0", "aria-pressed") == "false"
    page.close()


def test_a_what_if_has_no_thumbs(browser, address, question, retriever):
    page = opened(browser, address, question)
    shown = page.eval_on_selector_all("#after .hit", "hits => hits.map(hit => hit.dataset.id)")
    page.click(f'#after .hit[data-id="{next(one for one in shown if retriever.explain(one).neighbors)}"]')
    page.click(".tick >> nth=0")
    page.wait_for_selector("#system:has-text('What if')")
    assert page.locator(".thumb").count() == 0
    page.click("text=undo")
    page.wait_for_selector("#after .thumb")
    page.close()


def test_without_feedback_there_are_no_thumbs(browser, retriever, question):
    with served(retriever) as address:
        page = browser.new_page()
        page.set_default_timeout(TIMEOUT)
        page.goto(f"{address}#q={question}")
        page.wait_for_selector("#after .hit")
        assert page.locator(".thumb").count() == 0
        page.close()
