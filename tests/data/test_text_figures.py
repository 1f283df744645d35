from types import MappingProxyType

import numpy as np
import pytest

from gnnretrieval.data.inspection import text_figures
from gnnretrieval.data.inspection.text_figures import near_figures, pass_over, repeated, token_lengths, tokens_of
from gnnretrieval.data.records import Passage

TEXTS = ["one two three", "ONE two  three!", "", "a longer text of eight words, about it", "one two three", "other"]
TITLES = ["", "T", "only a title", "", "", ""]
PASSAGES = [Passage(f"p{row}", title, text) for row, (title, text) in enumerate(zip(TITLES, TEXTS, strict=True))]
IDS = [passage.id for passage in PASSAGES]


class Characters:
    """A tokenizer whose tokens are characters."""

    name = "characters"
    limits = MappingProxyType({"passage": 12, "query": None})

    def count(self, texts, side):
        return np.array([len(text) for text in texts])


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.touch()
    return path


def read(file, tokens=None, passages=PASSAGES):
    return pass_over(lambda: iter(passages), len(passages), "passage", file, tokens, seed=0)


def test_words_titles_and_repeats(file):
    found = read(file)
    assert found.words.tolist() == [3, 3, 0, 8, 3, 1]
    assert found.without_title == 4
    assert len(found.first) == 4
    assert repeated(found, IDS, most=5) == [["p0", "p1"], ["p0", "p4"]]
    assert repeated(found, IDS, most=1) == [["p0", "p1"]]


@pytest.mark.parametrize("block", [1, 2, 5, 100])
def test_the_size_of_a_block_changes_nothing(file, monkeypatch, block):
    whole = read(file, Characters())
    monkeypatch.setattr(text_figures, "_BLOCK", block)
    found = read(file, Characters())
    assert found.words.tolist() == whole.words.tolist()
    assert found.group.tolist() == whole.group.tolist()
    assert found.tokens.tolist() == whole.tokens.tolist()
    assert found.near == whole.near


def test_tokens_are_counted_of_what_an_encoder_reads_with_the_title(file):
    found = read(file, Characters())
    assert found.tokens.tolist() == [len(passage.full_text) for passage in PASSAGES]
    figures = token_lengths(found.tokens, len(PASSAGES), 12)
    assert (figures.cut, figures.share_cut) == (5, 5 / 6)
    assert token_lengths(found.tokens, len(PASSAGES), None).cut == 0
    assert tokens_of(None, read(file), read(file)) is None


def test_equal_texts_are_no_near_duplicates_and_near_ones_are_named_by_their_first(file):
    long = "the old man with the grey beard had three cows and sold the last of them on the market in spring"
    passages = [
        Passage("a", "", "x"),
        Passage("b", "", long),
        Passage("c", "", long),
        Passage("d", "", long + " today"),
    ]
    figures = near_figures(read(file, passages=passages), ["a", "b", "c", "d"], most=5)
    assert (figures.compared, figures.of, figures.pairs, figures.near) == (3, 3, 1, 2)
    assert figures.share == 2 / 3
    (example,) = figures.examples
    assert [side.id for side in example.pair] == ["b", "d"]
    assert example.pair[0].text == long
    assert 0.85 <= example.similarity < 1


def test_a_sample_says_so_and_names_the_right_texts(file, monkeypatch):
    monkeypatch.setattr(text_figures, "COMPARED", 30)
    monkeypatch.setattr(text_figures, "TOKENISED", 20)
    texts = [f"{' '.join(f'w{row // 2}x{place}' for place in range(30))} end{row}" for row in range(60)]
    passages = [Passage(f"p{row}", "", text) for row, text in enumerate(texts)]
    found = read(file, Characters(), passages)
    ids = [passage.id for passage in passages]
    figures = near_figures(found, ids, most=30)
    assert (figures.compared, figures.of) == (30, 60)
    assert figures.examples
    for example in figures.examples:
        one, other = (int(side.id[1:]) for side in example.pair)
        assert one // 2 == other // 2
        assert [side.text for side in example.pair] == [texts[one], texts[other]]
    assert len(found.tokens) == 20
    assert len(found.words) == 60
