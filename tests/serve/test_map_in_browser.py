"""The map in a real browser with software WebGL: what a reader sees, points at, chooses and types."""

import shutil
import time

import numpy as np
import pytest
from chromium import TIMEOUT, browser, served

from gnnretrieval import Retriever
from gnnretrieval.maps.passage_map import open_map
from gnnretrieval.serve.map_page import write_map_file

__all__ = ["browser"]

# The drawn pixels near a colour of the stylesheet.
PIXELS = """name => new Promise(done => { draw(); requestAnimationFrame(() => requestAnimationFrame(() => {
  paint();
  const gl = picture.getContext('webgl2'), pixels = new Uint8Array(4 * picture.width * picture.height);
  gl.readPixels(0, 0, picture.width, picture.height, gl.RGBA, gl.UNSIGNED_BYTE, pixels);
  const wanted = colours[name].map(part => 255 * part);
  let count = 0;
  for (let at = 0; at < pixels.length; at += 4)
    count += pixels[at + 3] > 200 && wanted.every((part, place) => Math.abs(part - pixels[at + place]) < 30);
  done(count); })); })"""

# How far the points are on their way while they go to where they were before, by a clock that does not run alone.
WAYS = """() => { const frames = [], seen = [];
  performance.now = () => 0; window.requestAnimationFrame = (go) => frames.push(go);
  show('before'); seen.push(view.way);
  for (const now of [SLOW / 2, SLOW]) for (const go of frames.splice(0)) { go(now); seen.push(view.way); }
  return seen; }"""


@pytest.fixture(scope="module")
def address(tiny_run):
    with served(Retriever.open(tiny_run)) as found:
        yield found


@pytest.fixture(scope="module")
def file(tiny_run, tmp_path_factory):
    place = tmp_path_factory.mktemp("file") / "map.html"
    write_map_file(open_map(tiny_run / "map"), place, most=1000, most_texts=1000)
    return place.as_uri()


@pytest.fixture
def opened(browser):
    """``opened(address, width)``: a page with the map; nothing may be complained of or loaded from elsewhere."""
    pages = []

    def open_(address, width=1280, **how):
        context = browser.new_context(viewport={"width": width, "height": 800}, has_touch=width < 600, **how)
        page = context.new_page()
        page.set_default_timeout(TIMEOUT)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        start = address.split("map")[0]
        page.on("request", lambda one: None if one.url.startswith(("data:", start)) else complaints.append(one.url))
        page.goto(address)
        page.wait_for_selector("body[data-painted]")
        page.wait_for_selector("#list .item")
        pages.append(context)
        return page

    complaints = []
    yield open_
    for one in pages:
        one.close()
    assert complaints == []


@pytest.fixture(params=["served", "file"])
def where(request, address, file):
    return address + "map" if request.param == "served" else file


def until(page, expression):
    """Wait until it is true; the page's policy forbids playwright's function for that."""
    end = time.monotonic() + TIMEOUT / 1000
    while not page.evaluate(expression):
        assert time.monotonic() < end, expression
        page.wait_for_timeout(20)


def spot(page, row, when=None):
    """Where the passage at ``row`` is on the screen."""
    return page.evaluate(
        "([row, when]) => { const [x, y] = place({kind: 'passage', at: rowsOf.get(row)}, when),"
        " box = over.getBoundingClientRect(); return [x + box.left, y + box.top]; }",
        [row, when],
    )


def apart(shown):
    """The row of the passage that is farthest from its nearest point."""
    points = np.concatenate([shown.after, shown.questions])
    distances = np.linalg.norm(points[:, None] - points[None], axis=2) + np.eye(len(points)) * 1e9
    return int(distances.min(1)[: len(shown.after)].argmax())


def test_points_are_drawn_and_questions_can_be_hidden(opened, where):
    page = opened(where)
    assert page.evaluate(PIXELS, "passage") > 50
    assert page.evaluate(PIXELS, "question") > 300
    page.uncheck("#questions")
    assert page.evaluate(PIXELS, "question") == 0
    assert "of the variance" in page.inner_text("#about")
    assert "displacement" in page.inner_text(".plot .legend")


def test_a_point_says_what_it_is_and_is_chosen_by_a_click(opened, where, tiny_run):
    shown = open_map(tiny_run / "map")
    row = apart(shown)
    page = opened(where)
    page.mouse.move(*spot(page, row))
    page.wait_for_selector("#tip p")
    assert f"displacement {shown.displacement[row]:.3f}" in page.inner_text("#tip")
    page.mouse.click(*spot(page, row))
    page.wait_for_selector("#said:has-text('1 chosen')")
    page.click("#list .item")
    text = page.inner_text("#list .body")
    assert f"p{row:02d}" in text
    link = page.locator("#list .body a")
    assert link.count() == (1 if where.startswith("http") else 0)


def test_before_and_after_are_the_map_s_points(opened, address, tiny_run):
    shown = open_map(tiny_run / "map")
    page = opened(address + "map", reduced_motion="reduce")
    after = spot(page, 3)
    page.locator('input[value="before"]').check(force=True)
    until(page, "view.way === 0")
    before = spot(page, 3)
    assert before == pytest.approx(spot(page, 3, "before"))
    assert after == pytest.approx(spot(page, 3, "after"))
    scale = page.evaluate("unit()")
    moved = (shown.before[3] - shown.after[3]) * scale
    assert np.subtract(before, after) == pytest.approx([moved[0], -moved[1]], abs=0.1)


def test_the_switch_is_animated_unless_less_motion_is_asked_for(opened, address):
    page = opened(address + "map")
    assert page.evaluate(WAYS) == [1, 0.5, 0]
    still = opened(address + "map", reduced_motion="reduce")
    assert still.evaluate(WAYS) == [0]


def test_a_lasso_chooses_what_is_inside_and_lists_it(opened, address):
    page = opened(address + "map")
    page.uncheck("#questions")
    page.click("#lasso")
    box = page.locator("#over").bounding_box()
    middle = box["x"] + box["width"] / 2
    right, top, bottom = box["x"] + box["width"] - 2, box["y"] + 2, box["y"] + box["height"] - 2
    page.mouse.move(middle, top)
    page.mouse.down()
    for corner in ((right, top), (right, bottom), (middle, bottom), (middle, top + 3)):
        page.mouse.move(*corner, steps=3)
    page.mouse.up()
    wanted = page.evaluate(
        "left => Array.from(points.passage.rows).filter((row, at) => place({kind: 'passage', at})[0] > left).length",
        middle - box["x"],
    )
    assert 0 < wanted < 40
    page.wait_for_selector(f"#said:has-text('{wanted} chosen')")
    assert page.locator("#list .item").count() == wanted
    assert page.evaluate(PIXELS, "chosen") > 30
    page.keyboard.press("Escape")
    page.wait_for_selector("#said:has-text('Moved most')")
    assert page.evaluate(PIXELS, "chosen") == 0


def test_pan_zoom_and_the_whole_map(opened, address):
    page = opened(address + "map")
    box = page.locator("#over").bounding_box()
    x, y = box["x"] + 200, box["y"] + 200
    before = spot(page, 3)
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 50, y + 30, steps=4)
    page.mouse.up()
    assert spot(page, 3) == pytest.approx([before[0] + 50, before[1] + 30])
    page.mouse.wheel(0, -300)
    until(page, "view.transform.k > 1.2")
    page.click("#whole")
    until(page, "view.transform.k === 1")
    assert spot(page, 3) == pytest.approx(before)


def test_a_slow_machine_draws_a_part_while_it_moves_and_all_at_rest(opened, address):
    page = opened(address + "map")
    page.evaluate(
        "drawn = []; painter = {...painter, drawn: async () => 400,"
        " paint: (paint => how => { drawn.push(how.every); paint(how); })(painter.paint)}"
    )
    until(page, "zooming.translateBy(mapLibraries.select(over), 1, 0), drawn.includes(16)")
    until(page, "drawn.at(-1) === 1")
    assert page.evaluate(PIXELS, "passage") > 50


def test_it_is_used_by_the_keyboard_alone(opened, address):
    page = opened(address + "map")
    page.keyboard.press("/")
    page.keyboard.type("p03")
    page.keyboard.press("Enter")
    page.wait_for_selector("#said:has-text('1 called')")
    page.locator("#list .item").focus()
    assert page.evaluate("rowOf(view.hovered)") == 3
    page.keyboard.press("Enter")
    assert "p03" in page.inner_text("#list .body")
    page.keyboard.press("Escape")
    page.wait_for_selector("#said:has-text('Moved most')")
    page.locator("#list .item").first.focus()
    page.keyboard.press("ArrowDown")
    assert page.evaluate("[...document.querySelectorAll('#list .item')].indexOf(document.activeElement)") == 1
    page.locator("#over").focus()
    page.keyboard.press("+")
    until(page, "view.transform.k > 1.4")
    page.keyboard.press("0")
    until(page, "view.transform.k === 1")


def test_a_name_that_nothing_has_is_said(opened, address):
    page = opened(address + "map")
    page.fill("#name", "<b>nothing</b>")
    page.keyboard.press("Enter")
    page.wait_for_selector("#said:has-text('No passage is called “<b>nothing</b>”')")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_a_tap_chooses_and_nothing_is_wider_than_the_screen(opened, file, tiny_run, scheme):
    row = apart(open_map(tiny_run / "map"))
    page = opened(file, 360, color_scheme=scheme)
    assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")
    page.locator("#over").scroll_into_view_if_needed()
    page.touchscreen.tap(*spot(page, row))
    page.wait_for_selector("#said:has-text('1 chosen')")
    assert page.evaluate("rowOf(view.chosen[0])") == row
    assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")


def test_two_fingers_zoom(opened, address):
    page = opened(address + "map", 360)
    page.locator("#over").scroll_into_view_if_needed()
    box = page.locator("#over").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + 120
    session = page.context.new_cdp_session(page)
    for kind, apart in (("touchStart", 20), ("touchMove", 40), ("touchMove", 80)):
        fingers = [{"x": x - apart, "y": y}, {"x": x + apart, "y": y}]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": fingers})
    session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    until(page, "view.transform.k > 2")


def test_the_explorer_leads_to_the_map_and_the_map_back(opened, address):
    page = opened(address + "map#passage=p03")
    page.wait_for_selector("#said:has-text('1 called')")
    page.click("#list .item")
    page.click("text=Why it moved")
    page.wait_for_selector("#node h2")
    assert "p03" in page.inner_text("#node header")
    page.click("#map-link")
    page.wait_for_selector("#said:has-text('1 called')")


def test_without_webgl_a_sentence_says_so_and_the_list_works(browser, address):
    page = browser.new_page()
    page.add_init_script("HTMLCanvasElement.prototype.getContext = new Proxy(HTMLCanvasElement.prototype.getContext, "
                         "{apply: (get, canvas, [kind, ...rest]) => kind === 'webgl2' ? null : get.call(canvas, kind, ...rest)})")  # noqa: E501  # fmt: skip
    page.goto(address + "map")
    page.wait_for_selector("#no-webgl:visible")
    assert "This browser has no WebGL 2" in page.inner_text("#no-webgl")
    page.wait_for_selector("#list .item >> nth=3")
    page.close()


def test_that_no_passage_moved_is_said(browser, tiny_run, tmp_path):
    place = shutil.copytree(tiny_run, tmp_path / "run") / "map"
    np.save(place / "after.npy", np.load(place / "before.npy"))
    np.save(place / "displacement.npy", np.zeros(40, dtype=np.float32))
    write_map_file(open_map(place), tmp_path / "map.html", most=100, most_texts=0)
    page = browser.new_page()
    page.goto((tmp_path / "map.html").as_uri())
    page.wait_for_selector("#said:has-text('No passage moved')")
    page.close()


def test_a_server_without_a_map_says_how_to_make_one(browser, tiny_run, tmp_path):
    place = shutil.copytree(tiny_run, tmp_path / "run", ignore=shutil.ignore_patterns("map"))
    with served(Retriever.open(place)) as address:
        page = browser.new_page()
        page.goto(address + "map")
        page.wait_for_selector("#problem:visible")
        assert page.inner_text("#problem").startswith("The map of this index is not made yet: gnnretrieval map build")
        page.close()


def test_a_token_is_asked_for(browser, tiny_run):
    with served(Retriever.open(tiny_run), token="0123456789abcdef") as address:
        page = browser.new_page()
        page.goto(address + "map")
        page.wait_for_selector("#token:focus")
        page.fill("#token", "0123456789abcdef")
        page.keyboard.press("Enter")
        page.wait_for_selector("#list .item")
        page.wait_for_selector("#token-form", state="hidden")
        assert page.locator("#problem").is_hidden()
        page.close()
