"""The elements of a JSON array in a file of any size, one at a time."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gnnretrieval.data.lines import excerpt, require_characters, require_short, text_pieces
from gnnretrieval.errors import InputError

_BLANK = re.compile(r"[ \t\r\n]*")
_LITERAL = 12  # characters that a word, a number's exponent or an escape may be cut off in


def json_array(path: Path, wanted: str) -> Iterator[tuple[int, Any]]:
    """Line (from 1) and value of each element of the array in ``path``, plain or gzipped.

    Reading goes on until an element is complete. An element that is too long or never complete is refused.

    Args:
        path: The file.
        wanted: The expected content, for errors.

    Raises:
        InputError: it is no JSON array, or is cut off, or something follows the array.
    """
    lines = _Lines(path, wanted)
    lines.expect("[", f"wanted {wanted}, as a JSON list")
    if lines.next_is("]"):
        lines.end()
        return
    while True:
        number = lines.skip_blank()
        yield number, lines.value()
        if lines.next_is("]"):
            lines.end()
            return
        lines.expect(",", "wanted a comma, or the end of the list")


class _Lines:
    """Text that grows by pieces, and the place in it."""

    def __init__(self, path: Path, wanted: str) -> None:
        self.path = path
        self.source = text_pieces(path, wanted)
        self.text, self.place, self.line, self.last = "", 0, 1, 0  # `line`: of `place`; `last`: read so far
        self.decoder = json.JSONDecoder()

    def grow(self) -> bool:
        """Read a piece, or as much again as is unread; returns whether there was any."""
        parts: list[str] = []
        wanted = max(1, len(self.text) - self.place)
        while wanted > 0 and (piece := next(self.source, None)) is not None:
            self.last, text = piece
            parts.append(text)
            wanted -= len(text)
        if parts:
            self.text = self.text[self.place :] + "".join(parts)
            self.place = 0
        return bool(parts)

    def skip_blank(self) -> int:
        """Go to the next character that is not blank; returns its line."""
        while True:
            blank = _BLANK.match(self.text, self.place)
            assert blank is not None
            self.move(blank.end())
            if self.place < len(self.text) or not self.grow():
                return self.line

    def move(self, place: int) -> None:
        self.line += self.text.count("\n", self.place, place)
        self.place = place

    def next_is(self, sign: str) -> bool:
        """Whether ``sign`` comes next; it is passed over then."""
        self.skip_blank()
        if self.text.startswith(sign, self.place):
            self.move(self.place + 1)
            return True
        return False

    def expect(self, sign: str, wanted: str) -> None:
        if not self.next_is(sign):
            present = excerpt(self.text[self.place : self.place + 60]) if self.place < len(self.text) else "the end"
            raise InputError(f"found {present}, {wanted}. Is the file cut off?", self.path, self.line)

    def value(self) -> Any:
        """The value at this place."""
        while True:
            try:
                value, end = self.decoder.raw_decode(self.text, self.place)
            except RecursionError:
                raise InputError("this element is nested too deeply to be read.", self.path, self.line) from None
            except json.JSONDecodeError as error:
                if self._may_go_on(error):
                    require_short(self.path, self.line, len(self.text) - self.place)
                    if self.grow():
                        continue
                number = self.line + self.text.count("\n", self.place, error.pos)
                cut = " Is the file cut off?" if self._may_go_on(error) else ""
                raise InputError(f"not JSON: {error.msg}.{cut}", self.path, number) from None
            except ValueError as error:  # a number of too many digits
                raise InputError(f"not JSON: {error}.", self.path, self.line) from None
            if end == len(self.text) and self.grow():
                continue  # a number may go on in the next line's text
            if "\\u" in self.text[self.place : end]:
                require_characters(value, self.path, self.line)
            self.move(end)
            return value

    def _may_go_on(self, error: json.JSONDecodeError) -> bool:
        """Whether the error may only mean that the element continues beyond the text read so far."""
        return error.msg.startswith("Unterminated string") or error.pos >= len(self.text.rstrip()) - _LITERAL

    def end(self) -> None:
        self.skip_blank()
        if self.place < len(self.text):
            rest = excerpt(self.text[self.place : self.place + 60])
            raise InputError(f"found {rest} after the end of the list: delete it.", self.path, self.line)
