"""Traces of spoilt text: wrong decoding, control characters, markup.

A dataset with these traces can be used. So each check is careful: it does not report what correct text may contain.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.entities import html5

from gnnretrieval.data.faults import Fault

# C1 controls of Latin-1, and the characters that windows-1252 has instead: the bytes 0x80 to 0x9f of UTF-8 that was
# decoded by one of the two.
_C1 = "\x80-\x9f€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ"
_NEXT = f"[{_C1}\xa0-\xbf]"  # any byte of a character but its first
# Without quotation marks, dashes and dots, which may follow a letter in correct text: « É », MANHÃ—, café…
_NEVER_AFTER_A_LETTER = "[\x80-\x84\x86-\x90\x98-\x9a\x9c-\x9f€‚ƒ†‡ˆ‰Š‹ŒŽ˜™šœžŸ¡-ª¬-º¼-¾]"
_MOJIBAKE = re.compile(
    f"Ã{_NEVER_AFTER_A_LETTER}"  # Ã© for é
    "|Â[\xa0¡-ª¬-º¼-¾]"  # Â° for °
    f"|â(?:€|\x80){_NEXT}"  # â€™ for ’
    f"|â(?:‚|\x82|„|\x84)[{_C1}¡-ª¬-º¼-¿]"  # â‚¬ for €
    f"|ð(?:Ÿ|\x9f){_NEXT}{_NEXT}"  # ðŸ˜€ for an emoji
    "|ï»¿|ï¿½"  # a byte order mark, U+FFFD
    f"|(?:[Ã-ß]{_NEXT}){{3}}"  # Ð¿Ñ€Ð¸ for при
    f"|(?:[à-ï]{_NEXT}{{2}}){{2}}"  # æ—¥æœ¬ for 日本
)
_REPLACEMENT = re.compile("\ufffd")
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f]")  # not tab, line breaks and NEL
_ENTITY = re.compile(r"&(?:#[0-9]{2,7}|#[xX][0-9a-fA-F]{2,6}|[a-zA-Z][a-zA-Z0-9]{1,30});")
_TAG = re.compile(
    r"</?(?:p|br|hr|div|span|a|b|i|u|em|strong|sup|sub|small|big|font|center|ul|ol|li|dl|dt|dd|table|tbody|thead|tr|td|th"
    r"|h[1-6]|img|pre|code|blockquote|cite|ref|nowiki|script|style|html|head|body|meta|link)"
    r"(?:\s+[a-zA-Z-]+\s*=[^<>]*)?\s*/?>",
    re.IGNORECASE,
)
_AROUND = 12  # characters shown on each side


def spoilt(text: str) -> Iterator[Fault]:
    """The traces in a text, one per kind."""
    if not text.isprintable() and (match := _CONTROL.search(text)):
        yield Fault(
            "control character",
            f"U+{ord(match[0]):04X} in {_around(text, match)}: remove it, or decode the source with its encoding.",
        )
    if not text.isascii():
        if match := _REPLACEMENT.search(text):
            yield Fault(
                "replacement character",
                f"U+FFFD in {_around(text, match)} replaces bytes that could not be decoded: decode the source again.",
            )
        if match := _MOJIBAKE.search(text):
            yield Fault(
                "doubly encoded",
                f"{_around(text, match)} looks like UTF-8 that was read as Latin-1: decode the source as UTF-8.",
            )
    if "&" in text and (match := _entity(text)):
        yield Fault("HTML entity", f"{match[0]} in {_around(text, match)}: unescape it.")
    if "<" in text and (match := _TAG.search(text)):
        yield Fault("HTML tag", f"a tag in {_around(text, match)}: remove the markup.")


def _entity(text: str) -> re.Match[str] | None:
    """The first valid character reference; &c; is not one."""
    references = _ENTITY.finditer(text)
    return next((match for match in references if match[0][1] == "#" or match[0][1:] in html5), None)


def _around(text: str, match: re.Match[str]) -> str:
    """The match with its context, as a Python literal, so that no control character reaches a terminal."""
    first, last = max(0, match.start() - _AROUND), min(len(text), match.end() + _AROUND)
    return repr(f"{'…' if first else ''}{text[first:last]}{'…' if last < len(text) else ''}")
