"""Sets that nothing here was chosen on, of Debian's packages.

A passage is a package's name and its description in a line; in ``debian-sections`` it is a section's name.

- ``debian-tags``: a query is two or three of Debian's tags in words, such as ``interface x11 game strategy``; the
  packages with all of them are relevant. Tags are no part of the passages.
- ``debian-suggests``: a query is a package's description; the packages of other sources that it recommends, suggests or
  enhances are relevant. Packages that are queries are no passages.
- ``debian-sources``: a query is a package's description; the one package that stands for all that are built from the
  same source is relevant. It resembles finding the first of several reports about the same thing.
- ``debian-sections``: a query is a package's description; its section, one of 58, is relevant. A passage has up to
  hundreds of training questions, as the answers of an FAQ have.
"""

from __future__ import annotations

import random
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, pairwise
from pathlib import Path
from typing import NamedTuple

from gnnretrieval.data import Dataset

PACKAGES = 10_000  # passages of debian-tags: a random sample of those with tags
TAGS = {"train": 2_800, "dev": 500, "test": 700}  # queries
SUGGESTS = {"train": 3_500, "dev": 500, "test": 1_000}
SOURCES = {"train": 4_500, "dev": 500, "test": 1_000}
SECTIONS = {"train": 4_000, "dev": 500, "test": 1_000}
RELEVANT = range(2, 21)  # packages that may be relevant for a query of tags
OF_EVERY_KIND = ("role::", "special::")  # tags that say nothing of the subject
RELATIONS = ("Recommends", "Suggests", "Enhances")


class Package(NamedTuple):
    """A package of Debian's lists.

    Attributes:
        name: Its name.
        description: Its description in a line.
        source: The source package that it is built from.
        section: The part of the archive that it is in, such as ``games``.
        tags: Its tags about the subject.
        related: The packages that it recommends, suggests or enhances.
    """

    name: str
    description: str
    source: str
    section: str
    tags: tuple[str, ...]
    related: tuple[str, ...]


def available_packages() -> Iterator[Package]:
    """The packages of Debian's lists on this machine; none without apt."""
    try:
        listed = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return
    for record in listed.split("\n\n"):
        lines = record.replace("\n ", " ").splitlines()
        fields = {name: value for name, colon, value in (line.partition(": ") for line in lines) if colon}
        if "Description" not in fields:
            continue
        tags = {tag.strip() for tag in fields.get("Tag", "").split(",")} - {""}
        related = ", ".join(fields.get(relation, "") for relation in RELATIONS).replace("|", ",")
        yield Package(
            fields["Package"],
            fields["Description"],
            fields.get("Source", fields["Package"]).split(" ")[0],
            fields.get("Section", ""),
            tuple(sorted(tag for tag in tags if not tag.startswith(OF_EVERY_KIND))),
            tuple(sorted({named.split()[0].split(":")[0] for named in related.split(",") if named.strip()})),
        )


def make_debian_tags(out: Path) -> Dataset | None:
    """Make ``debian-tags`` in ``out``; None where there are no lists of packages."""
    by_name = {package.name: package for package in available_packages() if len(package.tags) > 1}
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
    wanted = rng.sample(wanted, sum(TAGS.values()))
    return _made(packages, [(_in_words(tags, rng), relevant[tags]) for tags in wanted], TAGS, out)


def make_debian_suggests(out: Path) -> Dataset | None:
    """Make ``debian-suggests`` in ``out``; None where there are no lists of packages."""
    by_name = {package.name: package for package in available_packages()}
    relevant = {
        name: [other for other in package.related if other in by_name and by_name[other].source != package.source]
        for name, package in sorted(by_name.items())
    }
    relevant = {name: others for name, others in relevant.items() if others}
    rng, most = random.Random(0), sum(SUGGESTS.values())
    asked = set(rng.sample(sorted(relevant), min(len(relevant), 2 * most)))
    passages = sorted({other for others in relevant.values() for other in others} - asked)
    judged = [
        (by_name[name].description, left)
        for name in rng.sample(sorted(asked), len(asked))
        if (left := [other for other in relevant[name] if other not in asked])
    ]
    if len(judged) < most:
        return None
    return _made([by_name[name] for name in passages], judged, SUGGESTS, out)


def make_debian_sources(out: Path) -> Dataset | None:
    """Make ``debian-sources`` in ``out``; None where there are no lists of packages."""
    by_source = defaultdict[str, list[Package]](list)
    for package in available_packages():
        by_source[package.source].append(package)
    rng = random.Random(0)
    passages, judged = list[Package](), dict[str, list[str]]()
    for _, packages in sorted(by_source.items()):
        first, *others = rng.sample(sorted(packages), len(packages))
        passages.append(first)
        judged |= {other.description: [first.name] for other in others if other.description != first.description}
    if len(judged) < sum(SOURCES.values()):
        return None
    return _made(passages, rng.sample(list(judged.items()), sum(SOURCES.values())), SOURCES, out)


def make_debian_sections(out: Path) -> Dataset | None:
    """Make ``debian-sections`` in ``out``; None where there are no lists of packages."""
    judged = {package.description: package.section for package in sorted(available_packages()) if package.section}
    if len(judged) < sum(SECTIONS.values()):
        return None
    rng = random.Random(0)
    asked = rng.sample(list(judged.items()), sum(SECTIONS.values()))
    named = {section: section.replace("/", " ").replace("-", " ") for section in sorted({*judged.values()})}
    passages = [Package(name, words, name, name, (), ()) for name, words in named.items()]
    return _made(passages, [(text, [section]) for text, section in asked], SECTIONS, out)


SETS: Mapping[str, Callable[[Path], Dataset | None]] = {
    "debian-tags": make_debian_tags,
    "debian-suggests": make_debian_suggests,
    "debian-sources": make_debian_sources,
    "debian-sections": make_debian_sections,
}


def _made(
    packages: Sequence[Package], judged: Sequence[tuple[str, Sequence[str]]], sizes: Mapping[str, int], out: Path
) -> Dataset:
    """The dataset ``out`` of packages, and of queries' texts with the names of their relevant packages."""
    queries = [{"id": f"q{number}", "text": text} for number, (text, _) in enumerate(judged[: sum(sizes.values())])]
    labels = [(query["id"], dict.fromkeys(names, 1)) for query, (_, names) in zip(queries, judged, strict=False)]
    ends = [0, *(sum(list(sizes.values())[: number + 1]) for number in range(len(sizes)))]
    qrels = {split: dict(labels[start:end]) for split, (start, end) in zip(sizes, pairwise(ends), strict=True)}
    passages = [{"id": package.name, "title": package.name, "text": package.description} for package in packages]
    return Dataset.from_records(passages, queries, qrels.pop("train"), out, overwrite=True, **qrels)


def _in_words(tags: tuple[str, ...], rng: random.Random) -> str:
    """The tags in any order, without their punctuation."""
    return " ".join(rng.sample(tags, len(tags))).replace("::", " ").replace("-", " ")
