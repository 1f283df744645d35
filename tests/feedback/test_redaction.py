import re
from string import ascii_lowercase

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnretrieval.feedback.redaction import redacted

WORD = st.text(ascii_lowercase, min_size=2, max_size=8)
DIGITS = st.text("0123456789", min_size=4, max_size=4)
PLANTED = st.one_of(
    st.builds(lambda a, b, c: f"{a}.{b}@{c}.example.org", WORD, WORD, WORD),
    st.builds(lambda a, b: f"+49 30 {a}-{b}", DIGITS, DIGITS),
    st.builds(lambda a, b: f"0171 {a}{b}", DIGITS, DIGITS),
    st.builds(lambda a: f"(555) 123-{a}", DIGITS),
    st.builds(lambda a, b: f"DE89 3704 0044 {a} {b} 00", DIGITS, DIGITS),
    st.builds(lambda a, b: f"gb29NWBK60161331{a}{b[:2]}", DIGITS, DIGITS),
    st.builds(lambda a, b, c: f"4111-{a}-{b}-{c}", DIGITS, DIGITS, DIGITS),
)


@settings(max_examples=50)
@given(before=WORD, planted=PLANTED, after=WORD)
def test_no_planted_address_or_number_is_left(before, planted, after):
    masked = redacted(f"{before} {planted} {after}?")
    assert masked.startswith(f"{before} [")
    assert masked.endswith(f"] {after}?")
    assert not re.search(r"\d|@", masked)


@settings(max_examples=50)
@given(PLANTED)
def test_masking_twice_is_masking_once(planted):
    assert redacted(redacted(f"call {planted} now")) == redacted(f"call {planted} now")


@pytest.mark.parametrize(
    "text",
    [
        "numpy 2.1.3 on 2026-03-01",
        "error 4711",
        "due 01.02.2026",
        "port 8080 to 10.0.0.1",
        "ISO 9001",
        "a@b",
        "top 100",
    ],
)
def test_usual_numbers_stay(text):
    assert redacted(text) == text


def test_wide_signs_are_seen_too():
    assert redacted("mail bob＠example.com, ＋４９ ３０ １２３４５６７") == "mail [email], [phone]"


@pytest.mark.parametrize("text", ["030 1234567+49 30 123456", "+7929321+0855121", "(03104349+4297827"])
def test_a_number_that_follows_another_one_without_a_space_is_masked_too(text):
    assert redacted(text).lstrip("(") == "[phone][phone]"
    assert redacted(redacted(text)) == redacted(text)
