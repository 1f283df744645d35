import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnretrieval.data.sentence_split import split_sentences


def sentences_of(text: str) -> list[str]:
    return [text[start:end] for start, end in split_sentences(text)]


def test_full_stops_that_end_no_sentence_do_not_split():
    text = "My name is Jonas E. Smith. Please turn to p. 55.  He left at 5 p.m. on Monday!"
    assert sentences_of(text) == [
        "My name is Jonas E. Smith.",
        "Please turn to p. 55.",
        "He left at 5 p.m. on Monday!",
    ]


def test_a_title_before_its_full_stop_is_the_first_sentence():
    assert sentences_of("Oil crisis. It began in 1973. It ended.") == [
        "Oil crisis.",
        "It began in 1973.",
        "It ended.",
    ]


@pytest.mark.parametrize("text", ["", " ", "\n\t \u00a0"])
def test_an_empty_text_has_no_sentence(text):
    assert split_sentences(text) == []


def test_a_text_without_end_marks_is_one_sentence_without_the_space_around_it():
    assert split_sentences("  no end marks at all ") == [(2, 21)]


def test_equal_sentences_have_spans_of_their_own():
    assert split_sentences("Go on. Go on. Go on.") == [(0, 6), (7, 13), (14, 20)]


def test_what_pysbd_loses_is_a_sentence_of_its_own():
    """∯, ♬ and their like are marks that pysbd puts in itself, and takes out."""
    text = "This is home. ∯ ♬ Yes. &ᓰ& more"
    assert "".join("".join(sentences_of(text)).split()) == "".join(text.split())
    assert sentences_of(text)[0] == "This is home."


def test_a_mark_that_stands_alone_belongs_to_the_sentence_before():
    assert sentences_of("He said so ..... . Then he left.")[0] == "He said so ..... ."


@pytest.mark.parametrize("mark", ["\ufeff", "\u200b\u200b", "\x01"])
def test_a_first_line_of_invisible_characters_belongs_to_the_sentence_after_it(mark):
    assert sentences_of(f"{mark}\nOne is. Two!") == [f"{mark}\nOne is.", "Two!"]
    assert sentences_of(mark) == [mark]


@given(st.text(alphabet=st.one_of(st.sampled_from("ab AB.!?\"'()[]1\n\r\t•*∯♬&ᓰ。"), st.characters(codec="utf-8"))))
def test_every_character_that_is_no_space_is_in_exactly_one_span_in_order(text):
    spans = split_sentences(text)
    before = 0
    for start, end in spans:
        assert before <= start < end <= len(text)
        assert text[start:end] == text[start:end].strip()
        assert not text[before:start].strip()
        before = end
    assert not text[before:].strip()
