"""Lines of a text file from anywhere; an error says in a sentence what is wrong with the file."""

from __future__ import annotations

import gzip
import json
import reprlib
import zlib
from codecs import getincrementaldecoder
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

from gnnretrieval.errors import InputError, nearest
from gnnretrieval.progress import progress

LARGE_FILE = 64 * 2**20  # bytes; reading one takes seconds, so it shows its progress (law 9)

LONGEST_LINE = 64 * 2**20  # bytes; a gzip of megabytes may hold a line of gigabytes
LONGEST_TEXT = 2**30  # bytes of a file that is read whole
_PIECE = 2**20  # bytes of a line that is read in pieces

MARK = b"\xef\xbb\xbf"  # byte order mark of UTF-8
UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # how a file in it begins

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60
_SHORT.maxlevel = 2


def read_lines(path: Path, wanted: str, keep_all: bool = False) -> Iterator[tuple[int, str]]:
    """Number (from 1) and text of each line that is not blank, without line ending and byte order mark.

    Args:
        path: A UTF-8 file, plain or gzipped (seen from its content); lines end in LF or CRLF.
        wanted: The expected content, for errors.
        keep_all: Blank lines too, and every line with its ending.

    Raises:
        InputError: the file is missing, cannot be read or is not UTF-8, its gzip data is broken, or a line is longer
            than :data:`LONGEST_LINE`.
    """
    for number, raw in raw_lines(path, wanted):
        line = decoded(path, number, raw)
        if not keep_all:
            line = line.removesuffix("\n").removesuffix("\r")
        if keep_all or (line and not line.isspace()):
            yield number, line


def text_pieces(path: Path, wanted: str) -> Iterator[tuple[int, str]]:
    """Number of the line (from 1) and text of each piece of a file: a line with its ending, or some of a long one.

    Raises:
        InputError: as :func:`read_lines`, but lines may have any length.
    """
    decoder = getincrementaldecoder("utf-8")()
    number, begun = 1, b""  # bytes of a character that a piece's end cuts
    for number, raw in raw_lines(path, wanted, in_pieces=True):
        try:
            text = decoder.decode(raw)
        except UnicodeDecodeError:
            text = decoded(path, number, begun + raw)  # says what is wrong
        begun = decoder.getstate()[0]
        yield number, text
    decoded(path, number, begun)


def raw_lines(path: Path, wanted: str, keep_mark: bool = False, in_pieces: bool = False) -> Iterator[tuple[int, bytes]]:
    """Number (from 1) and bytes of each line, with its ending and without byte order mark, unless ``keep_mark``.

    Args:
        path: The file.
        wanted: The expected content, for errors.
        keep_mark: Leave the byte order mark.
        in_pieces: A long line comes in pieces under the same number, instead of being refused.

    Raises:
        InputError: as :func:`read_lines`, except that bytes are not decoded.
    """
    number = 0
    try:
        size = path.stat().st_size
        with (
            path.open("rb") as file,
            progress(f"reading {path.name}", size, "bytes") if size > LARGE_FILE else nullcontext() as meter,
        ):
            most, whole, first = _PIECE if in_pieces else LONGEST_LINE, True, not keep_mark
            for raw in iter(partial(unzipped(file).readline, most + 1), b""):
                number += whole
                whole = raw.endswith(b"\n")
                if not in_pieces:
                    require_short(path, number, len(raw))
                yield number, raw.removeprefix(MARK) if first else raw
                first = False
                if meter and number % 100_000 == 0:
                    meter.advance(file.tell() - meter.done)
            if meter:
                meter.advance(size - meter.done)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        reason = str(error).rstrip(".")
        raise InputError(f"the gzip data is broken ({reason}): copy or download it again.", path, number + 1) from None
    except FileNotFoundError:
        names = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
        beside = [name for name in names if name not in ("corpus.jsonl", "queries.jsonl")]  # never in place of another
        raise InputError(f"no such file; wanted {wanted}.{nearest(path.name, beside)}", path) from None
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror}); wanted {wanted}.", path) from None


def read_text(path: Path, wanted: str) -> str:
    """The whole of a file of at most :data:`LONGEST_TEXT`; errors as :func:`text_pieces`."""
    pieces, length = [], 0
    for _, piece in text_pieces(path, wanted):
        pieces.append(piece)
        length += len(piece)
        if length > LONGEST_TEXT:
            raise InputError(f"longer than {LONGEST_TEXT:,} characters; wanted {wanted}. Split the file.", path)
    return "".join(pieces)


def require_short(path: Path, number: int, length: int) -> None:
    """Refuse a line or record of more than :data:`LONGEST_LINE` bytes.

    Raises:
        InputError: it is longer.
    """
    if length > LONGEST_LINE:
        raise InputError(f"longer than {LONGEST_LINE:,} bytes, which is too long for one record.", path, number)


def unzipped(file: IO[bytes]) -> IO[bytes]:
    """The bytes in an open file, which may be gzipped."""
    begins = file.read(2)
    file.seek(0)
    return cast("IO[bytes]", gzip.GzipFile(fileobj=file)) if begins == b"\x1f\x8b" else file


def decoded(path: Path, number: int, raw: bytes) -> str:
    """A line as text.

    Raises:
        InputError: it is not UTF-8.
    """
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        hint = " (it looks like UTF-16)" if raw.startswith(UTF_16) else ""
        raise InputError(
            f"byte 0x{raw[error.start]:02x} at position {error.start + 1} is not UTF-8{hint}: save the file as UTF-8.",
            path,
            number,
        ) from None


def require_characters(value: Any, path: Path | None = None, line: int | None = None, where: str = "") -> None:
    """Refuse a value of JSON with half of a surrogate pair in it: ``\\ud800`` is no character, and no file can hold it.

    Raises:
        InputError: it has one.
    """
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise InputError(
            f"half of a surrogate pair (\\ud800 to \\udfff) is in {where or 'this record'}, which is no character: "
            "remove it.",
            path,
            line,
        ) from None


def excerpt(value: Any) -> str:
    """``value`` as it is shown in an error: its repr, cut to about 60 characters."""
    return _SHORT.repr(value)
