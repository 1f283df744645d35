"""The explorer in a real browser, against a real server: what a reader sees, clicks and types."""

import pytest
from chromium import browser, served

from gnnretrieval.data import Dataset
from gnnretrieval.serve.view_page import write_view

__all__ = ["browser"]


@pytest.fixture(scope="module")
def address(retriever):
    with served(retriever) as found:
        yield found


@pytest.fixture(params=["light", "dark"])
def scheme(request):
    return request.param


def opened(browser, address, width=1280, scheme="light"):
    """A page, and what its console and its requests complained of."""
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page.set_default_timeout(20_000)
    complaints = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("request", lambda asked: None if asked.url.startswith(("data:", address)) else complaints.append(asked.url))
    page.goto(address)
    page.wait_for_selector("#tiles div", state="attached")
    return page, complaints


@pytest.fixture
def page(browser, address):
    page, complaints = opened(browser, address)
    yield page
    page.close()
    assert complaints == []


@pytest.fixture(scope="module")
def question(tiny_dataset):
    return next(iter(Dataset.open(tiny_dataset).queries_of("test"))).text


@pytest.fixture(scope="module")
def comparison(retriever, question):
    return retriever.compare(question, 10)


def ask(page, question):
    page.fill("#question", question)
    page.keyboard.press("Enter")
    page.wait_for_selector("#after .hit")


def ids(page, column):
    return page.eval_on_selector_all(f"#{column} .hit", "hits => hits.map(hit => hit.dataset.id)")


def test_a_question_shows_both_rankings_and_by_how_much_each_passage_moved(page, question, comparison):
    ask(page, question)
    assert ids(page, "before") == [one.hit.id for one in comparison.dual_encoder]
    assert ids(page, "after") == [one.hit.id for one in comparison.gnn_encoder]
    badges = page.eval_on_selector_all("#after .move", "moves => moves.map(move => move.firstChild.textContent)")
    expected = []
    for one in comparison.gnn_encoder:
        by = one.elsewhere - one.hit.rank
        expected.append("=" if by == 0 else f"▲ {by}" if by > 0 else f"▼ {-by}")
    assert badges == expected
    assert len(set(badges) - {"="}) > 1
    assert page.locator("#moves path").count() >= 10


def test_a_passage_s_neighbourhood_is_drawn_with_attention_gate_and_scale(page, question, comparison, retriever):
    ask(page, question)
    one = next(one for one in comparison.gnn_encoder if retriever.explain(one.hit.id).neighbors)
    page.click(f'#after .hit[data-id="{one.hit.id}"]')
    page.wait_for_selector(".picture svg")
    described = retriever.neighborhood(one.hit.id)
    assert page.locator(".dot.near.query").count() == len(described["neighbors"])
    assert page.locator(".dot.far.passage").count() > 0
    widths = page.eval_on_selector_all(
        ".edge:not(.far)", "edges => edges.map(edge => +edge.getAttribute('stroke-width'))"
    )
    assert widths == sorted(widths, reverse=True)
    figures = page.inner_text(".figures")
    assert f"{one.elsewhere} → {one.hit.rank}" in figures
    assert f"{described['node']['context_scale']:.3g}" in figures
    assert "gate" in figures
    assert described["neighbors"][0]["text"] in page.inner_text(".neighbors")


def test_the_graph_is_walked_by_clicks_and_back_walks_back(page, question, comparison, retriever):
    ask(page, question)
    one = next(one for one in comparison.gnn_encoder if retriever.explain(one.hit.id).neighbors)
    page.click(f'#after .hit[data-id="{one.hit.id}"]')
    page.wait_for_selector(".picture svg")
    first = retriever.neighborhood(one.hit.id)["neighbors"][0]
    page.click(".dot.near >> nth=0")
    page.wait_for_selector(".kind.query")
    assert page.inner_text("#node h2") == first["text"]
    assert f"query={first['id']}" in page.url
    page.go_back()
    page.wait_for_selector(".kind.passage")
    assert page.inner_text("#node header").find(one.hit.id) >= 0


def test_an_address_that_was_shared_shows_the_same(browser, address, page, question, comparison):
    ask(page, question)
    page.click("#after .hit >> nth=2")
    page.wait_for_selector("#node h2")
    other, _ = opened(browser, page.url)
    other.wait_for_selector("#after .hit")
    other.wait_for_selector("#node h2")
    assert other.input_value("#question") == question
    assert other.get_attribute("#after .hit >> nth=2", "aria-current") == "true"
    for part in ("#node header", "#node li"):  # the picture's labels depend on where they fit
        assert other.locator(part).all_inner_texts() == page.locator(part).all_inner_texts() != []
    other.close()


def test_it_is_used_by_the_keyboard_alone(page, question, comparison, retriever):
    page.locator(".brand").focus()
    page.keyboard.press("/")
    page.keyboard.type(question)
    page.keyboard.press("Enter")
    page.wait_for_selector("#after .hit:focus")
    row = next(row for row, one in enumerate(comparison.gnn_encoder) if retriever.explain(one.hit.id).neighbors)
    for _ in range(row):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.closest('ol').id") == "before"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.wait_for_selector(".picture svg")
    page.wait_for_selector("#node h2:focus")
    for _ in range(6):  # to the middle of the picture, past buttons
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.classList.contains('dot')"):
            break
    page.keyboard.press("ArrowUp")
    assert "near" in page.evaluate("document.activeElement.getAttribute('class')")
    assert page.locator(".tip").is_visible()
    page.keyboard.press("Enter")
    page.wait_for_selector(".kind.query")
    page.keyboard.press("Escape")
    page.wait_for_selector("#node", state="hidden")
    assert "query=" not in page.url


@pytest.mark.parametrize("width", [320, 400, 768, 1280])
def test_nothing_is_wider_than_the_screen(browser, address, width, question, comparison, scheme):
    page, complaints = opened(browser, address, width, scheme)
    too_wide = "document.documentElement.scrollWidth > innerWidth"
    assert not page.evaluate(too_wide)
    ask(page, question)
    page.click("#after .hit >> nth=0")
    page.wait_for_selector("#node h2")
    assert not page.evaluate(too_wide)
    page.close()
    assert complaints == []


def test_dark_and_light_differ_and_text_stands_out_in_both(browser, address, scheme):
    page, complaints = opened(browser, address, scheme=scheme)
    colours = page.evaluate("['color', 'backgroundColor'].map(name => getComputedStyle(document.body)[name])")
    ink, paper = (sum(int(part) for part in colour[4:-1].split(",")) for colour in colours)
    assert (ink > paper) == (scheme == "dark")
    assert abs(ink - paper) > 400
    page.close()
    assert complaints == []


def test_an_error_is_a_sentence_and_the_next_question_is_answered(browser, address, question):
    page, _ = opened(browser, address)  # the console tells of the 404
    page.evaluate("location.hash = 'passage=nothing'")
    page.wait_for_selector("#problem:visible")
    assert page.inner_text("#problem") == "There is no passage 'nothing'."
    ask(page, question)
    assert page.locator("#problem").is_hidden()
    page.close()


def test_a_server_with_a_token_is_used_when_it_is_given(browser, retriever, question):
    with served(retriever, token="0123456789abcdef") as address:
        page = browser.new_page()
        page.set_default_timeout(20_000)
        page.goto(address)
        page.wait_for_selector("#token:focus")
        assert page.inner_text("#problem") == "This server answers only who has its token."
        page.fill("#token", "another token of 16")
        page.keyboard.press("Enter")
        page.wait_for_selector("#problem:has-text('another one')")  # a function would break the page's policy
        page.fill("#token", "0123456789abcdef")
        page.keyboard.press("Enter")
        page.wait_for_selector("#token-form", state="hidden")
        ask(page, question)
        page.reload()
        page.wait_for_selector("#after .hit")  # kept while the tab is open
        assert page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]") == [0, 1, ""]
        page.close()


def test_what_passages_say_is_text_and_never_markup(browser, address, retriever, monkeypatch, question):
    from gnnretrieval.index.comparison import EncoderComparison, MovedHit
    from gnnretrieval.index.search import Hit

    evil = "<img src=x onerror=document.title='evil'><b>bold</b>"
    hit = MovedHit(Hit(1, 0, evil, evil, evil, 0.5), None)
    monkeypatch.setattr(
        retriever, "compare_all", lambda questions, k: [EncoderComparison([hit], [hit], 5) for _ in questions]
    )
    page, complaints = opened(browser, address)
    ask(page, question)
    assert page.inner_text("#after .title") == evil
    assert page.locator("#after img").count() == 0
    page.close()
    assert complaints == []


def test_the_api_page_lists_every_address(browser, address):
    page, complaints = opened(browser, address)
    page.goto(address + "docs")
    page.wait_for_selector("section >> nth=8")
    text = page.inner_text("main")
    assert all(name in text for name in ("/search", "/compare", "/passages/{id}", "/graph/neighbors", "/metrics"))
    page.close()
    assert complaints == []


def test_the_file_of_graph_view_draws_the_same_picture_offline(browser, retriever, tmp_path):
    write_view(retriever.neighborhood("p03"), tmp_path / "p03.html")
    page = browser.new_page(viewport={"width": 900, "height": 800})
    asked, errors = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto((tmp_path / "p03.html").as_uri())
    page.wait_for_selector(".picture svg")
    assert page.locator(".dot.near.query").count() == len(retriever.neighborhood("p03")["neighbors"])
    assert "λ" in page.inner_text(".figures")
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert errors == []
    page.close()
