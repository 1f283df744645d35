"""The docstring corpus: a dataset made offline from the installed numpy, scipy, scikit-learn and networkx.

A passage is a public function or class: its name is the title, and its docstring without the See Also section is the
text. A query is the description of the function in the See Also section of another function: the same function in the
words of another author.

There are two variants with the same passages and the same dev and test queries:

- ``summaries="passage"``: a passage begins with the docstring's one-line summary, as in a usual index.
- ``summaries="question"``: the summary is cut from each passage and becomes its training question. A system that learns
  from questions then gets the best sentence of each passage, and a system that only reads passages does not.
"""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from gnnretrieval.data.beir import write_passages, write_qrels, write_queries
from gnnretrieval.data.docstring_corpus.public_objects import PublicObject, public_objects
from gnnretrieval.data.inspection.same_text import normalised
from gnnretrieval.data.records import Passage, Qrel, Query
from gnnretrieval.errors import InputError, counted
from gnnretrieval.platform.extras import extra, require_extra
from gnnretrieval.progress import say
from gnnretrieval.storage.artifacts import Artifact
from gnnretrieval.storage.making import make_artifact

PACKAGES = {"numpy": "numpy", "scipy": "scipy", "sklearn": "scikit-learn", "networkx": "networkx"}  # module: project
Summaries = Literal["passage", "question"]  # where a docstring's one-line summary goes
SPLIT_PERCENT = {"train": 50, "dev": 10, "test": 40}  # of the See Also descriptions that are no function's summary

_ROLE = re.compile(r":(?:\w+:)?\w+:`~?([^`<]*?)\s*(?:<[^`>]*>)?`")
_VERSION = re.compile(r"\.\. (?:versionadded|versionchanged)::[ \t]*[\w.]*")
_QUOTED = re.compile(r"`+~?([^`]*)`+")


class Parsed(NamedTuple):
    """Parts of a docstring: the one-line summary, the remaining text, and the See Also descriptions."""

    summary: str
    text: str
    see_also: tuple[tuple[str, str], ...]  # (name as written, description)


class Described(NamedTuple):
    """A query without id: text, relevant passages, kinds, and the functions with it in their docstrings."""

    text: str
    relevant: set[str]
    kinds: set[str]
    written_in: set[str]


def make_docstring_corpus(
    path: str | Path,
    summaries: Summaries = "passage",
    overwrite: bool = False,
) -> Artifact:
    """Make the docstring corpus at ``path``, a dataset directory in the BEIR layout, in a few seconds.

    The same package versions give the same bytes. A See Also description that is no function's summary goes to train,
    dev or test by the sha256 of its normalised text (50, 10 and 40 percent). Passage ids, dev and test are the same in
    both variants. A function with only a summary is in neither.

    Args:
        path: Where the dataset goes.
        summaries: Where a docstring's one-line summary goes. ``passage``: it begins its passage, and no query has its
            text. ``question``: it is cut from the passage, and becomes a training query of the passage.
        overwrite: Replace a dataset of the other variant or of other package versions.

    Raises:
        InputError: ``summaries`` is neither ``passage`` nor ``question``.
        ArtifactError: ``path`` holds something else; or the other variant or other package versions, and ``overwrite``
            is False.
    """
    for project, module in (("numpydoc", "numpydoc"), *((project, package) for package, project in PACKAGES.items())):
        require_extra(module, "quickstart", f"The docstring corpus (of {project})")
    if summaries not in get_args(Summaries):
        raise InputError(f"summaries is {summaries!r}: give passage or question.")

    def write(directory: Path) -> dict[str, dict[str, int]]:
        say(f"{path}: reading the docstrings of {', '.join(PACKAGES.values())}")
        passages, queries = _collect(public_objects(tuple(PACKAGES)), summaries)
        counts = {
            "passages": write_passages(directory / "corpus.jsonl", ((passage, {}) for passage in passages)),
            "queries": write_queries(directory / "queries.jsonl", map(_with_provenance, queries)),
        }
        for split in SPLIT_PERCENT:
            judged = [query for query in queries if _split_of(query) == split]
            counts[f"{split}_queries"] = len(judged)
            counts[f"{split}_judgements"] = write_qrels(directory / "qrels" / f"{split}.tsv", _judgements(judged))
        say(f"{path}: {counted(counts['passages'], 'passage')}, {counted(counts['queries'], 'query')}")
        return {"counts": counts}

    return make_artifact(
        path,
        "dataset",
        inputs={project: metadata.version(project) for project in PACKAGES.values()},
        config={
            "source": "docstrings",
            "summaries": summaries,
            "numpydoc": metadata.version("numpydoc"),
            "split_percent": SPLIT_PERCENT,
        },
        write=write,
        overwrite=overwrite,
    )


def parse_docstring(docstring: str) -> Parsed | None:
    """The parts of a numpydoc docstring as plain text; None where it cannot be parsed."""
    read = extra("numpydoc.docscrape", "quickstart", "The docstring corpus").NumpyDocString  # with Sphinx: a second
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpydoc warns of unknown sections and short underlines
        try:
            doc = read(docstring)
        except Exception:  # ValueError, ParseError or IndexError, depending on the docstring
            return None
    parameters = (*doc["Parameters"], *doc["Other Parameters"], *doc["Returns"], *doc["Yields"])
    parameters = tuple(entry for entry in parameters if entry.desc or "None" not in (entry.name, entry.type))
    parts = ["\n".join(doc["Extended Summary"]), "\n".join(doc["Notes"])]
    parts += [f"{' : '.join(filter(None, (name, kind)))}\n" + "\n".join(about) for name, kind, about in parameters]
    see_also = tuple(
        (name, plain(" ".join(about))) for names, about in doc["See Also"] for name, _role in names if about
    )
    summary = plain(" ".join(doc["Summary"]))
    # A directive (``.. deprecated::``) as the summary does not describe the function.
    return Parsed("" if summary.startswith("..") else summary, "\n".join(filter(None, map(plain, parts))), see_also)


def plain(text: str) -> str:
    """``text`` without reST roles, quotes and version marks, with single spaces."""
    return " ".join(_QUOTED.sub(r"\1", _ROLE.sub(r"\1", _VERSION.sub("", text))).split())


def _collect(objects: Sequence[PublicObject], summaries: Summaries) -> tuple[list[Passage], list[Described]]:
    """The passages, sorted by name, and the queries, sorted by normalised text."""
    in_passage = summaries == "passage"
    parsed = {entry.name: (entry, doc) for entry in objects if (doc := parse_docstring(entry.docstring)) and doc.text}
    passages = [Passage(name, name, _passage_text(doc, in_passage)) for name, (_, doc) in parsed.items()]
    names = {name: entry.name for entry, _ in parsed.values() for name in entry.names}
    queries: dict[str, Described] = {}

    def add(text: str, kind: str, relevant: str, writer: str) -> None:
        key = normalised(text)
        if key:
            query = queries.setdefault(key, Described(text, set(), set(), set()))
            query.relevant.add(relevant)
            query.kinds.add(kind)
            query.written_in.add(writer)

    for name, (_, doc) in parsed.items():
        add(doc.summary, "summary", name, name)
    for name, (entry, doc) in parsed.items():
        for written, description in doc.see_also:
            described = _resolve(written, entry, names)
            if described and described != name:
                add(description, "see-also", described, name)
    # A See Also that repeats a function's summary is no query if passages contain their summaries.
    in_order = (queries[key] for key in sorted(queries))
    return passages, [query for query in in_order if not (in_passage and "summary" in query.kinds)]


def _passage_text(doc: Parsed, with_summary: bool) -> str:
    return "\n".join(filter(None, (doc.summary, doc.text))) if with_summary else doc.text


def _resolve(written: str, writer: PublicObject, names: Mapping[str, str]) -> str | None:
    """The passage that ``written`` names in the See Also of ``writer``: first in its module, then in outer modules."""
    written = re.sub(r"^np\.", "numpy.", written.lstrip("~").removesuffix("()"))
    for name in writer.names:
        module = name.rpartition(".")[0]
        while module:
            if passage := names.get(f"{module}.{written}"):
                return passage
            module = module.rpartition(".")[0]
    return names.get(written)


def _with_provenance(query: Described) -> tuple[Query, dict[str, str | list[str]]]:
    kind = "summary" if "summary" in query.kinds else "see-also"
    return Query(_query_id(query), query.text), {"kind": kind, "written_in": sorted(query.written_in)}


def _query_id(query: Described) -> str:
    return "q-" + hashlib.sha256(normalised(query.text).encode()).hexdigest()[:12]


def _split_of(query: Described) -> str:
    if "summary" in query.kinds:
        return "train"
    percent = int(hashlib.sha256(normalised(query.text).encode()).hexdigest(), 16) % 100
    train, dev = SPLIT_PERCENT["train"], SPLIT_PERCENT["dev"]
    return "train" if percent < train else "dev" if percent < train + dev else "test"


def _judgements(queries: Iterable[Described]) -> Iterator[Qrel]:
    return (Qrel(_query_id(query), passage, 1) for query in queries for passage in sorted(query.relevant))
