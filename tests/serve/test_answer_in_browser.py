"""The answer line of the explorer, in a real browser: shown after the rankings, marked in its passage, never stale."""

import pytest
from accessibility import require_no_breach
from chromium import TIMEOUT, browser, served

from gnnretrieval import Retriever
from gnnretrieval.data import Dataset
from gnnretrieval.encoders.reader import NOTHING, Reader, Reading
from gnnretrieval.encoders.settings import ReaderSettings
from gnnretrieval.index.comparison import EncoderComparison, MovedHit
from gnnretrieval.index.search import Hit

__all__ = ["browser"]


@pytest.fixture(scope="module")
def reader(tiny_reader):
    return Reader(ReaderSettings(reader=str(tiny_reader), precision="float32", max_tokens=48, weight=1e6))


@pytest.fixture(scope="module")
def address(retriever, reader):
    with served(retriever, reader=reader) as found:
        yield found


@pytest.fixture(scope="module")
def questions(tiny_dataset):
    return [query.text for query in Dataset.open(tiny_dataset).queries_of("test")]


@pytest.fixture
def page(browser):
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.set_default_timeout(TIMEOUT)
    yield page
    page.close()


def ask(page, question):
    page.fill("#question", question)
    page.keyboard.press("Enter")


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_the_answer_is_above_the_rankings_and_marked_in_its_passage(
    browser, address, retriever, reader, questions, width, scheme
):
    page = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme, reduced_motion="reduce")
    page.set_default_timeout(TIMEOUT)
    complaints = []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.goto(f"{address}#q={questions[0]}")
    mark = page.locator("mark.answer")
    mark.wait_for()
    expected = retriever.answer(questions[0], reader)
    assert mark.all_inner_texts() == [expected.answer]
    assert page.locator("#after .hit").first.get_attribute("data-id") == expected.passage
    assert page.locator("#after .hit >> nth=0").locator("mark.answer").is_visible()
    line = page.locator("#answer")
    assert line.locator("b").inner_text() == expected.answer
    title = retriever.passage(expected.passage).title or expected.passage
    assert f"probability {expected.probability:.2f}" in line.inner_text()
    assert line.locator("button").inner_text() == f"1. {title}"
    assert line.get_attribute("role") == "status"
    assert line.bounding_box()["y"] < page.locator("#columns").bounding_box()["y"]
    assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")
    second = [page.locator(f"#{column} .hit >> nth=1").bounding_box()["y"] for column in ("before", "after")]
    assert second[0] == second[1]  # the answer's row is as high on both sides
    require_no_breach(page)
    page.mouse.wheel(0, 2000)
    line.locator("button").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.dataset.id") == expected.passage
    page.select_option("#k", "5")
    page.wait_for_selector("#after .hit >> nth=5", state="detached")
    assert mark.all_inner_texts() == [expected.answer]  # the rankings were shown again
    page.close()
    assert complaints == []


def test_an_earlier_answer_is_never_beside_a_later_question(page, address, retriever, reader, questions):
    first, second = questions[:2]
    answers = [retriever.answer(question, reader).answer for question in (first, second)]
    held = []
    page.route("**/answer", lambda route: held.append(route) if first in route.request.post_data else route.continue_())
    page.goto(address)
    ask(page, first)
    page.wait_for_selector("#after .hit")  # the rankings do not wait for the reader
    assert page.inner_text("#answer") == "Reading the best passages …"
    assert page.get_attribute("#bar", "aria-busy") == "false"
    ask(page, second)
    page.wait_for_selector("mark.answer")
    assert page.inner_text("#answer b") == answers[1]
    with page.expect_response("**/answer"):
        held.pop().continue_()
    page.wait_for_timeout(100)
    assert [page.inner_text("#answer b"), page.inner_text("mark.answer")] == [answers[1]] * 2 != [answers[0]] * 2

    page.unroute("**/answer")
    page.route("**/compare", lambda route: held.append(route))
    page.go_back()
    page.wait_for_selector("#answer", state="hidden")  # while the first question is ranked again
    assert page.locator("mark.answer").count() == 0
    held.pop().continue_()
    page.wait_for_selector("mark.answer")
    assert page.inner_text("#answer b") == answers[0]
    page.click(".brand")
    page.wait_for_selector("#rankings", state="hidden")
    assert page.locator("#answer").is_hidden()


def test_where_there_is_no_answer_a_sentence_says_why_and_the_next_try_may_have_one(
    page, address, reader, questions, monkeypatch
):
    page.goto(address)
    for fails, says in (
        (lambda asked, passages: [NOTHING] * len(passages), "No answer. None of the best passages has a text to find"),
        (lambda asked, passages: 1 / 0, "No answer. The server failed to answer this; its log says why."),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(reader, "read", fails)
            ask(page, questions[0])
            page.wait_for_selector(f"#answer:has-text({says!r})")
        assert page.locator("#after .hit").count() == 10
        assert page.locator("#problem").is_hidden()
    ask(page, questions[0])
    page.wait_for_selector("mark.answer")


def test_what_if_has_no_answer_and_undo_has_it_again(page, address, retriever, questions):
    page.goto(f"{address}#q={questions[0]}")
    page.wait_for_selector("mark.answer")
    shown = page.eval_on_selector_all("#after .hit", "hits => hits.map(hit => hit.dataset.id)")
    page.click(f'#after .hit[data-id="{next(one for one in shown if retriever.explain(one).neighbors)}"]')
    page.click(".tick >> nth=0")
    page.wait_for_selector("#system:has-text('What if')")
    assert page.locator("#answer").is_hidden()
    assert page.locator("mark.answer").count() == 0
    page.click("text=undo")
    page.wait_for_selector("mark.answer")
    assert page.locator("#answer").is_visible()


def test_texts_are_never_markup_and_places_count_characters(page, address, retriever, reader, questions, monkeypatch):
    evil = "<img src=x onerror=document.title='evil'>"
    text = f"{'🦀 ' * 30}{evil} ends 🦀 here"
    start = text.index(evil)
    hit = Hit(1, 0, evil, evil, text, 0.5)
    both = [MovedHit(hit, None)]
    monkeypatch.setattr(retriever, "compare_all", lambda asked, k: [EncoderComparison(both, both, 5) for _ in asked])
    monkeypatch.setattr(retriever, "search_all", lambda asked, k, system: [[hit] for _ in asked])
    monkeypatch.setattr(
        reader, "read", lambda asked, passages: [Reading(start, start + len(evil), 1.0, 1.0, 1.0)] * len(passages)
    )
    page.goto(f"{address}#q={questions[0]}")
    page.wait_for_selector("mark.answer")
    assert page.inner_text("#answer b") == evil
    assert page.inner_text("#answer button") == f"1. {evil}"
    assert page.locator("mark.answer").text_content() == evil
    assert page.text_content("#after .text").endswith("🦀 " + evil + " ends 🦀 here")
    assert page.locator("main img").count() == 0
    assert "evil" not in page.title()


def test_an_answer_from_a_passage_that_is_not_shown_brings_its_text(page, tiny_run, reader, questions, monkeypatch):
    retriever = Retriever.open(tiny_run / "index-dual-encoder")  # without a graph
    last = retriever.search(questions[0], 10)[9]
    read = reader.read
    monkeypatch.setattr(
        reader,
        "read",
        lambda asked, passages: [
            found if passage.id == last.id else NOTHING
            for found, passage in zip(read(asked, passages), passages, strict=True)
        ],
    )
    with served(retriever, reader=reader) as address:
        page.goto(f"{address}#q={questions[0]}&k=5")
        page.wait_for_selector("#answer mark.answer")
        assert f"10. {last.title or last.id}, not shown below" in page.inner_text("#answer")
        page.goto(f"{address}#q={questions[0]}&k=10")
        page.wait_for_selector("#after mark.answer")
        assert page.locator("mark.answer").count() == 1


def test_without_a_reader_nothing_is_asked(page, retriever, questions):
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    with served(retriever) as address:
        page.goto(f"{address}#q={questions[0]}")
        page.wait_for_selector("#after .hit")
        assert page.locator("#answer").is_hidden()
        assert not any(url.endswith("/answer") for url in asked)
