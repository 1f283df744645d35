"""How the texts of a dataset are read into rows of features: whole, by sentences, or sentences as passages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.dataset import Dataset
from gnnretrieval.data.sentences import SentencePassages, is_of_sentences, passages_of_sentences
from gnnretrieval.encoders.dual_encoder import DualEncoder
from gnnretrieval.encoders.endpoint import EndpointEncoder, cost_in_words
from gnnretrieval.encoders.prompts import Side
from gnnretrieval.encoders.sentence_files import SentenceFiles
from gnnretrieval.encoders.sentence_nodes import encode_sentence_passages
from gnnretrieval.encoders.text_encoder import TextEncoder


class WholeTexts:
    """A text is a row.

    Attributes:
        state: What an interrupted run needs to go on, beside the number of rows.
    """

    def __init__(self, encoder: TextEncoder, side: Side, dataset: Dataset) -> None:
        self.encoder, self.side, self.dataset = encoder, side, dataset
        self.state: dict[str, int] = {}

    @property
    def window(self) -> int:
        """Rows that are encoded together, and then written and noted."""
        return self.encoder.settings.window

    def items(self) -> Iterator[Any]:
        """What is read together, in the order of the rows."""
        if self.side == "query":
            return (query.text for query in self.dataset.queries())
        return (passage.full_text for passage in self.dataset.passages())

    def rows(self, item: Any) -> int:
        """Rows that an item becomes."""
        return 1

    def vectors(self, items: Sequence[Any], done: int) -> NDArray[np.float32]:
        """Rows of some items, which come after ``done`` others."""
        return self.encoder.encode(items, self.side)

    def figures(self, total: int) -> dict[str, Any]:
        """Entries for ``meta.json``, when all ``total`` rows are done."""
        return {}

    def in_words(self) -> str:
        """The figures as a line for the user; empty where there are none."""
        return ""


class BySentences(WholeTexts):
    """A passage is a row, the mean of its sentences, whose vectors are written beside it."""

    def __init__(self, encoder: DualEncoder, dataset: Dataset, directory: Path, state: Mapping[str, int]) -> None:
        super().__init__(encoder, "passage", dataset)
        self._dual = encoder
        self.files = SentenceFiles(directory, encoder.dimension, state)
        self.state = self.files.state

    def vectors(self, items: Sequence[Any], done: int) -> NDArray[np.float32]:
        """As :meth:`WholeTexts.vectors`; the sentences are written."""
        made = self._dual.encode_sentences(items)
        self.files.write(made, done)
        self.state = self.files.state
        return made.means(self.encoder.similarity)

    def figures(self, total: int) -> dict[str, Any]:
        """Sentences, their mean a passage ``k̄`` and how many were cut."""
        return {
            "num_sentences": self.state["sentences"],
            "sentences_per_passage": self.state["sentences"] / total,
            "sentences_cut": self.state["sentences_cut"],
        }

    def in_words(self) -> str:
        """As :meth:`WholeTexts.in_words`."""
        cut = self.state["sentences_cut"]
        lost = f"; {cut:,} more were beyond the limit of tokens" if cut else ""
        mean = self.state["sentences"] / len(self.dataset.passage_ids)
        return f"{self.state['sentences']:,} sentences, {mean:.1f} a passage{lost}"


class SentencesAsPassages(WholeTexts):
    """A sentence is a passage, and so a row; those of one passage are read together."""

    def __init__(self, encoder: DualEncoder, dataset: Dataset, state: Mapping[str, int]) -> None:
        super().__init__(encoder, "passage", dataset)
        self._dual = encoder
        self.state = {"sentences_alone": state.get("sentences_alone", 0)}

    def items(self) -> Iterator[SentencePassages]:
        """As :meth:`WholeTexts.items`: the sentences of a passage."""
        return passages_of_sentences(self.dataset)

    def rows(self, item: SentencePassages) -> int:
        """As :meth:`WholeTexts.rows`."""
        return len(item.texts)

    def vectors(self, items: Sequence[SentencePassages], done: int) -> NDArray[np.float32]:
        """As :meth:`WholeTexts.vectors`."""
        vectors, alone = encode_sentence_passages(self._dual, items)
        self.state = {"sentences_alone": self.state["sentences_alone"] + alone}
        return vectors

    def figures(self, total: int) -> dict[str, Any]:
        """How many sentences were encoded without the others of their passage."""
        return dict(self.state)

    def in_words(self) -> str:
        """As :meth:`WholeTexts.in_words`."""
        alone = self.state["sentences_alone"]
        lost = f"; {alone:,} beyond the limit of tokens were encoded alone" if alone else ""
        return f"passages are sentences, and are read with the others of theirs{lost}"


class ByEndpoint(WholeTexts):
    """A text is a row, and the tokens that the endpoint counted are kept, also over interruptions."""

    def __init__(self, encoder: EndpointEncoder, side: Side, dataset: Dataset, state: Mapping[str, int]) -> None:
        super().__init__(encoder, side, dataset)
        self._endpoint, self._before = encoder, state.get("tokens", 0) - encoder.tokens
        self.state = {"tokens": state.get("tokens", 0)}

    @property
    def window(self) -> int:
        """One round of requests: little is paid twice after an interruption, and a slow endpoint shows its progress."""
        return min(super().window, self._endpoint.api.batch_texts * self._endpoint.api.concurrency)

    def vectors(self, items: Sequence[Any], done: int) -> NDArray[np.float32]:
        """As :meth:`WholeTexts.vectors`; the tokens are counted."""
        made = super().vectors(items, done)
        self.state = {"tokens": self._before + self._endpoint.tokens}
        return made

    def figures(self, total: int) -> dict[str, Any]:
        """Tokens of both sides so far."""
        return dict(self.state)

    def in_words(self) -> str:
        """As :meth:`WholeTexts.in_words`."""
        return "" if self.side == "passage" else cost_in_words(self.state["tokens"], self._endpoint.api.price)


def reading_of(
    encoder: TextEncoder, side: Side, dataset: Dataset, directory: Path, state: Mapping[str, int]
) -> WholeTexts:
    """How a side of a dataset is read by ``encoder``; ``state`` is of an interrupted run."""
    if isinstance(encoder, EndpointEncoder):
        return ByEndpoint(encoder, side, dataset, state)
    if side == "query" or not isinstance(encoder, DualEncoder) or encoder.sentences is None:
        return WholeTexts(encoder, side, dataset)
    if is_of_sentences(dataset):
        return SentencesAsPassages(encoder, dataset, state)
    return BySentences(encoder, dataset, directory, state)


def windows(reading: WholeTexts, done: int, size: int) -> Iterator[list[Any]]:
    """The items after ``done`` rows, in lists that are as short as they can be with ``size`` rows or more."""
    window, rows = list[Any](), 0
    for item in reading.items():
        count = reading.rows(item)
        if done > 0:
            done -= count
            continue
        window.append(item)
        rows += count
        if rows >= size:
            yield window
            window, rows = [], 0
    if window:
        yield window
