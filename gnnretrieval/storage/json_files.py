"""Reading JSON files from untrusted sources: size and depth are bounded, and errors are plain sentences."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from gnnretrieval.errors import InputError

_HALF = re.compile(rb"\\u[dD][89a-fA-F]")  # UTF-16 writes some characters as two halves; one half alone is not text
MOST_BYTES = 256 * 2**20  # of a JSON file that is read whole; the parsed value takes several times that


def read_json(path: Path, what: str) -> Any:
    """The value in a JSON file.

    Args:
        path: The file.
        what: What the file should be, for errors, such as ``checkpoint's configuration``.

    Raises:
        InputError: The file cannot be read, is not JSON or not Unicode, is nested too deeply, or is longer than
            :data:`MOST_BYTES`.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror}); wanted a {what}.", path) from None
    if len(raw) > MOST_BYTES:
        raise InputError(f"longer than {MOST_BYTES >> 20} MiB, which is too long for a {what}.", path)
    try:
        value = json.loads(raw)
        if _HALF.search(raw):
            json.dumps(value, ensure_ascii=False).encode()  # fails on half a character
        return value
    except UnicodeEncodeError:
        raise InputError(f"a text in this {what} has half a character in it.", path) from None
    except RecursionError:
        raise InputError(f"this JSON is nested too deeply for a {what}.", path) from None
    except ValueError as error:  # not JSON, not UTF-8, or a number of too many digits
        raise InputError(f"this is no {what}: {error}.", path) from None
