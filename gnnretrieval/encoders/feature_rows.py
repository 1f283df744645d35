"""Ways to read a dataset's texts into rows of features: whole, by sentences, by tokens, or sentences as passages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.dataset import Dataset
from gnnretrieval.data.sentences import SentencePassages, is_of_sentences, passages_of_sentences
from gnnretrieval.encoders.dual_encoder import DualEncoder
from gnnretrieval.encoders.endpoint import EndpointEncoder, cost_in_words
from gnnretrieval.encoders.maxsim import stored
from gnnretrieval.encoders.part_files import (
    QUERY_TOKEN_IDS,
    QUERY_TOKEN_STARTS,
    QUERY_TOKENS,
    SENTENCE_STARTS,
    SENTENCES,
    TOKEN_IDS,
    TOKEN_STARTS,
    TOKENS,
    PartFiles,
)
from gnnretrieval.encoders.prompts import Side
from gnnretrieval.encoders.sentence_nodes import encode_sentence_passages
from gnnretrieval.encoders.sparse_encoder import SparseEncoder
from gnnretrieval.encoders.text_encoder import TextEncoder
from gnnretrieval.errors import ArtifactError

Place = Callable[[str], Path]  # from a file's name to its path


def texts_of(dataset: Dataset, side: Side) -> Iterator[str]:
    """The texts of all queries or passages, in the order of their rows."""
    if side == "query":
        return (query.text for query in dataset.queries())
    return (passage.full_text for passage in dataset.passages())


class WholeTexts:
    """One row per text.

    Attributes:
        state: What an interrupted run needs to resume, besides the number of rows; counts of what was read.
        files: Files of the vectors of sentences or tokens; None: a text has one vector.
    """

    files: PartFiles | None = None

    def __init__(self, encoder: TextEncoder, side: Side, dataset: Dataset) -> None:
        self.encoder, self.side, self.dataset = encoder, side, dataset
        self.state: dict[str, int] = {}

    @property
    def window(self) -> int:
        """Number of rows that are encoded, written and recorded together."""
        return self.encoder.settings.window

    def items(self) -> Iterator[Any]:
        """Items in the order of the rows: the texts that are read together."""
        return texts_of(self.dataset, self.side)

    def rows(self, item: Any) -> int:
        """Number of rows of an item."""
        return 1

    def vectors(self, items: Sequence[Any], done: int) -> NDArray[np.float32]:
        """Vectors ``(rows, d)`` of items that come after ``done`` rows."""
        return self.encoder.encode(items, self.side)

    def figures(self, total: int) -> dict[str, Any]:
        """Entries for ``meta.json`` after all ``total`` rows."""
        return {}

    def in_words(self) -> str:
        """The figures as a line for the user; empty if there are none."""
        return ""


class BySentences(WholeTexts):
    """One row per passage, the mean of its sentences' vectors; these are written to separate files."""

    files: PartFiles

    def __init__(self, encoder: DualEncoder, dataset: Dataset, place: Place, state: Mapping[str, int]) -> None:
        super().__init__(encoder, "passage", dataset)
        self._dual = encoder
        self.state = {name: state.get(name, 0) for name in ("sentences", "sentences_cut")}
        parts = self.state["sentences"]
        self.files = PartFiles(place(SENTENCES), place(SENTENCE_STARTS), encoder.dimension, parts=parts)

    def vectors(self, items: Sequence[Any], done: int) -> NDArray[np.float32]:
        """As :meth:`WholeTexts.vectors`; also writes the sentences' vectors."""
        sentences = self._dual.encode_sentences(items)
        require_finite(sentences.vectors, self.encoder)  # before they are rounded
        self.files.write(sentences.vectors, sentences.counts, done)
        self.state = {"sentences": self.files.parts, "sentences_cut": self.state["sentences_cut"] + sentences.cut}
        return sentences.means(self.encoder.similarity)

    def figures(self, total: int) -> dict[str, Any]:
        """Number of sentences, their mean per passage ``k̄``, and number of sentences beyond the limit of tokens."""
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


class ByTokens(WholeTexts):
    """One row per text, the mean of its tokens' vectors; these are written to separate files."""

    files: PartFiles

    def __init__(
        self, encoder: DualEncoder, side: Side, dataset: Dataset, place: Place, state: Mapping[str, int]
    ) -> None:
        super().__init__(encoder, side, dataset)
        self._dual, self._name = encoder, f"{side}_tokens"
        self._how = encoder.settings.token_storage if side == "passage" else "float16"
        self.state = {self._name: state.get(self._name, 0)}
        of_passages, of_queries = (TOKENS, TOKEN_STARTS, TOKEN_IDS), (QUERY_TOKENS, QUERY_TOKEN_STARTS, QUERY_TOKEN_IDS)
        vectors, starts, ids = of_passages if side == "passage" else of_queries
        numbered = place(ids) if encoder.settings.token_match == "same" else None
        parts = self.state[self._name]
        self.files = PartFiles(place(vectors), place(starts), encoder.dimension, self._how, parts, numbered)

    def vectors(self, items: Sequence[str], done: int) -> NDArray[np.float32]:
        """As :meth:`WholeTexts.vectors`; also writes the tokens' vectors."""
        tokens = self._dual.encode_tokens(items, self.side)
        require_finite(tokens.vectors, self.encoder)  # before they are rounded
        self.files.write(stored(tokens.vectors, self._how), tokens.counts, done, tokens.ids)
        self.state = {self._name: self.files.parts}
        return tokens.means(self.encoder.similarity)

    def figures(self, total: int) -> dict[str, Any]:
        """Number of tokens with a vector on this side."""
        return {f"num_{self._name}": self.state[self._name]}

    def in_words(self) -> str:
        """As :meth:`WholeTexts.in_words`."""
        if self.side == "query":
            return ""
        mean = self.state[self._name] / max(1, len(self.dataset.passage_ids))
        size = mean * self._dual.dimension * np.dtype(self._how).itemsize
        return f"{self.state[self._name]:,} vectors of tokens, {mean:.1f} a passage: {size:,.0f} bytes"


class SentencesAsPassages(WholeTexts):
    """One row per sentence, which is a passage of the dataset; the sentences of one text are read together."""

    def __init__(self, encoder: DualEncoder, dataset: Dataset, state: Mapping[str, int]) -> None:
        super().__init__(encoder, "passage", dataset)
        self._dual = encoder
        self.state = {"sentences_alone": state.get("sentences_alone", 0)}

    def items(self) -> Iterator[SentencePassages]:
        """As :meth:`WholeTexts.items`: an item is the sentences of one text."""
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
        """Number of sentences that were encoded without the others of their text."""
        return dict(self.state)

    def in_words(self) -> str:
        """As :meth:`WholeTexts.in_words`."""
        alone = self.state["sentences_alone"]
        lost = f"; {alone:,} beyond the limit of tokens were encoded alone" if alone else ""
        return f"passages are sentences, each read with the others of its text{lost}"


class ByEndpoint(WholeTexts):
    """One row per text; the endpoint's count of tokens is kept, also if the run is interrupted."""

    def __init__(self, encoder: EndpointEncoder, side: Side, dataset: Dataset, state: Mapping[str, int]) -> None:
        super().__init__(encoder, side, dataset)
        self._endpoint, self._before = encoder, state.get("tokens", 0) - encoder.tokens
        self.state = {"tokens": state.get("tokens", 0)}

    @property
    def window(self) -> int:
        """At most one round of requests: an interruption wastes little, and a slow endpoint shows progress."""
        return min(super().window, self._endpoint.api.batch_texts * self._endpoint.api.concurrency)

    def vectors(self, items: Sequence[Any], done: int) -> NDArray[np.float32]:
        """As :meth:`WholeTexts.vectors`; also counts the tokens."""
        vectors = super().vectors(items, done)
        self.state = {"tokens": self._before + self._endpoint.tokens}
        return vectors

    def figures(self, total: int) -> dict[str, Any]:
        """Number of tokens so far, of both sides."""
        return dict(self.state)

    def in_words(self) -> str:
        """As :meth:`WholeTexts.in_words`."""
        return "" if self.side == "passage" else cost_in_words(self.state["tokens"], self._endpoint.api.price)


def reading_of(
    encoder: TextEncoder, side: Side, dataset: Dataset, place: Place, state: Mapping[str, int]
) -> WholeTexts:
    """The way that ``encoder`` reads one side of a dataset.

    Args:
        encoder: The encoder.
        side: Passages or queries.
        dataset: The texts.
        place: From the name of a file of sentences or tokens to its path.
        state: :attr:`WholeTexts.state` of an interrupted run, or empty.
    """
    if isinstance(encoder, EndpointEncoder):
        return ByEndpoint(encoder, side, dataset, state)
    if isinstance(encoder, DualEncoder) and encoder.late:
        return ByTokens(encoder, side, dataset, place, state)
    if side == "query" or not isinstance(encoder, DualEncoder) or encoder.sentences is None:
        return WholeTexts(encoder, side, dataset)
    if is_of_sentences(dataset):
        return SentencesAsPassages(encoder, dataset, state)
    return BySentences(encoder, dataset, place, state)


def require_finite(vectors: NDArray[np.floating], encoder: TextEncoder | SparseEncoder) -> None:
    """Check vectors before they are written in float16.

    Raises:
        ArtifactError: A vector is not finite, or float16 has no number as large as one of its.
    """
    if not np.isfinite(vectors).all():
        raise ArtifactError(
            f"{encoder.settings.checkpoint}: it makes vectors that are not finite: its weights are damaged. "
            "Give another checkpoint."
        )
    if (largest := float(np.abs(vectors).max(initial=0))) > float(np.finfo(np.float16).max):
        raise ArtifactError(
            f"{encoder.settings.checkpoint}: it makes vectors with numbers up to {largest:,.0f}, and they are stored "
            "in float16, which ends at 65,504. Divide them by a constant: rankings stay the same."
        )


def windows(reading: WholeTexts, done: int, size: int) -> Iterator[list[Any]]:
    """The items after the first ``done`` rows, in lists of at least ``size`` rows (the last may have fewer)."""
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
