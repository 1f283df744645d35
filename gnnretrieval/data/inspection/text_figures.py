"""Lengths and duplicates of a dataset's passages or queries, from one pass over their texts and a second for pairs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.inspection.near_texts import HASHES, NearPairs, Signer, near_pairs
from gnnretrieval.data.inspection.quantiles import in_equal_bins, spread
from gnnretrieval.data.inspection.same_text import text_key
from gnnretrieval.data.lines import LARGE_FILE
from gnnretrieval.data.records import Passage
from gnnretrieval.progress import Meter, progress

Side = Literal["passage", "query"]
Rows = NDArray[np.int64]

COMPARED = 10_000_000  # texts compared at most (320 MB of signatures): of more, a seeded choice
TOKENISED = 200_000  # texts cut into tokens at most: the share that is cut is then known to 0.2 %
_BLOCK = 2048


class TokenCounter(Protocol):
    """An encoder's tokenizer."""

    @property
    def name(self) -> str:
        """The encoder."""

    @property
    def limits(self) -> Mapping[Side, int | None]:
        """Tokens after which it cuts a text of a side off, special ones counted; None where it has no limit."""

    def count(self, texts: Sequence[str], side: Side) -> NDArray[np.int64]:
        """``(len(texts),)`` tokens of each text before it is cut, with prompt and special tokens."""


@dataclass(frozen=True)
class TextPass:
    """What a pass over the texts keeps: some 20 bytes a text, beside the near-duplicates.

    Attributes:
        words: ``(n,)`` words of each text, its title not counted.
        without_title: Texts without a title.
        group: ``(n,)`` a number for each text, equal where normalised texts are.
        first: ``(groups,)`` the first row of each group.
        near: Near-duplicates, of which at most one row of a group is looked at.
        compared: Rows that were looked at for them.
        tokens: ``(t,)`` tokens of a choice of texts; None without a tokenizer.
    """

    words: NDArray[np.int32]
    without_title: int
    group: Rows
    first: Rows
    near: NearPairs
    compared: int
    tokens: NDArray[np.int64] | None


def pass_over(
    records: Callable[[], Iterable[Passage]], count: int, side: Side, file: Path, tokens: TokenCounter | None, seed: int
) -> TextPass:
    """Read ``count`` passages, or queries as passages without a title, once or twice.

    Args:
        records: Reads them from the first one.
        count: How many there are.
        side: What they are.
        file: Where they are: a large one shows the progress of its reading itself.
        tokens: The tokenizer, if there is one.
        seed: Of what is sampled.
    """
    words, keys = np.empty(count, dtype=np.int32), np.empty(count, dtype=np.uint64)
    chosen, tokenised = _choice(count, COMPARED, seed), _choice(count, TOKENISED if tokens else 0, seed)
    signed, signer = np.empty((len(chosen), HASHES), dtype=np.uint8), Signer()
    lengths: list[NDArray[np.int64]] = []
    place = without_title = 0
    with _progress(f"{side} texts", count, "texts", file) as meter:
        for start, block in _blocks(records()):
            rows = slice(start, start + len(block))
            words[rows] = [len(record.text.split()) for record in block]
            without_title += sum(not record.title for record in block)
            compared = [_compared(record) for record in block]
            keys[rows] = [text_key(text) for text in compared]
            texts = [compared[row - start] for row in _between(chosen, rows)]
            signed[place : place + len(texts)] = signer.sign(texts) if texts else signed[:0]
            place += len(texts)
            if tokens and (wanted := [block[row - start].full_text for row in _between(tokenised, rows)]):
                lengths.append(tokens.count(wanted, side))
            if meter:
                meter.advance(len(block))
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    distinct = np.flatnonzero(np.isin(chosen, first, assume_unique=True))  # of the chosen, those that repeat none

    def texts_of(rows: Collection[int]) -> dict[int, str]:
        place_of = {int(chosen[row]): row for row in rows}
        return {place_of[row]: _compared(record) for row, record in enumerate(records()) if row in place_of}

    near = near_pairs(distinct, signed, texts_of) if len(distinct) > 1 else NearPairs([], {}, True)
    in_dataset = NearPairs(
        [(int(chosen[one]), int(chosen[other]), alike) for one, other, alike in near.pairs],
        {int(chosen[row]): text for row, text in near.texts.items()},
        near.is_whole,
    )
    counted = np.concatenate(lengths) if lengths else None
    return TextPass(words, without_title, group, first, in_dataset, len(distinct), counted)


def _choice(count: int, most: int, seed: int) -> Rows:
    if count <= most:
        return np.arange(count)
    return np.sort(np.random.default_rng([seed, count]).choice(count, most, replace=False))


def _between(rows: Rows, part: slice) -> list[int]:
    """Those of the sorted rows that lie in a part of all."""
    first, last = np.searchsorted(rows, (part.start, part.stop))
    found: list[int] = rows[first:last].tolist()
    return found


def _compared(record: Passage) -> str:
    """The text by which duplicates are known: titles are not in it, unless there is nothing else."""
    return record.text or record.title


def _blocks(records: Iterable[Passage]) -> Iterator[tuple[int, list[Passage]]]:
    """The records in blocks, each with the row that it begins at."""
    start, block = 0, list[Passage]()
    for record in records:
        block.append(record)
        if len(block) == _BLOCK:
            yield start, block
            start, block = start + len(block), []
    if block:
        yield start, block


def _progress(label: str, count: int, unit: str, file: Path) -> AbstractContextManager[Meter | None]:
    return nullcontext() if file.stat().st_size > LARGE_FILE else progress(label, count, unit)


def lengths_of(counts: NDArray[Any]) -> dict[str, Any]:
    """:func:`~gnnretrieval.data.inspection.quantiles.spread` of lengths, and their ``histogram``."""
    return {**spread(counts), "histogram": in_equal_bins(counts)}


def tokens_of(found: TextPass, limit: int | None) -> dict[str, Any] | None:
    """Lengths in tokens as JSON values, special tokens and the prompt counted.

    Returns:
        ``texts`` (how many were counted), ``of``, ``limit``, ``median``, ``p95``, ``max``, ``histogram``, ``cut``
        (texts longer than the limit), ``share_cut``, ``tokens_lost`` (beyond it) and ``share_lost`` (of the tokens).
    """
    if found.tokens is None:
        return None
    lost = np.maximum(found.tokens - limit, 0) if limit is not None else np.zeros_like(found.tokens)
    return {
        "texts": len(found.tokens),
        "of": len(found.words),
        "limit": limit,
        **lengths_of(found.tokens),
        "cut": int((lost > 0).sum()),
        "share_cut": float((lost > 0).mean()),
        "tokens_lost": int(lost.sum()),
        "share_lost": float(lost.sum() / found.tokens.sum()),
    }


def repeated(found: TextPass, ids: Sequence[str], most: int) -> list[list[str]]:
    """Ids of the first ``most`` texts that an earlier one has, each behind that of the earlier one."""
    earlier = found.first[found.group]
    rows = np.flatnonzero(earlier != np.arange(len(earlier)))[:most]
    return [[ids[earlier[row]], ids[row]] for row in rows]


def near_figures(found: TextPass, ids: Sequence[str], most: int) -> dict[str, Any]:
    """Near-duplicates as JSON values.

    Returns:
        ``compared`` (texts that were looked at, of equal ones the first), ``of`` (different texts there are),
        ``pairs``, ``near`` (texts in a pair), ``share`` (of those compared), ``is_whole`` (False: there may be more)
        and ``examples`` (``similarity`` and two of ``id`` and ``text``), most similar first, no text twice.
    """
    near = {row for pair in found.near.pairs for row in pair[:2]}
    examples, shown = list[dict[str, Any]](), set[int]()
    for one, other, alike in found.near.pairs:
        if len(examples) == most:
            break
        if not {one, other} & shown:
            shown |= {one, other}
            pair = [{"id": ids[row], "text": found.near.texts[row]} for row in (one, other)]
            examples.append({"similarity": alike, "pair": pair})
    return {
        "compared": found.compared,
        "of": len(found.first),
        "pairs": len(found.near.pairs),
        "near": len(near),
        "share": len(near) / found.compared,
        "is_whole": found.near.is_whole,
        "examples": examples,
    }
