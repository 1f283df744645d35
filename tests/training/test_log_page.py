import json
import re

import pytest

from gnnretrieval.errors import GnnRetrievalError, InputError
from gnnretrieval.training.log_page import plots_of, read_log, smoothed, write_log_page
from tests.html_page import EVIL, Page, assert_opens_offline


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


def page_of(log, title: str = "dpr") -> Page:
    """The page."""
    out = log.with_name("log.html")
    write_log_page(log, out, title)
    return assert_opens_offline(out.read_text(encoding="utf-8"))


def test_every_curve_has_its_values(written):
    log = written(
        *(step(number, loss=10 / number) for number in (1, 2, 3, 4)),
        measured(2, **{"RR@10": 0.25, "R@50": 0.5}),
        measured(4, **{"RR@10": 0.5, "R@50": 0.75}),
    )
    page = page_of(log)
    titles = ["Measures on dev", "Loss", "Learning rate", "Gradient norm"]
    assert [figure.title for figure in plots_of(read_log(log))] == titles
    assert all(title in page.seen for title in titles)
    for at, loss in enumerate(smoothed([10, 5, 10 / 3, 2.5]), 1):
        assert f"smoothed: {loss:,.6g} at step {at}\n" in page.hovered
    assert "learning rate: 1e-05 at step 4\n" in page.hovered
    assert "RR@10: 0.25 at step 2\nRR@10: 0.5 at step 4\n" in page.hovered
    assert "R@50: 0.5 at step 2\nR@50: 0.75 at step 4\n" in page.hovered


def test_the_best_step_is_the_first_with_the_highest_first_measure(written):
    log = written(
        measured(1, a=0.3, b=0.1), measured(2, a=0.7, b=0.2), measured(3, a=0.7, b=0.9), measured(4, a=0.6, b=0.3)
    )
    page = page_of(log)
    assert "a 0.7000 at step 2\n" in page.hovered
    (rows,) = page.tables
    assert [row[0] for row in rows if row[-1] == "best"] == ["2"]
    assert [row[2] for row in rows[1:]] == ["0.3000", "0.7000", "0.7000", "0.6000"]
    assert "best a on dev 0.7000 at step 2" in page.seen


def test_measurements_stand_by_epoch_where_each_has_its_own(written):
    page = page_of(written(measured(10, a=0.3), measured(20, a=0.5), measured(30, a=0.4)))
    assert "a: 0.5 at epoch 2\n" in page.hovered
    assert "a 0.5000 at step 20, epoch 2\n" in page.hovered


def test_a_log_without_measurements_and_one_without_steps_have_their_page(written):
    page = page_of(written(step(1)))
    assert "Measures on dev" not in page.seen
    assert "None." in page.seen
    page = page_of(written(measured(1, a=0.5)))
    assert "Measures on dev" in page.seen
    assert "Gradient norm" not in page.seen


def test_a_measure_that_comes_later_has_its_column(written):
    page = page_of(written(measured(1, a=0.5), measured(2, a=0.4, late=0.1)))
    assert page.tables == [
        [["step", "epoch", "a", "late", ""], ["1", "0", "0.5000", "", "best"], ["2", "0", "0.4000", "0.1000", ""]]
    ]
    assert "late: 0.1 at step 2\n" in page.hovered


def test_the_smoothed_loss_by_hand():
    assert smoothed([4.0, 2.0]) == [4.0, 2.0]  # 2 % of two steps is one
    line = smoothed([0.0] * 50 + [1.0] * 50)  # of two steps: half of what was, half of what is
    assert line[:50] == [0.0] * 50
    assert line[50:53] == pytest.approx([1 / 2, 3 / 4, 7 / 8])
    assert smoothed([1.0, float("nan"), 3.0]) == [1.0, 1.0, 3.0]


def test_a_loss_that_is_no_number_is_a_gap(written):
    log = written(step(1), step(2, loss=float("nan")), step(3, loss=float("inf")), step(4, loss=2.0))
    page = page_of(log)
    assert page.hovered.count("each step\n") == 2
    assert not {"nan", "inf"} & set(re.findall("[a-z]+", " ".join(page.attributes("d"))))


def test_a_long_log_is_drawn_thinned(written):
    log = read_log(written(*(step(number) for number in range(9000))))
    each = plots_of(log)[0].plot
    assert each.count("L") < 2100  # two curves of 1,000 points at most


def test_steps_done_again_count_as_they_were_done_last(written):
    log = read_log(written(step(1, 9.0), step(2, 9.0), measured(2, a=0.1), step(2, 8.0), measured(2, a=0.2)))
    assert [(record.step, record.loss) for record in log.steps] == [(1, 9.0), (2, 8.0)]
    assert [record.dev for record in log.measurements] == [{"a": 0.2}]


def test_a_last_line_that_is_being_written_is_left_out(written):
    path = written(step(1), step(2))
    path.write_text(path.read_text(encoding="utf-8") + '{"step": 3, "epo', encoding="utf-8")
    assert [record.step for record in read_log(path).steps] == [1, 2]


def test_texts_are_shown_as_they_are_and_never_run(written):
    page = page_of(written(step(1), measured(1, **{EVIL: 0.5})), title=EVIL)
    assert page.seen.count(EVIL) >= 3
    assert EVIL in page.hovered


@pytest.mark.parametrize("content", ["", "\n\n", '{"step": 1'])
def test_an_empty_log_is_refused(tmp_path, content):
    log = tmp_path / "log.jsonl"
    log.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=r"log\.jsonl: this training log is empty"):
        write_log_page(log, tmp_path / "log.html", "dpr")
    assert not (tmp_path / "log.html").exists()


@pytest.mark.parametrize("line", ["nonsense", "[1]", '{"step": 1}', '{"step": 1, "epoch": 1, "dev": {"a": "good"}}'])
def test_a_line_that_is_no_record_is_refused_with_its_number(written, line):
    with pytest.raises(InputError, match=r"log\.jsonl:2: .* is not a record of a training log: wanted step"):
        read_log(written(step(1), line))


def test_a_missing_log_and_a_place_that_cannot_take_the_page_are_refused(written, tmp_path):
    with pytest.raises(InputError, match="no such file"):
        write_log_page(tmp_path / "none.jsonl", tmp_path / "log.html", "dpr")
    with pytest.raises(GnnRetrievalError, match="is a directory"):
        write_log_page(written(step(1)), tmp_path, "dpr")
