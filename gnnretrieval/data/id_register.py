"""A set of ids in little memory: ranges of consecutive numbers, and 64-bit hashes of all other ids."""

from __future__ import annotations

import hashlib
from bisect import bisect_right


class IdRegister:
    """A set of ids.

    MS MARCO's 8.8 million ids are one range. Other ids are stored as 64-bit hashes. All hashes of a hundred million ids
    differ with a probability of 0.9997; two ids with the same hash would count as one id.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []  # first number of each range, sorted
        self._ends: list[int] = []  # one past the last number of each range
        self._last = -1  # index of the range that grew last
        self._hashes: set[int] = set()
        self.count = 0

    def add(self, id_: str) -> bool:
        """Add an id; returns whether it is new."""
        if id_.isascii() and id_.isdigit() and len(id_) < 16 and (id_[0] != "0" or id_ == "0"):
            added = self._add_number(int(id_))
        else:
            digest = _hash(id_)
            added = digest not in self._hashes
            self._hashes.add(digest)
        self.count += added
        return added

    def _add_number(self, number: int) -> bool:
        last = self._last
        full = len(self._starts) >= _RANGES
        if full and _hash(str(number)) in self._hashes:
            return False
        if (
            last >= 0
            and self._ends[last] == number
            and (last + 1 == len(self._starts) or self._starts[last + 1] > number)
        ):
            self._ends[last] = number + 1
            return True
        place = bisect_right(self._starts, number) - 1
        if place >= 0 and number < self._ends[place]:
            return False
        if place >= 0 and self._ends[place] == number:
            self._ends[place] = number + 1
            self._last = place
        elif full:
            self._hashes.add(_hash(str(number)))
        else:
            self._starts.insert(place + 1, number)
            self._ends.insert(place + 1, number + 1)
            self._last = place + 1
        return True

    def __contains__(self, id_: str) -> bool:
        if id_.isascii() and id_.isdigit() and len(id_) < 16 and (id_[0] != "0" or id_ == "0"):
            number = int(id_)
            place = bisect_right(self._starts, number) - 1
            if place >= 0 and number < self._ends[place]:
                return True
        return _hash(id_) in self._hashes

    def __len__(self) -> int:
        return self.count


_RANGES = 10_000  # largest number of ranges; more means that numbers are unordered, and they are hashed too


def _hash(id_: str) -> int:
    return int.from_bytes(hashlib.blake2b(id_.encode(), digest_size=8).digest(), "little")
