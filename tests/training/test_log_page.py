import json
import re
from html import unescape

import plotly.graph_objects as go
import pytest

from gnnretrieval.errors import GnnRetrievalError, InputError
from gnnretrieval.training.log_page import read_log, smoothed, write_log_page

EVIL = "</script><script>alert(1)</script>"


def step(number: int, loss: float = 1.0) -> dict:
    return {"step": number, "epoch": number / 10, "loss": loss, "learning_rate": 1e-5, "gradient_norm": 2.5}


def measured(number: int, **dev: float) -> dict:
    return {"step": number, "epoch": number // 10, "dev": dev}


@pytest.fixture
def written(tmp_path):
    """Writes a log of records; returns its path."""

    def write(*records: dict | str):
        path = tmp_path / "log.jsonl"
        lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
        path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        return path

    return write


def page_of(log, title: str = "dpr") -> tuple[str, dict]:
    """The page's text, and its plots."""
    out = log.with_name("log.html")
    write_log_page(log, out, title)
    text = out.read_text(encoding="utf-8")
    data = re.search(r'<script type="application/json" id="plots">(.*?)</script>', text, re.DOTALL).group(1)
    return text, json.loads(data)


def test_every_curve_has_its_place_and_its_values(written):
    log = written(
        *(step(number, loss=10 / number) for number in (1, 2, 3, 4)),
        measured(2, **{"RR@10": 0.25, "R@50": 0.5}),
        measured(4, **{"RR@10": 0.5, "R@50": 0.75}),
    )
    text, plots = page_of(log)
    assert {f"plot-{name}" for name in plots} == set(re.findall(r'class="plot" id="([\w-]+)"', text))
    assert list(plots) == ["loss", "learning-rate", "gradient-norm", "dev"]
    raw, smooth = plots["loss"]["data"]
    assert (raw["x"], raw["y"]) == ([1, 2, 3, 4], [10, 5, 10 / 3, 2.5])
    assert raw["line"]["width"] < smooth["line"]["width"]
    assert plots["learning-rate"]["data"][0]["y"] == [1e-5] * 4
    assert plots["gradient-norm"]["data"][0]["y"] == [2.5] * 4
    curves = {trace["name"]: (trace["x"], trace["y"]) for trace in plots["dev"]["data"]}
    assert curves["RR@10"] == ([2, 4], [0.25, 0.5])
    assert curves["R@50"] == ([2, 4], [0.5, 0.75])


def test_the_best_step_is_the_first_with_the_highest_first_measure(written):
    log = written(
        measured(1, a=0.3, b=0.1), measured(2, a=0.7, b=0.2), measured(3, a=0.7, b=0.9), measured(4, a=0.6, b=0.3)
    )
    text, plots = page_of(log)
    stars = [trace for trace in plots["dev"]["data"] if trace["mode"] == "markers"]
    assert [(star["x"], star["y"]) for star in stars] == [([2], [0.7]), ([2], [0.2])]
    rows = re.findall(r"<tr( class=best)?><td>(.*?)</td><td>.*?</td><td>(.*?)</td>", text)
    assert rows == [("", "1", "0.3000"), (" class=best", "2", "0.7000"), ("", "3", "0.7000"), ("", "4", "0.6000")]
    assert "best a on dev 0.7000 at step 2" in text


def test_a_log_without_measurements_and_one_without_steps_have_their_page(written):
    text, plots = page_of(written(step(1)))
    assert "dev" not in plots
    assert "None yet." in text
    _, plots = page_of(written(measured(1, a=0.5)))
    assert list(plots) == ["dev"]


def test_a_measure_that_comes_later_has_its_column(written):
    text, plots = page_of(written(measured(1, a=0.5), measured(2, a=0.4, late=0.1)))
    assert "<th>late</th>" in text
    assert "<td>0.5000</td><td></td>" in text
    assert plots["dev"]["data"][-1]["x"] == [2]


def test_the_smoothed_loss_by_hand():
    assert smoothed([4.0, 2.0]) == [4.0, 2.0]  # 2 % of two steps is one
    line = smoothed([0.0] * 50 + [1.0] * 50)  # of two steps: half of what was, half of what is
    assert line[:50] == [0.0] * 50
    assert line[50:53] == pytest.approx([1 / 2, 3 / 4, 7 / 8])
    assert smoothed([1.0, float("nan"), 3.0]) == [1.0, 1.0, 3.0]


def test_a_loss_that_is_no_number_is_a_gap(written):
    _, plots = page_of(written(step(1), step(2, loss=float("nan")), step(3, loss=float("inf")), step(4, loss=2.0)))
    assert plots["loss"]["data"][0]["y"] == [1.0, None, None, 2.0]


def test_a_long_log_is_drawn_thinned(written):
    _, plots = page_of(written(*(step(number) for number in range(9000))))
    assert plots["loss"]["data"][0]["x"] == list(range(0, 9000, 3))


def test_steps_done_again_count_as_they_were_done_last(written):
    log = read_log(written(step(1, 9.0), step(2, 9.0), measured(2, a=0.1), step(2, 8.0), measured(2, a=0.2)))
    assert [(record.step, record.loss) for record in log.steps] == [(1, 9.0), (2, 8.0)]
    assert [record.dev for record in log.measurements] == [{"a": 0.2}]


def test_a_last_line_that_is_being_written_is_left_out(written):
    path = written(step(1), step(2))
    path.write_text(path.read_text(encoding="utf-8") + '{"step": 3, "epo', encoding="utf-8")
    assert [record.step for record in read_log(path).steps] == [1, 2]


def test_the_page_loads_nothing_and_follows_the_reader_s_scheme(written):
    text, _ = page_of(written(step(1), measured(1, a=0.5)))
    assert "default-src 'none'" in text
    assert "prefers-color-scheme: dark" in text
    assert not re.search(r"<(script|link|img)[^>]*(src|href)=", text.split("<script>")[0])
    assert len(text) > 2**20  # plotly is in it


def test_texts_are_shown_as_they_are_and_never_run(written):
    text, plots = page_of(written(step(1), measured(1, **{EVIL: 0.5})), title=EVIL)
    assert EVIL not in text
    assert f"<h1>{EVIL}</h1>" in unescape(text)
    assert plots["dev"]["data"][0]["name"] == EVIL


@pytest.mark.parametrize("content", ["", "\n\n", '{"step": 1'])
def test_an_empty_log_is_refused(tmp_path, content):
    log = tmp_path / "log.jsonl"
    log.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=r"log\.jsonl: this training log is empty"):
        write_log_page(log, tmp_path / "log.html", "dpr")
    assert not (tmp_path / "log.html").exists()


@pytest.mark.parametrize("line", ["nonsense", "[1]", '{"step": 1}', '{"step": 1, "epoch": 1, "dev": {"a": "good"}}'])
def test_a_line_that_is_no_record_is_refused_with_its_number(written, line):
    with pytest.raises(InputError, match=r"log\.jsonl:2: .* is no record of a training log: wanted step"):
        read_log(written(step(1), line))


def test_a_missing_log_and_a_place_that_cannot_take_the_page_are_refused(written, tmp_path):
    with pytest.raises(InputError, match="no such file"):
        write_log_page(tmp_path / "none.jsonl", tmp_path / "log.html", "dpr")
    with pytest.raises(GnnRetrievalError, match="is a directory"):
        write_log_page(written(step(1)), tmp_path, "dpr")


def test_plotly_knows_every_setting_of_the_plots(written):
    _, plots = page_of(written(step(1), step(2), measured(2, a=0.5)))
    for plot in plots.values():
        go.Figure(plot)  # raises ValueError otherwise
