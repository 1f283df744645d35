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
from gnnretrieval.data.inspection.quantiles import Distribution, in_equal_bins, spread
from gnnretrieval.data.inspection.same_text import text_key
from gnnretrieval.data.lines import LARGE_FILE
from gnnretrieval.data.records import Passage
from gnnretrieval.pages.reports import Figures
from gnnretrieval.progress import Meter, progress

Side = Literal["passage", "query"]
Rows = NDArray[np.int64]

COMPARED = 10_000_000  # texts compared at most (320 MB of signatures); of more, a seeded sample
TOKENISED = 200_000  # texts tokenised at most; this gives the share of truncated texts to 0.2 %
_BLOCK = 2048


class _Sample(Figures):
    texts: int
    """Size of the sample that was counted."""
    of: int
    """All texts."""
    limit: int | None
    """The encoder's limit in tokens; None: it has none."""


class TokenLengths(Distribution, _Sample):  # in JSON the fields of the last base come first
    """Lengths of texts in tokens, with special tokens and the prompt."""

    cut: int
    """Texts longer than the limit."""
    share_cut: float
    tokens_lost: int
    """Tokens beyond the limit."""
    share_lost: float
    """Share of all tokens."""


class Tokens(Figures):
    """Lengths in an encoder's tokens."""

    encoder: str
    passages: TokenLengths
    queries: TokenLengths


class NamedText(Figures):
    """A passage or query."""

    id: str
    text: str


class NearTextPair(Figures):
    """Two texts that are alike."""

    similarity: float
    pair: list[NamedText]


class NearDuplicateTexts(Figures):
    """Near-duplicates among the passages, or among the queries."""

    compared: int
    """Compared texts: one of equal ones."""
    of: int
    """Different texts."""
    pairs: int
    near: int
    """Texts in a pair."""
    share: float
    """``near`` / ``compared``."""
    is_whole: bool
    """False: there may be more pairs."""
    examples: list[NearTextPair]
    """The most similar pairs; no text is in two of them."""


class TokenCounter(Protocol):
    """An encoder's tokenizer."""

    @property
    def name(self) -> str:
        """Name of the encoder."""

    @property
    def limits(self) -> Mapping[Side, int | None]:
        """Maximum length by side, in tokens with special tokens; None where there is no limit."""

    def count(self, texts: Sequence[str], side: Side) -> NDArray[np.int64]:
        """Number of tokens of each text ``(len(texts),)`` before truncation, with prompt and special tokens."""


@dataclass(frozen=True)
class TextPass:
    """Result of a pass over the texts: about 20 bytes per text, and the near-duplicates.

    Attributes:
        words: Number of words of each text ``(n,)``, without its title.
        without_title: Number of texts without a title.
        group: Group of each text ``(n,)``; texts in a group have the same normalised text.
        first: First row of each group ``(groups,)``.
        near: Near-duplicates; at most one row of each group takes part.
        compared: Number of rows that took part.
        tokens: Number of tokens of each text of a sample ``(t,)``; None without a tokenizer.
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
    """Read passages, or queries as passages without a title, once or twice.

    Args:
        records: A function that reads the records from the first one.
        count: Number of records.
        side: Whether they are passages or queries.
        file: Their file; the reader of a large file shows progress, so none is shown here.
        tokens: A tokenizer; None: tokens are not counted.
        seed: Seed of the samples.
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
    # Near-duplicates are sought among different texts only; equal texts have their own figures.
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    distinct = np.flatnonzero(np.isin(chosen, first, assume_unique=True))  # of the sample, one row per group

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
    """The sorted rows that are in ``part``."""
    first, last = np.searchsorted(rows, (part.start, part.stop))
    inside: list[int] = rows[first:last].tolist()
    return inside


def _compared(record: Passage) -> str:
    """The text that is compared for duplicates: the title only where there is no text."""
    return record.text or record.title


def _blocks(records: Iterable[Passage]) -> Iterator[tuple[int, list[Passage]]]:
    """Blocks of records, each with its first row."""
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


def lengths_of(counts: NDArray[Any]) -> Distribution:
    """Quantiles and a histogram of lengths."""
    return Distribution(**dict(spread(counts)), histogram=in_equal_bins(counts))


def tokens_of(counter: TokenCounter | None, passages: TextPass, queries: TextPass) -> Tokens | None:
    """Lengths in the tokens of ``counter``; None without a counter."""
    if counter is None or passages.tokens is None or queries.tokens is None:
        return None
    return Tokens(
        encoder=counter.name,
        passages=token_lengths(passages.tokens, len(passages.words), counter.limits["passage"]),
        queries=token_lengths(queries.tokens, len(queries.words), counter.limits["query"]),
    )


def token_lengths(counts: NDArray[Any], of: int, limit: int | None) -> TokenLengths:
    """Figures of the token ``counts`` of a sample of ``of`` texts, and of the tokens beyond ``limit``."""
    lost = np.maximum(counts - limit, 0) if limit is not None else np.zeros_like(counts)
    return TokenLengths(
        texts=len(counts),
        of=of,
        limit=limit,
        **dict(lengths_of(counts)),
        cut=int((lost > 0).sum()),
        share_cut=float((lost > 0).mean()),
        tokens_lost=int(lost.sum()),
        share_lost=float(lost.sum() / counts.sum()),
    )


def repeated(texts: TextPass, ids: Sequence[str], most: int) -> list[list[str]]:
    """Pairs of ids of equal texts, the earlier first, for the first ``most`` repeated texts."""
    earlier = texts.first[texts.group]
    rows = np.flatnonzero(earlier != np.arange(len(earlier)))[:most]
    return [[ids[earlier[row]], ids[row]] for row in rows]


def near_figures(texts: TextPass, ids: Sequence[str], most: int) -> NearDuplicateTexts:
    """Near-duplicates, with at most ``most`` examples."""
    near = texts.near
    examples, shown = list[NearTextPair](), set[int]()
    for one, other, alike in near.pairs:
        if len(examples) == most:
            break
        if not {one, other} & shown:
            shown |= {one, other}
            pair = [NamedText(id=ids[row], text=near.texts[row]) for row in (one, other)]
            examples.append(NearTextPair(similarity=alike, pair=pair))
    paired = len({row for pair in near.pairs for row in pair[:2]})
    return NearDuplicateTexts(
        compared=texts.compared,
        of=len(texts.first),
        pairs=len(near.pairs),
        near=paired,
        share=paired / texts.compared,
        is_whole=near.is_whole,
        examples=examples,
    )
