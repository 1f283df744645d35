"""A set that nothing here was chosen on: keyword queries over Debian's packages, with several relevant packages each.

A passage is a package's name and its description in a line. A query is two or three of Debian's tags in words, such as
``interface x11 game strategy``; the packages with all of them are relevant. Tags are no part of the passages.
"""

from __future__ import annotations

import random
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations, pairwise
from pathlib import Path
from typing import NamedTuple

from gnnretrieval.data import Dataset

PACKAGES = 10_000  # a random sample of those with tags
QUERIES = {"train": 2_800, "dev": 500, "test": 700}
RELEVANT = range(2, 21)  # packages that may be relevant for a query
OF_EVERY_KIND = ("role::", "special::")  # tags that say nothing of the subject


class Package(NamedTuple):
    """A package with its description and its tags about the subject."""

    name: str
    description: str
    tags: tuple[str, ...]


def available_packages() -> Iterator[Package]:
    """The packages of Debian's lists on this machine that have two tags or more; none without apt."""
    try:
        listed = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return
    for record in listed.split("\n\n"):
        lines = record.replace("\n ", " ").splitlines()
        fields = {name: value for name, colon, value in (line.partition(": ") for line in lines) if colon}
        tags = tuple(sorted({tag.strip() for tag in fields.get("Tag", "").split(",")} - {""}))
        tags = tuple(tag for tag in tags if not tag.startswith(OF_EVERY_KIND))
        if len(tags) > 1 and "Description" in fields:
            yield Package(fields["Package"], fields["Description"], tags)


def make_debian_tags(out: Path) -> Dataset | None:
    """Make the set ``out``; None where there are no lists of packages."""
    by_name = {package.name: package for package in available_packages()}
    if len(by_name) < PACKAGES:
        return None
    rng = random.Random(0)
    packages = [by_name[name] for name in sorted(rng.sample(sorted(by_name), PACKAGES))]
    relevant = defaultdict[tuple[str, ...], list[str]](list)
    for package in packages:
        for count in (2, 3):
            for tags in combinations(package.tags, count):
                relevant[tags].append(package.name)
    wanted = sorted(tags for tags, names in relevant.items() if len(names) in RELEVANT)
    wanted = rng.sample(wanted, sum(QUERIES.values()))
    queries = [{"id": f"q{number}", "text": _in_words(tags, rng)} for number, tags in enumerate(wanted)]
    judged = [(query["id"], dict.fromkeys(relevant[tags], 1)) for query, tags in zip(queries, wanted, strict=True)]
    ends = [0, *(sum(list(QUERIES.values())[: number + 1]) for number in range(len(QUERIES)))]
    qrels = {split: dict(judged[start:end]) for split, (start, end) in zip(QUERIES, pairwise(ends), strict=True)}
    passages = [{"id": name, "title": name, "text": description} for name, description, _ in packages]
    return Dataset.from_records(passages, queries, qrels.pop("train"), out, overwrite=True, **qrels)


def _in_words(tags: tuple[str, ...], rng: random.Random) -> str:
    """The tags in any order, without their punctuation."""
    return " ".join(rng.sample(tags, len(tags))).replace("::", " ").replace("-", " ")
