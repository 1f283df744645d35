"""When two texts count as the same: for duplicates and leaks."""

from __future__ import annotations

import hashlib

_TRAILING = " .,;:!?"


def normalised(text: str) -> str:
    """``text`` casefolded, without surplus white space and trailing punctuation."""
    return " ".join(text.casefold().split()).rstrip(_TRAILING)


class SeenTexts:
    """Remembers texts by a 64-bit hash, about 60 bytes each: among 10 million, a false match is a 1 in 300,000 chance.

    Attributes:
        repeated: How many added texts were the same as one added before.
    """

    def __init__(self) -> None:
        self.repeated = 0
        self._seen: set[int] = set()

    def add(self, text: str) -> int:
        """Count ``text`` in and return its hash, equal for texts that are the same."""
        key = int.from_bytes(hashlib.blake2b(normalised(text).encode(), digest_size=8).digest(), "big")
        if key in self._seen:
            self.repeated += 1
        self._seen.add(key)
        return key
