"""Whether and where a text contains an answer, by DPR's rule: for Answer@k, negatives, sentences, and readers.

Karpukhin et al. 2020, after DrQA (Chen et al. 2017): text and answer are split into words and signs
(``[\\p{L}\\p{N}\\p{M}]+`` or any other character that is neither a separator nor a control character) in Unicode's
NFD form and lower case, and the answer's words must follow each other in the text. Where answers are patterns, as in
CuratedTREC, the pattern must match in the text, in upper or lower case.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import regex

from gnnretrieval.data.beir import read_queries

Match = Literal["string", "regex"]
_WORD = regex.compile(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]")


def answer_words(text: str) -> str:
    """A text's words and signs, in NFD and lower case, each between spaces, so that a substring has whole words."""
    return f" {' '.join(_WORD.findall(unicodedata.normalize('NFD', text)))} ".lower()


def answer_spans(text: str, answers: Iterable[str]) -> list[tuple[int, int]]:
    """Spans ``(start, end)`` of characters of a text that have the words of an answer, in order, each once."""
    words, starts, ends = " ", dict[int, int](), dict[int, int]()  # characters of the text, by place in ``words``
    for match in _WORD.finditer(text):
        starts[len(words) - 1] = match.start()
        words += answer_words(match.group()).strip() + " "
        ends[len(words)] = match.end()
    spans = set()
    # Normalising changes lengths, so only places at the edge of a word of the text can be mapped back.
    for wanted in {answer_words(answer) for answer in answers} - {"  "}:
        place = words.find(wanted)
        while place >= 0:
            start, end = starts.get(place), ends.get(place + len(wanted))
            if start is not None and end is not None:
                spans.add((start, end))
            place = words.find(wanted, place + 1)
    return sorted(spans)


class Answers:
    """The answers of a question.

    An answer without a word, such as an empty one, matches no text; in DPR's script it matches every text. An invalid
    pattern matches no text either.

    Args:
        answers: The answers.
        match: Whether the answers are strings or patterns.
    """

    def __init__(self, answers: Iterable[str], match: Match = "string") -> None:
        self._words = (
            [words for answer in answers if (words := answer_words(answer)).strip()] if match == "string" else []
        )
        self._patterns = list(_patterns(answers)) if match == "regex" else []

    def __bool__(self) -> bool:
        return bool(self._words or self._patterns)

    def in_words(self, words: str) -> bool:
        """Whether a text contains one of the strings; ``words`` is the text after :func:`answer_words`."""
        return any(answer in words for answer in self._words)

    def in_text(self, text: str) -> bool:
        """Whether a text contains one of the answers."""
        if self._patterns:
            normal = unicodedata.normalize("NFD", text)
            return any(pattern.search(normal) for pattern in self._patterns)
        return bool(self._words) and self.in_words(answer_words(text))


def _patterns(answers: Iterable[str]) -> Iterator[Any]:
    for answer in filter(str.strip, answers):
        try:
            yield regex.compile(unicodedata.normalize("NFD", answer), regex.IGNORECASE | regex.MULTILINE)
        except regex.error:
            continue


def answers_of(metadata: Mapping[str, Any]) -> list[str]:
    """The answer strings in a query's metadata."""
    answers = metadata.get("answers")
    return [answer for answer in answers if isinstance(answer, str)] if isinstance(answers, list) else []


def read_answers(queries: Path) -> dict[str, list[str]]:
    """Answer strings by query id, from ``metadata.answers`` in a ``queries.jsonl``; only queries that have some."""
    records = read_queries(queries, unique=False)
    return {query.id: answers for query, metadata in records if (answers := answers_of(metadata))}
