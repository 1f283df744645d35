"""Training examples: a query with its positive and negative passages and their sources."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import ValidationError

from gnnretrieval.data.dataset import Dataset
from gnnretrieval.data.lines import excerpt, read_lines
from gnnretrieval.errors import ArtifactError, InputError, nearest
from gnnretrieval.mining.report import MiningReport
from gnnretrieval.storage.artifacts import Artifact, open_artifact, relative_to
from gnnretrieval.storage.making import make_artifact

KIND = "examples"
EXAMPLES, REPORT = "examples.jsonl", "report.json"


class Candidate(NamedTuple):
    """A positive or negative passage of a query.

    Attributes:
        passage: Id of the passage.
        source: ``label``, ``bm25``, ``dual-encoder``, ``cross-encoder``, or ``shown`` by the search that
            was logged.
        rank: Rank by the retriever, from 1.
        score: Score by the retriever.
        probability: Probability that the passage is relevant, by the cross-encoder.
    """

    passage: str
    source: str
    rank: int | None = None
    score: float | None = None
    probability: float | None = None


class Example(NamedTuple):
    """A query id with its positives and negatives; no passage is in both."""

    query: str
    positives: tuple[Candidate, ...]
    negatives: tuple[Candidate, ...]


class Examples(Artifact):
    """An artifact of mined examples, with a report."""

    def examples(self) -> Iterator[Example]:
        """Read the examples from disk, one by one."""
        return read_examples(self.path / EXAMPLES)

    @property
    def report(self) -> MiningReport:
        """What was kept, and what was dropped and why.

        Raises:
            ArtifactError: The report is damaged.
        """
        path = self.path / REPORT
        try:
            return MiningReport.model_validate_json(path.read_bytes())
        except ValidationError:
            raise ArtifactError(f"{path}: this report is damaged. Make these examples again.") from None


def open_examples(path: str | Path) -> Examples:
    """Open the examples at ``path``; raises as :func:`gnnretrieval.storage.artifacts.open_artifact`."""
    artifact = open_artifact(path, KIND, ("dataset", "texts", "made_from"))
    return Examples(artifact.path, artifact.meta)


def make_examples(
    out: str | Path,
    dataset: Dataset,
    write: Callable[[Path], Mapping[str, Any]],
    *,
    sources: Mapping[str, Artifact],
    inputs: Mapping[str, str],
    config: Mapping[str, Any],
    seed: int | None,
    overwrite: bool,
) -> Examples:
    """Make the examples ``out``: :func:`gnnretrieval.storage.making.make_artifact` with the metadata of examples.

    Args:
        out: Directory of the examples.
        dataset: The dataset of their queries and passages.
        write: Writes ``examples.jsonl`` and ``report.json`` into a directory and returns figures.
        sources: Artifacts that they are made from, by name; their hashes are inputs.
        inputs: Hashes of other inputs.
        config: All settings that decide their content.
        seed: Seed of random choices; None: there are none.
        overwrite: Replace examples made from other inputs.
    """
    places = {"dataset": dataset.path} | {name: source.path for name, source in sources.items()}
    made = make_artifact(
        out,
        KIND,
        inputs={**inputs, **{name: source.hash for name, source in sources.items()}},
        config=config,
        write=lambda directory: {
            **write(directory),
            "dataset": dataset.provenance(),
            "texts": dataset.texts_hash,
            "made_from": {name: relative_to(out, place) for name, place in places.items()},
        },
        seed=seed,
        overwrite=overwrite,
    )
    return Examples(made.path, made.meta)


def as_written(value: np.float32) -> float:
    """The shortest decimal number that rounds to this float32: 0.9, not 0.8999999761581421."""
    return float(str(value))


def write_examples(path: str | Path, examples: Iterable[Example]) -> int:
    """Write examples as JSON lines to ``path``, without fields that are None; returns the number of examples."""
    count = 0
    with Path(path).open("w", encoding="utf-8", newline="\n") as file:
        for example in examples:
            record = {
                "query": example.query,
                "positives": [_as_json(candidate) for candidate in example.positives],
                "negatives": [_as_json(candidate) for candidate in example.negatives],
            }
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
            count += 1
    return count


def _as_json(candidate: Candidate) -> dict[str, Any]:
    return {name: value for name, value in candidate._asdict().items() if value is not None}


def read_examples(path: str | Path) -> Iterator[Example]:
    """Read and check the examples of a file of JSON lines.

    Raises:
        InputError: The file is missing or not UTF-8, a line is not JSON, a key is unknown, a field is missing or has a
            wrong value, a query has no positive, or a query names a passage twice.
    """
    path = Path(path)
    for number, line in read_lines(path, "one training example per line, as JSON"):
        try:
            example = _example(line)
        except ValueError as error:
            raise InputError(f"{error} Correct this line.", path, number) from None
        yield example


def _example(line: str) -> Example:
    """Parse a line; raises a ValueError that says what is wrong."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError(f"not JSON: {excerpt(line)}; wanted one example per line.") from None
    _check_keys(record, "example", Example._fields, Example._fields)
    query = _string(record["query"], "query")
    positives, negatives = (_candidates(record[name], name) for name in ("positives", "negatives"))
    if not positives:
        raise ValueError(f"query {query!r} has no positive: training cannot use it.")
    seen: dict[str, str] = {}
    for name, candidates in (("positives", positives), ("negatives", negatives)):
        for passage in (candidate.passage for candidate in candidates):
            if passage in seen:
                twice = f"twice among its {name}" if seen[passage] == name else "both as a positive and as a negative"
                raise ValueError(f"query {query!r} names passage {passage!r} {twice}.")
            seen[passage] = name
    return Example(query, positives, negatives)


def _candidates(values: Any, name: str) -> tuple[Candidate, ...]:
    if not isinstance(values, list):
        raise ValueError(f"found {name} {excerpt(values)}, wanted a list of passages.")
    return tuple(_candidate(value) for value in values)


def _candidate(value: Any) -> Candidate:
    _check_keys(value, "passage", Candidate._fields, ("passage", "source"))
    passage, source = (_string(value[name], name) for name in ("passage", "source"))
    rank, score, probability = (value.get(name) for name in ("rank", "score", "probability"))
    if rank is not None and (type(rank) is not int or rank < 1):
        raise ValueError(f"found rank {excerpt(rank)}, wanted an integer from 1.")
    if score is not None and not _is_number(score):
        raise ValueError(f"found score {excerpt(score)}, wanted a number.")
    if probability is not None and not (_is_number(probability) and 0 <= probability <= 1):
        raise ValueError(f"found probability {excerpt(probability)}, wanted a number from 0 to 1.")
    return Candidate(passage, source, rank, score, probability)


def _check_keys(value: Any, what: str, known: tuple[str, ...], wanted: tuple[str, ...]) -> None:
    """Check that ``value`` is an object with known keys and all wanted ones; raises a ValueError."""
    if not isinstance(value, dict):
        raise ValueError(f"found {excerpt(value)}, wanted an object with {', '.join(map(repr, wanted))}.")
    for key in value:
        if key not in known:
            raise ValueError(f"unknown key {excerpt(key)} of this {what}.{nearest(key, known)}")
    for key in wanted:
        if key not in value:
            raise ValueError(f"this {what} has no {key!r}, only {excerpt(list(value))}.")


def _string(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"found {name} {excerpt(value)}, wanted a string that is not empty.")
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -math.inf < value < math.inf
