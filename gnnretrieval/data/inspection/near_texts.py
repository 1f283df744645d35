"""Near-duplicates among millions of texts: MinHash signatures of 32 bytes per text, then exact comparison.

The similarity of two texts is the Jaccard similarity of their sets of words and pairs of adjacent words. Signatures
give candidate pairs (Broder, "On the resemblance and containment of documents", 1997); one byte per hash is stored (Li
and König, "b-Bit minwise hashing", 2010). A signature is split into bands, and candidates agree in at least one band.
Candidates are then compared word by word.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.progress import progress
from gnnretrieval.storage.arrays import blocks

# At this similarity, two passages of a hundred words differ in about five words, and two questions of thirteen words in
# one that is left out. Pairs below it are often questions of one pattern with different meanings: "What did the king
# offer in exchange for the hat" and "the whistle" have 0.80, "the capital of France" and "of Spain" 0.69.
NEAR = 0.85
# A pair agrees in one of the eight bands with probability 0.997 at similarity 0.85, and 0.4 at similarity 0.5.
HASHES, BAND = 32, 4
AGREEING = 21  # least number of equal hashes of a candidate pair; a pair at 0.85 has fewer with probability 0.003
WINDOW = 16  # neighbours with an equal band that a text is compared with, those with an equal next band first
PAIRS = 100_000  # pairs that are compared word by word, at most: those with the most equal hashes
_ROWS, _REMEMBERED = 2**20, 200_000  # pairs of signatures that are compared at once; cached hashes of words
_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # written without spaces: each character is a word
_SIGNS = "[<>=+*/%^|~@#$&]"  # signs that carry meaning: R1 < 0 is not R1 > 0
_WORD = re.compile(rf"[{_CJK}]|[^\W{_CJK}]+|{_SIGNS}")
_ASCII_WORD = re.compile(rf"[a-z0-9_]+|{_SIGNS}")

Signatures = NDArray[np.uint8]  # (n, HASHES)
Rows = NDArray[np.int64]
_Features = set[str | tuple[str, str]]


class NearPairs(NamedTuple):
    """Near-duplicates among texts.

    Attributes:
        pairs: Lower row, higher row and similarity of each pair, most similar first.
        texts: Text by row.
        is_whole: Whether all candidates were compared; if not (more than :data:`PAIRS`), there may be more pairs.
    """

    pairs: list[tuple[int, int, float]]
    texts: dict[int, str]
    is_whole: bool


def words_of(text: str) -> list[str]:
    """The words of a text, casefolded, without punctuation; a text without words is one word."""
    text = text.casefold()
    return (_ASCII_WORD if text.isascii() else _WORD).findall(text) or [text]


def similarity(one: str, other: str) -> float:
    """Jaccard similarity of the words and pairs of adjacent words of two texts; 1 for the same words in order."""
    return _overlap(_features(one), _features(other))


def _overlap(one: _Features, other: _Features) -> float:
    shared = len(one & other)
    return shared / (len(one) + len(other) - shared)


def _features(text: str) -> _Features:
    words = words_of(text)
    return {*words, *pairwise(words)}


_RANDOM = np.random.default_rng(0)
_FACTORS = _RANDOM.integers(2**63, size=HASHES, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
_SHIFTS = _RANDOM.integers(2**63, size=HASHES, dtype=np.uint64)
# Odd factors for the two words of a pair.
_FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)


class _Hashes(dict[str, int]):
    """A 64-bit hash of each word, cached: a dictionary looks up known words in C."""

    def __missing__(self, word: str) -> int:
        if len(self) >= _REMEMBERED:
            self.clear()
        hashed = self[word] = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")
        return hashed


class Signer:
    """Computes signatures, which are the same in every process."""

    def __init__(self) -> None:
        self._hash_of = _Hashes()

    def sign(self, texts: Sequence[str]) -> Signatures:
        """Signatures ``(len(texts), 32)``, uint8, of a few thousand texts."""
        hashes: list[int] = []
        starts = np.empty(len(texts) + 1, dtype=np.int64)
        for number, text in enumerate(texts):
            starts[number] = len(hashes)
            hashes.extend(map(self._hash_of.__getitem__, words_of(text)))
        starts[-1] = len(hashes)
        return _signatures(np.array(hashes, dtype=np.uint64), starts)


def _signatures(words: NDArray[np.uint64], starts: Rows) -> Signatures:
    """Signatures of texts from hashes of their words: ``words[starts[i]:starts[i + 1]]`` belong to text ``i``."""
    pairs = words.copy()  # the last word of a text begins no pair: its place keeps the word
    if len(words) > 1:
        mixed = words[:-1] * _FIRST + words[1:] * _SECOND
        pairs[:-1] = mixed ^ (mixed >> np.uint64(29))
        last = starts[1:] - 1
        pairs[last] = words[last]
    signatures = np.empty((len(starts) - 1, HASHES), dtype=np.uint8)
    for number, (factor, shift) in enumerate(zip(_FACTORS, _SHIFTS, strict=True)):
        least = np.minimum(words * factor + shift, pairs * factor + shift)
        # A multiplication mixes only the high bits well (Dietzfelbinger et al., 1997).
        signatures[:, number] = (np.minimum.reduceat(least, starts[:-1]) >> np.uint64(40)).astype(np.uint8)
    return signatures


def candidates(rows: Rows, signed: Signatures) -> tuple[Rows, Rows, bool]:
    """Pairs of ``rows`` that may be near-duplicates, by their signatures.

    Args:
        rows: Rows of ``signed`` to compare ``(n,)``, ascending.
        signed: Signatures of all texts.

    Returns:
        Lower rows ``(P,)`` and higher rows ``(P,)``, sorted, and whether these are all candidates.
    """
    is_whole, n = True, len(rows)
    keys, agreeing = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.uint8)
    with progress("signatures compared", HASHES // BAND, "bands") as meter:
        for band in range(0, HASHES, BAND):
            for one, other, same in _likely(rows, signed, band):
                keys = np.concatenate([keys, np.minimum(one, other) * n + np.maximum(one, other)])
                keys, first = np.unique(keys, return_index=True)
                agreeing = np.concatenate([agreeing, same])[first]
                if len(keys) > PAIRS:
                    best = np.sort(np.argsort(-agreeing.astype(np.int16), kind="stable")[:PAIRS])
                    keys, agreeing, is_whole = keys[best], agreeing[best], False
            meter.advance()
    return rows[keys // n], rows[keys % n], is_whole


def _likely(rows: Rows, signed: Signatures, band: int) -> Iterator[tuple[Rows, Rows, NDArray[np.uint8]]]:
    """Indices into ``rows`` of pairs that agree in the band and in enough hashes, and their number of equal hashes."""
    columns = np.arange(band, band + 2 * BAND) % HASHES
    key = np.ascontiguousarray(signed[np.ix_(rows, columns)]).view(">u8").ravel().astype(np.uint64)
    order = np.argsort(key, kind="stable")
    equal = (key >> np.uint64(32))[order]  # only this band; the next one only sorted
    left = np.arange(len(rows))
    for distance in range(1, WINDOW + 1):
        left = left[left < len(rows) - distance]
        left = left[equal[left] == equal[left + distance]]
        for part in blocks(len(left), _ROWS):
            one, other = order[left[part]], order[left[part] + distance]
            same = (signed[rows[one]] == signed[rows[other]]).sum(1, dtype=np.uint8)
            enough = same >= AGREEING
            yield one[enough], other[enough], same[enough]


def near_pairs(
    rows: Rows, signed: Signatures, read: Callable[[Collection[int]], Mapping[int, str]], threshold: float = NEAR
) -> NearPairs:
    """Pairs of texts with a similarity of at least ``threshold``.

    Args:
        rows: Rows of ``signed`` to compare, ascending; one of equal texts is enough.
        signed: Signatures of all texts.
        read: A function from rows to texts by row.
        threshold: The least similarity.
    """
    one, other, is_whole = candidates(rows, signed)
    texts = read({*one.tolist(), *other.tolist()}) if len(one) else {}
    pairs = list[tuple[int, int, float]]()
    row, features = -1, _Features()
    with progress("texts compared", len(one), "pairs") as meter:
        for first, second in meter.each(zip(one.tolist(), other.tolist(), strict=True)):
            if first != row:  # pairs are sorted by it
                row, features = first, _features(texts[first])
            if (alike := _overlap(features, _features(texts[second]))) >= threshold:
                pairs.append((first, second, alike))
    pairs.sort(key=lambda pair: (-pair[2], pair[:2]))
    kept = {row for pair in pairs for row in pair[:2]}
    return NearPairs(pairs, {row: text for row, text in texts.items() if row in kept}, is_whole)
