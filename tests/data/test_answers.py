import unicodedata

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from gnnretrieval.data.answers import Answers, answer_spans, answer_words, read_answers

# Published examples: a question of DPR's training and one of its development file of Natural Questions, with their
# positive and hard negative passages, and Table 7 of Karpukhin et al. 2020.
BIG_LITTLE_LIES = (
    "series garnered several accolades. It received 16 Emmy Award nominations and won eight, including Outstanding "
    "Limited Series and acting awards for Kidman, Skarsgård, and Dern. […] Production on the second season began in "
    "March 2018 and is set to premiere in 2019. All seven episodes are being written by Kelley"
)
LITTLE_PEOPLE = (
    'final minutes of the season two-A finale, "Farm Overload". A crowd had gathered around Jacob, who was lying on '
    "the ground near the trebuchet. The first two episodes of season two-B focus on the accident, and how the local "
    "media reacted to it."
)
DOES_HE_LOVE_YOU = (
    'Does He Love You "Does He Love You" is a song written by Sandy Knox and Billy Stritch, and recorded as a duet by '
    "American country music artists Reba McEntire and Linda Davis. It was released in August 1993"
)
BRITISH_CYCLING = (
    "England is not recognised as a region by the UCI, and there is no English cycling team outside the Commonwealth "
    "Games. […] Cycling in Northern Ireland is organised under Cycling Ulster, part of the all-Ireland governing body "
    "Cycling Ireland. Until 2006, a rival governing body existed"
)
IRISH_SEA = "Annual traffic between Great Britain and Ireland amounts to over 12 million passengers. The Irish Sea is "


@pytest.mark.parametrize(
    ("answer", "text", "holds"),
    [
        ("seven", BIG_LITTLE_LIES, True),
        ("seven", LITTLE_PEOPLE, False),
        ("Linda Davis", DOES_HE_LOVE_YOU, True),
        ("Linda Davis", BIG_LITTLE_LIES, False),
        ("Irish Sea", IRISH_SEA, True),
        ("Irish Sea", BRITISH_CYCLING, False),
    ],
)
def test_dprs_published_examples(answer, text, holds):
    assert Answers([answer]).in_text(text) == holds


@pytest.mark.parametrize(
    ("answer", "text", "holds"),
    [
        ("wilhelm conrad röntgen", "given to Wilhelm  Conrad\nRo\u0308ntgen in 1901", True),  # NFD, case, white space
        ("Wilhelm Conrad Rontgen", "Wilhelm Conrad Röntgen", False),  # accents are kept
        ("May 18 , 2018", "released on May 18, 2018.", True),
        ("$12", "nearly $12 a barrel", True),
        ("12", "112 and 120", False),
        ("pie", "a magpie", False),
        ("U.S.", "the U.S. Senate", True),
        ("US", "the U.S. Senate", False),
        ("well known", "a well-known song", False),
        ("1970", "in the 1970s", False),
        ("東京", "東京 は", True),
        ("東京", "東京は", False),  # words are runs of letters, whatever the script
        ("zero\u200bwidth", "zero width", True),  # a control character is between words
        ("", "anything", False),
        (" \u00a0", "anything", False),
    ],
)
def test_an_answer_stands_in_a_text_as_whole_words(answer, text, holds):
    assert Answers([answer]).in_text(text) == holds
    assert Answers(["absent", answer]).in_text(text) == holds


def test_a_pattern_is_searched_in_the_text_whatever_the_case():
    answers = Answers([r"Long\s?Island|Rhöde", "([broken"], "regex")
    assert answers.in_text("born on LongIsland")
    assert answers.in_text("a rho\u0308de")
    assert not answers.in_text("an island")
    assert not Answers(["", "([broken"], "regex")


def as_published(answer, text):
    """DPR's rule step by step: lists of lower-case tokens, one of which is a part of the other."""
    tokens = regex.compile(r"([\p{L}\p{N}\p{M}]+)|([^\p{Z}\p{C}])", regex.IGNORECASE | regex.UNICODE | regex.MULTILINE)
    text_tokens, answer_tokens = (
        [match.group().lower() for match in tokens.finditer(unicodedata.normalize("NFD", one))]
        for one in (text, answer)
    )
    places = range(len(text_tokens) - len(answer_tokens) + 1)
    return any(text_tokens[place : place + len(answer_tokens)] == answer_tokens for place in places)


letters = st.text(st.sampled_from("abAB.-' \n\u00a0\u0301éÉßΣσςİı1_東\u200d"), max_size=12)


@given(letters.filter(lambda one: answer_words(one).strip()), letters, letters)
def test_it_is_dprs_rule_on_any_text(answer, before, after):
    for text in (before + answer + after, f"{before} {answer.upper()} {after}", before + after):
        assert Answers([answer]).in_text(text) == as_published(answer, text)


def test_answers_are_read_from_the_queries(tmp_path):
    (tmp_path / "queries.jsonl").write_text(
        '{"_id": "a", "text": "x", "metadata": {"answers": ["Paris", 3]}}\n{"_id": "b", "text": "x"}\n'
        '{"_id": "c", "text": "x", "metadata": {"answers": "Paris"}}\n',
        encoding="utf-8",
    )
    assert read_answers(tmp_path / "queries.jsonl") == {"a": ["Paris"]}


def test_spans_are_where_the_words_of_an_answer_are():
    text = "The U.S. Café (1999) said: the cafe\u0301 in u.s., not in USA."
    spans = answer_spans(text, ["café", "U.S.", "1999", "SA", ""])
    assert [text[start:end] for start, end in spans] == ["U.S.", "Café", "1999", "cafe\u0301", "u.s."]


def test_spans_of_several_answers_may_overlap_and_are_given_once():
    text = "in October 1973 and October 1973"
    spans = answer_spans(text, ["October", "October 1973", "october"])
    assert [text[start:end] for start, end in spans] == ["October", "October 1973"] * 2


PIECES = st.lists(st.sampled_from(["a", "b.", "É", "e\u0301", "u-", "1", " ", "\n", "c"]), max_size=8).map("".join)


@given(PIECES, PIECES)
def test_a_text_has_a_span_exactly_if_it_has_the_answer(text, answer):
    spans = answer_spans(text, [answer])
    assert bool(spans) == Answers([answer]).in_text(text)
    assert all(answer_words(text[start:end]) == answer_words(answer) for start, end in spans)
