from contextlib import suppress

import pytest

from gnnretrieval.data.inspection.spoilt_text import spoilt

SOUND = [
    "«É» «É»… MANHÃ—e NÃO SÃO» «café»… «idée»” Beyoncé’s Zoë’s",
    "10 °C, £5, ½ mile, § 3, œuvre, Îles, Âge, à «Paris», “À la carte”, ÂGÉ",
    "Ελληνικά русский текст 日本語 한국어 العربية עברית हिन्दी 😀 – — … ’ ‘",
    "tabs\tand\nline\r\nbreaks, next line \x85, soft hy\xadphen, zero\u200bwidth",
    "AT&T; R&D; a&b; if x < b and c > d: List<int> <- -> <3",
]
MOJIBAKE = ["é", "naïve", "it’s", "“x”", "5 €", "при", "日本", "😀", "Ελλάδα", "ñ", "ü", "ß", "10 °C", "a – b"]


@pytest.mark.parametrize("text", SOUND)
def test_real_text_of_many_scripts_is_sound(text):
    assert list(spoilt(text)) == []


@pytest.mark.parametrize("text", MOJIBAKE)
def test_utf_8_that_was_read_as_latin_1_or_windows_1252_is_found(text):
    wrong = [text.encode().decode("latin-1")]
    with suppress(UnicodeDecodeError):  # windows-1252 has no character for five bytes
        wrong.append(text.encode().decode("cp1252"))
    for spoiled in wrong:
        assert "doubly encoded" in [fault.kind for fault in spoilt(spoiled)]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("\x00", "control character"),
        ("\x1b[31mred", "control character"),
        ("smart \x93quotes\x94", "control character"),
        ("caf\ufffd", "replacement character"),
        ("&amp;", "HTML entity"),
        ("&#39;s and &#x27;s", "HTML entity"),
        ("one<br>two", "HTML tag"),
        ("<a href='x'>link</A>", "HTML tag"),
    ],
)
def test_each_trace_is_found(text, kind):
    assert [fault.kind for fault in spoilt(text)] == [kind]


def test_what_is_shown_has_no_character_that_a_terminal_obeys():
    (fault,) = spoilt("a long text before \x1b[31m and after it")
    assert fault.says.isprintable()
    assert "…" in fault.says


def test_several_traces_in_one_text_are_all_found_once():
    assert [fault.kind for fault in spoilt("<p>&amp;</p> \x07 \ufffd é Ã© <p>")] == [
        "control character",
        "replacement character",
        "doubly encoded",
        "HTML entity",
        "HTML tag",
    ]
