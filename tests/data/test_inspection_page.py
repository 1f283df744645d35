import re
from html import unescape
from types import MappingProxyType

import numpy as np
import pytest

from gnnretrieval.data import Dataset, inspect_dataset
from gnnretrieval.data.inspection.inspect import inspect_files
from gnnretrieval.data.inspection.near_copies import QueryVectors
from gnnretrieval.data.inspection.problems import Problem, ProblemLine
from gnnretrieval.data.inspection.report import DatasetReport

EVIL = "</script><script>alert(1)</script><img src=http://example.org/x>"


class Tokens:
    name = "an encoder"
    limits = MappingProxyType({"passage": 11, "query": None})

    def count(self, texts, side):
        return np.array([len(text.split()) for text in texts])


@pytest.fixture(scope="module")
def figures(tiny_dataset):
    return inspect_dataset(Dataset.open(tiny_dataset), Tokens())


def plots_on(text: str) -> dict[str, str]:
    """The SVG of each plot by its title."""
    return dict(re.findall(r"<figure><figcaption><h3>(.*?)</h3>.*?(<svg.*?</svg>)", text, re.DOTALL))


def bars_of(svg: str) -> dict[str, int]:
    """What each bar says on hover."""
    said = re.findall(r"<title>(.*?): ([\d,]+)</title>", svg)
    return {name: int(count.replace(",", "")) for name, count in said}


def seen(text: str) -> str:
    return unescape(re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL))


def test_every_figure_has_its_plot(figures):
    plots = plots_on(figures.to_html())
    lengths = ["Words per passage", "Words per query", "Tokens per passage", "Tokens per query"]
    judged = [f"Judgements per query, {split}" for split in ("train", "dev", "test")]
    assert list(plots) == [*lengths, "Questions per passage", *judged]
    assert sum(bars_of(plots["Words per passage"]).values()) == 40
    assert sum(bars_of(plots["Questions per passage"]).values()) == 40
    without = plots_on(figures.model_copy(update={"tokens": None}).to_html())
    assert list(without) == [title for title in plots if not title.startswith("Tokens")]


def test_bars_beyond_the_limit_stand_out_where_texts_are_cut(figures):
    plots = plots_on(figures.to_html())
    bins = figures.tokens.passages.histogram
    beyond = sum(bin_.last > 11 and bin_.count > 0 for bin_ in bins)
    assert 0 < beyond == plots["Tokens per passage"].count('class="s1 fill"')
    assert 'class="s1 fill"' not in plots["Tokens per query"]


def test_tables_tiles_warnings_and_problems_can_be_read(figures):
    lines = [ProblemLine(line=7, says="a tag."), ProblemLine(line=None, says="of the file.")]
    problem = Problem(kind="HTML tag", severity="notice", file="corpus.jsonl", count=1234, lines=lines)
    page = seen(figures.model_copy(update={"problems": [problem], "warnings": ["Do & change."]}).to_html())
    for text in ("Do & change.", "corpus.jsonl:7", "a tag.", "of the file.", "1,234", "HTML tag"):
        assert text in page
    for leak in figures.leakage:
        assert f"{leak.split} of {leak.of}" in page
    assert "No warnings." in seen(figures.model_copy(update={"warnings": []}).to_html())
    assert f"{figures.tokens.passages.share_cut:.1%}" in page


def test_near_copies_are_a_table_with_a_column_a_threshold(tiny_dataset):
    dataset = Dataset.open(tiny_dataset)
    vectors = QueryVectors(EVIL, {id_: row for row, id_ in enumerate(dataset.query_ids)}, np.ones((80, 2)))
    found = inspect_dataset(dataset, vectors=vectors)
    (card,) = re.findall(r"<section[^>]*>(?:(?!</section>).)*Near copies.*?</section>", found.to_html(), re.DOTALL)
    assert EVIL not in card
    cells = [re.sub(r"<.*?>", "", cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", seen(card), re.DOTALL)]
    columns = 9
    assert cells[4:columns] == ["words ≥ 0.5", "words ≥ 0.85", "words < 0.1", "cosine ≥ 0.8", "cosine ≥ 0.9"]
    shares = found.near_copies[1].by_words.at_least
    test = cells[2 * columns : 3 * columns]
    assert test[:6] == ["test", "train", "10", "100.0%", *(f"{share:.1%}" for share in shares.values())]
    assert test[7:] == ["100.0%", "100.0%"]
    assert "Near copies" not in found.model_copy(update={"near_copies": []}).to_html()


def test_a_directory_that_cannot_be_opened_has_a_page_of_its_problems(tmp_path):
    (tmp_path / "corpus.jsonl").write_text("{\n")
    text = inspect_files(tmp_path).to_html()
    assert not plots_on(text)
    page = seen(text)
    assert "cannot be opened" in page
    assert "corpus.jsonl:1" in page
    assert "not JSON" in page


def test_it_loads_nothing_and_follows_the_reader_s_scheme(figures):
    text = figures.to_html()
    assert not re.search(r"(src|href|srcset)\s*=|@import|url\(|https?://", text)
    assert "<script" not in text
    assert "default-src 'none'" in text
    assert "prefers-color-scheme: dark" in text


def test_texts_are_shown_as_they_are_and_never_run(figures):
    values = figures.as_json()
    example = {"similarity": 0.9, "pair": [{"id": EVIL, "text": EVIL}, {"id": "b", "text": "b"}]}
    values["near_duplicates"]["queries"]["examples"] = [example]
    values |= {"name": EVIL, "splits": {EVIL: values["splits"]["train"]}}
    text = DatasetReport.model_validate(values).to_html()
    assert EVIL not in text
    assert EVIL in seen(text)
