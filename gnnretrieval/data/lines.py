"""Lines of a text file from anywhere, with what is wrong with it said in a sentence."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from gnnretrieval.errors import InputError, nearest
from gnnretrieval.progress import progress

LARGE_FILE = 256 * 2**20  # bytes; reading one takes seconds, so it shows its progress (law 9)

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60
_SHORT.maxlevel = 2


def read_lines(path: Path, wanted: str) -> Iterator[tuple[int, str]]:
    """Number (from 1) and text of each line that is not blank, without line ending and byte order mark.

    Args:
        path: A UTF-8 file; lines end in LF or CRLF.
        wanted: What should be in it, for errors.

    Raises:
        InputError: no such file, it cannot be read, or it is not UTF-8.
    """
    try:
        size = path.stat().st_size
        with (
            path.open("rb") as file,
            progress(f"reading {path.name}", size, "bytes") if size > LARGE_FILE else (nullcontext()) as meter,
        ):
            for number, raw in enumerate(file, start=1):
                line = _decoded(path, number, raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw).rstrip("\r\n")
                if line and not line.isspace():
                    yield number, line
                if meter and number % 100_000 == 0:
                    meter.advance(file.tell() - meter.done)
            if meter:
                meter.advance(size - meter.done)
    except FileNotFoundError:
        beside = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
        beside = [name for name in beside if name not in ("corpus.jsonl", "queries.jsonl")]  # they have their own place
        raise InputError(f"no such file; wanted {wanted}.{nearest(path.name, beside)}", path) from None
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror}); wanted {wanted}.", path) from None


def _decoded(path: Path, number: int, raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        hint = " (it looks like UTF-16)" if raw.startswith((b"\xff\xfe", b"\xfe\xff")) else ""
        raise InputError(
            f"byte 0x{raw[error.start]:02x} at position {error.start + 1} is not UTF-8{hint}: save the file as UTF-8.",
            path,
            number,
        ) from None


def excerpt(value: Any) -> str:
    """``value`` as it is shown in an error: its repr, cut to about 60 characters."""
    return _SHORT.repr(value)
