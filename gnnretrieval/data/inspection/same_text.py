"""Equality of texts, for duplicates and leakage."""

from __future__ import annotations

import hashlib

_TRAILING = " .,;:!?"


def normalised(text: str) -> str:
    """``text`` casefolded, without surplus white space and trailing punctuation."""
    return " ".join(text.casefold().split()).rstrip(_TRAILING)


def text_key(text: str) -> int:
    """A 64-bit hash of the normalised text; among 10 million texts, a false match has a probability of 1 in 300,000."""
    return int.from_bytes(hashlib.blake2b(normalised(text).encode(), digest_size=8).digest(), "big")


class SeenTexts:
    """A set of texts by :func:`text_key`, in about 60 bytes per text.

    Attributes:
        repeated: Number of added texts that are equal to an earlier one.
    """

    def __init__(self) -> None:
        self.repeated = 0
        self._seen: set[int] = set()

    def add(self, text: str) -> int:
        """Add ``text``; returns its :func:`text_key`."""
        key = text_key(text)
        if key in self._seen:
            self.repeated += 1
        self._seen.add(key)
        return key
