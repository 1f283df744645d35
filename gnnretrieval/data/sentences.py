"""Sentences as passages: a dataset directory made from another, for a graph with sentences as nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from gnnretrieval.data.answers import Answers
from gnnretrieval.data.beir import Metadata, read_passages, read_queries, write_passages, write_qrels, write_queries
from gnnretrieval.data.dataset import CORPUS, QUERIES, Dataset
from gnnretrieval.data.lines import excerpt
from gnnretrieval.data.records import Passage, Qrel
from gnnretrieval.data.sentence_split import split_sentences
from gnnretrieval.errors import InputError
from gnnretrieval.progress import progress, say
from gnnretrieval.storage.artifacts import Artifact
from gnnretrieval.storage.making import make_artifact


class SentencePassages(NamedTuple):
    """The sentences of one passage.

    Attributes:
        title: Title of the passage.
        texts: Its sentences, in order.
    """

    title: str
    texts: list[str]


def make_sentence_dataset(
    dataset: Dataset,
    out: str | Path,
    *,
    overwrite: bool = False,
) -> Artifact:
    """Make the dataset directory ``out`` with the sentences of ``dataset``'s passages as passages.

    Sentence ``i`` of passage ``p`` has the id ``p#i``, the passage's title and the metadata ``{"passage": p,
    "sentence": i}``. A passage without text is one sentence. A relevant passage is replaced by its sentences that
    contain one of the query's ``answers`` (metadata of ``queries.jsonl``), by DPR's rule. If no sentence has an answer,
    or the judgement is 0, all sentences get the judgement.

    Raises:
        InputError: a query's answers are not a list of strings, or a sentence's id is already a passage's id.
        ArtifactError: ``out`` holds something else.
    """

    def write(directory: Path) -> dict[str, Any]:
        sentences = _write_passages(dataset, directory / CORPUS)
        answers: dict[str, Answers] = {}
        write_queries(directory / QUERIES, _with_answers(dataset, answers))
        counts = {"passages": sum(map(len, sentences.values())), "queries": len(dataset.query_ids)}
        without = 0
        for split in dataset.splits:
            qrels, missed = _judgements(dataset.split(split), sentences, answers)
            counts[f"{split}_judgements"] = write_qrels(directory / "qrels" / f"{split}.tsv", qrels)
            without += missed
        mean = counts["passages"] / len(sentences)
        say(f"{len(sentences):,} passages are {counts['passages']:,} sentences, {mean:.1f} each")
        if without:
            say(f"{without:,} judged passages have no sentence with an answer: all their sentences are relevant")
        return {"counts": counts, "without_answer": without}

    return make_artifact(
        out,
        "dataset",
        inputs={"dataset": dataset.hash},
        config={"source": "sentences"},
        write=write,
        overwrite=overwrite,
    )


def _write_passages(dataset: Dataset, path: Path) -> dict[str, list[str]]:
    """Write the sentences; returns them by passage id."""
    known, sentences = set(dataset.passage_ids), dict[str, list[str]]()

    def records() -> Iterator[tuple[Passage, Metadata]]:
        for passage in dataset.passages():
            spans = split_sentences(passage.text) or [(0, 0)]
            texts = [passage.text[start:end] for start, end in spans]
            sentences[passage.id] = texts
            for number, text in enumerate(texts):
                id_ = f"{passage.id}#{number}"
                if id_ in known:
                    raise InputError(
                        f"sentence {number} of {passage.id!r} gets the id of passage {id_!r}: rename the passage.",
                        dataset.path / CORPUS,
                    )
                yield Passage(id_, passage.title, text), {"passage": passage.id, "sentence": number}
            meter.advance(1)

    with progress("splitting", len(known), "passages") as meter:
        write_passages(path, records())
    return sentences


def _with_answers(dataset: Dataset, answers: dict[str, Answers]) -> Iterator[tuple[Any, Metadata]]:
    """Queries with their metadata; fills ``answers`` by query id."""
    kept = set(dataset.query_ids)
    for query, metadata in read_queries(dataset.path / QUERIES, unique=False):
        if query.id not in kept:
            continue
        given = metadata.get("answers", [])
        if not isinstance(given, list) or not all(isinstance(answer, str) for answer in given):
            raise InputError(
                f"query {query.id!r} has answers {excerpt(given)}, wanted a list of strings: correct it.",
                dataset.path / QUERIES,
            )
        answers[query.id] = Answers(given)
        yield query, metadata


def _judgements(
    judged: Mapping[str, Mapping[str, int]], sentences: Mapping[str, Sequence[str]], answers: Mapping[str, Answers]
) -> tuple[list[Qrel], int]:
    """Judgements of sentences, and the number of relevant passages without an answer in a sentence."""
    qrels, without = [], 0
    for query_id, passages in judged.items():
        for passage_id, relevance in passages.items():
            texts = sentences[passage_id]
            numbers = [number for number, text in enumerate(texts) if answers[query_id].in_text(text)]
            if not numbers or relevance <= 0:
                without += relevance > 0
                numbers = [*range(len(texts))]
            qrels += [Qrel(query_id, f"{passage_id}#{number}", relevance) for number in numbers]
    return qrels, without


def passages_of_sentences(dataset: Dataset) -> Iterator[SentencePassages]:
    """Group the sentences of a sentence dataset by passage, in order.

    A record without a sentence's metadata is a group with one sentence.
    """
    kept = set(dataset.passage_ids)
    records = (
        (passage, str(metadata["passage"]) if _is_sentence(metadata) else None, passage.id)
        for passage, metadata in read_passages(dataset.path / CORPUS, unique=False)
        if passage.id in kept
    )
    for _, group in groupby(records, key=lambda record: (record[1], None if record[1] else record[2])):
        passages = [passage for passage, _, _ in group]
        yield SentencePassages(passages[0].title, [passage.text for passage in passages])


def is_of_sentences(dataset: Dataset) -> bool:
    """Whether ``dataset`` has sentences as passages, by the metadata of the first one."""
    _, metadata = next(read_passages(dataset.path / CORPUS, unique=False))
    return _is_sentence(metadata)


def _is_sentence(metadata: Metadata) -> bool:
    return {"passage", "sentence"} <= metadata.keys()
