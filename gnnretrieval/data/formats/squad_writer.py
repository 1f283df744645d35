"""Writer of SQuAD 1.1."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from gnnretrieval.data.answers import answers_of
from gnnretrieval.data.beir import Metadata
from gnnretrieval.data.formats.contents import Contents, Lost
from gnnretrieval.data.lines import excerpt
from gnnretrieval.data.records import Passage, Query
from gnnretrieval.errors import GnnRetrievalError

_KEPT = {"answers", "answer_starts"}
_Labelled = tuple[Query, Metadata, str]  # a query with a relevant passage, its metadata and its split


def write_squad(data: Contents, directory: Path, lost: Lost) -> None:
    """Write ``SPLIT-v1.1.json`` with one article per title; the first split has the paragraphs without questions."""
    of_passage: dict[str, list[_Labelled]] = {}
    queries = {query.id: (query, metadata) for query, metadata in data.queries()}
    for split in data.splits:
        for query, judged in data.dataset.split(split).items():
            relevant = [passage for passage, value in judged.items() if value > 0]
            lost["further relevant passages of a query"] += max(0, len(relevant) - 1)
            if relevant:
                of_passage.setdefault(relevant[0], []).append((*queries[query], split))
    lost["queries without a relevant passage"] = len(queries) - sum(map(len, of_passage.values()))
    data.count_lost_negatives(lost)
    lost["ids of passages"] = len(data.dataset.passage_ids)
    lost["metadata of queries beside answers"] = sum(
        bool(metadata.keys() - _KEPT) for _, metadata, _ in chain(*of_passage.values())
    )
    seen: set[tuple[str, str]] = set()
    for passage, metadata in data.passages():
        lost["metadata of passages"] += bool(metadata)
        lost["_ in titles (a space now)"] += "_" in passage.title
        seen.add((passage.title.replace("_", " ").strip(), passage.text))
    lost["passages with the title and text of another"] = len(data.dataset.passage_ids) - len(seen)
    for split in data.splits:
        squad = {"version": "1.1", "data": _articles(data, split, of_passage)}
        path = directory / f"{split}-v1.1.json"
        path.write_text(json.dumps(squad, ensure_ascii=False), encoding="utf-8", newline="\n")


def _articles(data: Contents, split: str, of_passage: Mapping[str, Sequence[_Labelled]]) -> list[dict[str, Any]]:
    """The articles of a split by title, in the order of their first passages."""
    articles: dict[str, list[dict[str, Any]]] = {}
    for passage, _ in data.passages():
        questions = [(query, metadata) for query, metadata, part in of_passage.get(passage.id, ()) if part == split]
        if questions or (split == data.splits[0] and passage.id not in of_passage):
            qas = [_question(query, metadata, passage) for query, metadata in questions]
            articles.setdefault(passage.title.replace(" ", "_"), []).append({"context": passage.text, "qas": qas})
    return [{"title": title, "paragraphs": paragraphs} for title, paragraphs in articles.items()]


def _question(query: Query, metadata: Metadata, passage: Passage) -> dict[str, Any]:
    answers, starts = answers_of(metadata), metadata.get("answer_starts")
    if not isinstance(starts, list) or len(starts) != len(answers) or not answers:
        raise GnnRetrievalError(
            f"query {query.id!r} has no answers with answer_starts in its metadata, and SQuAD's layout needs them: "
            "convert to another format."
        )
    length = len(passage.text)
    if not all(isinstance(start, int) and 0 <= start <= length for start in starts):
        raise GnnRetrievalError(
            f"query {query.id!r} has answer_starts {excerpt(starts)}, which are not all inside its passage "
            f"{passage.id!r} of {length:,} characters: correct them, or convert to another format."
        )
    spans = [{"text": text, "answer_start": start} for text, start in zip(answers, starts, strict=True)]
    return {"id": query.id, "question": query.text, "answers": spans}
