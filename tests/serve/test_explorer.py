"""The explorer in a real browser, against a real server: what a reader sees, clicks and types."""

import time

import pytest
from chromium import TIMEOUT, browser, served

from gnnretrieval import Retriever
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
    page.set_default_timeout(TIMEOUT)
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


def until_it_is(shown, wanted):
    """Wait until the page shows what is wanted."""
    end = time.monotonic() + TIMEOUT / 1000
    while (found := shown()) != wanted:
        assert time.monotonic() < end, (found, wanted)
        time.sleep(0.02)


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


def test_the_questions_are_beside_their_picture_above_the_fold_and_named_in_it(page, question, comparison, retriever):
    ask(page, question)
    one = next(one for one in comparison.gnn_encoder if retriever.explain(one.hit.id).neighbors)
    page.click(f'#after .hit[data-id="{one.hit.id}"]')
    page.wait_for_selector(".picture svg")
    picture, first = page.locator(".picture").bounding_box(), page.locator(".neighbors .item").first.bounding_box()
    assert first["x"] >= picture["x"] + picture["width"]
    assert first["y"] + first["height"] < 800
    described = retriever.neighborhood(one.hit.id)
    names = page.locator(".dot.near .name").all_text_contents()
    assert len(names) == len(described["neighbors"])
    for name, edge in zip(names, described["neighbors"], strict=True):
        assert len(name) > 5
        assert edge["text"].startswith(name.rstrip("…").strip())
    weights = [abs(edge["attention"]) for edge in described["neighbors"]]
    assert weights == sorted(weights, reverse=True)


@pytest.mark.parametrize("width", [390, 1280])
def test_the_relevant_passages_of_a_known_question_are_marked_in_both_rankings(browser, address, retriever, width):
    page, complaints = opened(browser, address, width)
    ask(page, retriever.query("train-03").text)
    both = retriever.compare(retriever.query("train-03").text, 10)
    for column, hits in (("before", both.dual_encoder), ("after", both.gnn_encoder)):
        marked = page.eval_on_selector_all(
            f"#{column} .hit:has(.relevant)", "hits => hits.map(hit => [hit.dataset.id, hit.textContent])"
        )
        assert [id_ for id_, _ in marked] == [one.hit.id for one in hits if one.hit.id in ("p03", "p30")]
        assert all("labelled relevant" in text for _, text in marked)
        scores = page.locator(f"#{column} .score").all_text_contents()
        assert scores == [f"score {one.hit.score:.3f}" for one in hits]
    assert "✓" in page.inner_text("#rankings")
    before = min(one.hit.rank for one in both.dual_encoder if one.hit.id in ("p03", "p30"))
    after = min(one.hit.rank for one in both.gnn_encoder if one.hit.id in ("p03", "p30"))
    assert f"labelled relevant: rank {before} → {after}. This is a training question" in page.inner_text("#summary")
    assert page.locator("#unsure").is_hidden()
    page.close()
    assert complaints == []


def test_a_question_unlike_the_training_questions_looks_unsure(page, question):
    ask(page, "1 ? x")
    assert "none of the training questions score so low" in page.inner_text("#unsure")
    assert page.locator("#columns.unsure").count() == 1
    page.fill("#question", question)
    page.keyboard.press("Enter")
    page.wait_for_selector("#unsure", state="hidden")
    assert page.locator("#columns.unsure").count() == 0


def test_equal_titles_carry_their_ids(browser, address, retriever, monkeypatch, question):
    from gnnretrieval.index.comparison import EncoderComparison, MovedHit
    from gnnretrieval.index.search import Hit

    hits = [
        MovedHit(Hit(rank, rank, f"p{rank}", title, "text", 1 / rank), rank)
        for rank, title in enumerate(("Same", "Same", "Other"), 1)
    ]
    monkeypatch.setattr(retriever, "compare_all", lambda questions, k: [EncoderComparison(hits, hits, 5)])
    page, _ = opened(browser, address)
    ask(page, question)
    assert page.locator("#after .id").all_inner_texts() == ["p1", "p2"]
    page.close()


def test_on_a_phone_both_rankings_stay_side_by_side_with_their_lines(browser, address, question):
    page, complaints = opened(browser, address, 390)
    ask(page, question)
    page.wait_for_selector("#moves path")
    before, after = (page.locator(f"#{column} .hit").first.bounding_box() for column in ("before", "after"))
    assert before["y"] == after["y"]
    assert before["x"] + before["width"] < after["x"]
    assert page.locator("#moves").is_visible()
    page.close()
    assert complaints == []


@pytest.mark.parametrize("width", [390, 1280])
def test_what_if_a_question_had_not_been_asked_or_were_heard_louder(
    browser, address, width, question, comparison, retriever
):
    from gnnretrieval.index.what_if import Change

    page, complaints = opened(browser, address, width)
    ask(page, question)
    one = next(one for one in comparison.gnn_encoder if retriever.explain(one.hit.id).neighbors)
    first = retriever.neighborhood(one.hit.id)["neighbors"][0]["id"]
    as_it_is = ids(page, "after")
    page.click(f'#after .hit[data-id="{one.hit.id}"]')
    page.locator(".tick").first.focus()
    page.keyboard.press("Space")
    page.wait_for_selector("#system:has-text('What if')")
    expected = retriever.what_if(question, Change(one.hit.id, [first]))
    assert ids(page, "before") == as_it_is
    assert ids(page, "after") == [moved.hit.id for moved in expected.after]
    assert "Nothing is saved" in page.inner_text("#summary")
    page.locator("#what-if-scale").focus()
    page.keyboard.press("Home")
    page.wait_for_selector("output:has-text('× 0')")
    expected = retriever.what_if(question, Change(one.hit.id, [first], scale=0.0))
    until_it_is(page.locator("#after .score").all_text_contents, [f"score {m.hit.score:.3f}" for m in expected.after])
    page.fill("#what-if-question", "a typed question")
    page.keyboard.press("Enter")
    page.wait_for_selector("#what-if-said:has-text('no edge features')")  # of a layer with attention
    page.click("text=undo")
    page.wait_for_selector("#system:has-text('GNN-encoder')")
    assert ids(page, "after") == as_it_is
    page.close()
    assert complaints == [] or all("422" in one for one in complaints)


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
    for _ in range(12):  # to the node in the picture, past what-if
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.classList.contains('dot')"):
            break
    page.keyboard.press("ArrowRight")
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
        page.set_default_timeout(TIMEOUT)
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


def test_a_passage_of_several_vectors_says_which_training_question_matched(browser, questions_run, question):
    retriever = Retriever.open(questions_run / "index")
    found = retriever.compare(question, 10).gnn_encoder
    one = next(one for one in found if one.matched is not None)
    with served(retriever) as place:
        page, complaints = opened(browser, place)
        ask(page, question)
        page.click(f'#after .hit[data-id="{one.hit.id}"]')
        page.wait_for_selector(".picture svg")
        assert f"“{one.matched.text}” is nearest to your question" in page.inner_text(".why")
        page.close()
    assert complaints == []
