"""Reading the runs of any tool: TREC's six columns, MS MARCO's three, and the JSON that BEIR and ranx keep."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

from gnnretrieval.data.lines import excerpt
from gnnretrieval.data.runs.lines import RunLines, blocks_of
from gnnretrieval.data.runs.ranking import Ranking, Run
from gnnretrieval.errors import InputError
from gnnretrieval.progress import say

_JSON = re.compile(rb"\s*\{\s*([\"}]|$)")  # an object; a query id may begin with a brace too


def read_run(path: str | Path, warn: Callable[[str], None] = say, *, may_be_empty: bool = False) -> Run:
    """Read a run: rankings by query id, each in the project's one order.

    It has TREC's six columns, or all but the tag; or MS MARCO's ``query id, passage id, rank``, with negated ranks as
    scores; or is JSON, ``{query id: {passage id: score}}``. It may be gzipped (seen from its content), with either line
    ending, blank lines or a byte order mark. Where there are scores they decide, as in trec_eval, and ``warn`` is told
    where the ranks contradict them. With ``may_be_empty``, an empty file is a run without results.

    Raises:
        InputError: the file is missing, not UTF-8 or empty, or has a wrong number of columns, a score that is no
            number, or a passage (without scores: a rank) twice for one query; with file and line.
    """
    path = Path(path)
    try:
        blocks = blocks_of(path)
        first = next(blocks, b"")
        if may_be_empty and not first:
            return {}
        if _JSON.match(first):
            return _of_json(path, b"".join([first, *blocks]))
        lines = RunLines(path)
        for block in chain([first], blocks):
            lines.take(block)
        return lines.run(warn)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        reason = str(error).rstrip(".")
        raise InputError(f"the gzip data is broken ({reason}): copy or download it again.", path) from None
    except FileNotFoundError:
        raise InputError("no such file; a TREC run was expected there.", path) from None
    except IsADirectoryError:
        raise InputError("this is a directory; a TREC run file was expected there.", path) from None
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror}); a TREC run was expected there.", path) from None


def _of_json(path: Path, content: bytes) -> Run:
    try:
        parsed = json.loads(content.decode(), object_pairs_hook=_unique)
    except UnicodeDecodeError as error:
        raise InputError(f"byte 0x{content[error.start]:02x} is not UTF-8: save the run as UTF-8.", path) from None
    except json.JSONDecodeError as error:
        raise InputError(
            f"not JSON: {error.msg.removesuffix(' at')} at column {error.colno}; wanted a whole run.",
            path,
            error.lineno,
        ) from None
    except (_TwiceError, RecursionError) as error:
        reason = f"{error} is there twice in one object: keep one." if isinstance(error, _TwiceError) else "too deep."
        raise InputError(reason, path) from None
    run: Run = {}
    for query, scores in parsed.items():
        if not isinstance(scores, dict):
            raise _not_a_run(path, f"{excerpt(scores)} for query {excerpt(query)}")
        for passage, score in scores.items():
            if isinstance(score, bool) or not isinstance(score, int | float) or score != score:
                raise _not_a_run(path, f"score {excerpt(score)} for {excerpt(passage)} of query {excerpt(query)}")
            if "\n" in passage or "\r" in passage:
                raise _not_a_run(path, f"passage id {excerpt(passage)} with a line break")
        run[query] = Ranking(list(scores), [_as_float(score) for score in scores.values()])
    if not run:
        raise InputError("this run is empty; wanted {query id: {passage id: score}}.", path)
    return run


class _TwiceError(Exception):
    pass


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _TwiceError(repr(next(key for place, key in enumerate(keys) if key in keys[:place])))
    return unique


def _as_float(score: float) -> float:
    try:
        return float(score)
    except OverflowError:  # an integer of hundreds of digits
        return float("inf") if score > 0 else float("-inf")


def _not_a_run(path: Path, fault: str) -> InputError:
    return InputError(f"found {fault}; wanted a run, {{query id: {{passage id: score}}}}: correct it.", path)
