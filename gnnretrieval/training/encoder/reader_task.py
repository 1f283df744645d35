"""Training task of a reader: the likelihood of a question's answer spans among the spans of its passages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gnnretrieval.data.answer_scores import answer_f1, exact_match
from gnnretrieval.data.answers import answer_spans, read_answers
from gnnretrieval.data.dataset import QUERIES, Dataset
from gnnretrieval.data.records import Passage
from gnnretrieval.encoders.checkpoint import Checkpoint
from gnnretrieval.encoders.loading import load_reader
from gnnretrieval.encoders.reader import best_span, padded_logits
from gnnretrieval.encoders.reader_tokens import ReaderTokenizer, Window
from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.mining.examples import Example
from gnnretrieval.training.cached_step import Batch
from gnnretrieval.training.encoder.head_tower import HeadTower
from gnnretrieval.training.encoder.pair_data import draw, require_texts
from gnnretrieval.training.encoder.settings import ReaderTrainSettings
from gnnretrieval.training.encoder.towers import Item, Tower, item_batches
from gnnretrieval.training.ranks import Ranks

READING = "reader"  # name of the tower


class ReaderTower(HeadTower):
    """A model for extractive question answering: start and end logit of every token of a passage's text.

    Arguments and errors as :class:`HeadTower`; ``max_tokens`` is the maximum length of a window.
    """

    width = 2

    def __init__(self, checkpoint: Checkpoint, device: torch.device, max_tokens: int, dropout: float | None) -> None:
        super().__init__(load_reader, checkpoint, device, max_tokens, dropout)
        self.tokens = ReaderTokenizer(self.tokenizer, max_tokens, checkpoint)

    def items(self, windows: Sequence[Window]) -> list[Item]:
        """Items of windows, with a row for each token of the passage's text."""
        return [
            Item(
                READING,
                tuple(window.ids.tolist()),
                tuple(window.types.tolist()),
                tuple((place, place + 1) for place in range(window.first, window.first + len(window.characters))),
            )
            for window in windows
        ]

    def rows(self, items: Sequence[Item]) -> Tensor:
        """Start and end logits of the items' tokens of text ``(Σ tokens, 2)`` float32."""
        ids, types = [item.ids for item in items], [item.types for item in items]
        logits = padded_logits(self.module, self.tokenizer, ids, types)
        own = [row[item.spans[0][0] : item.spans[-1][1]] for row, item in zip(logits, items, strict=True)]
        return torch.cat(own).float()


class ReaderTexts(NamedTuple):
    """Texts of queries and passages, and answers of queries, by id."""

    queries: Mapping[str, str]
    passages: Mapping[str, Passage]
    answers: Mapping[str, Sequence[str]]

    def spans(self, query: str, passage: str) -> list[tuple[int, int]]:
        """Spans of characters of the query's answers in a passage's text."""
        return answer_spans(self.passages[passage].text, self.answers.get(query, ()))


class ReaderTask:
    """Batches of queries, each with a relevant passage that has its answer, and negatives.

    Args:
        examples: Training examples: positives, and negatives from the retriever's top-k.
        dev: The same for dev queries, to choose the epoch.
        texts: Texts and answers of both.
        tower: The model to train.
        settings: Batch size and negatives.

    Raises:
        GnnRetrievalError: No training query has its answer in a relevant passage, or no dev query has an answer.
    """

    def __init__(
        self,
        examples: Sequence[Example],
        dev: Sequence[Example],
        texts: ReaderTexts,
        tower: ReaderTower,
        settings: ReaderTrainSettings,
    ) -> None:
        self.texts, self.tower, self.settings = texts, tower, settings
        answerable = (
            example._replace(positives=tuple(c for c in example.positives if texts.spans(example.query, c.passage)))
            for example in examples
        )
        self.examples = [example for example in answerable if example.positives]
        self.without_answer = len(examples) - len(self.examples)
        answered = [example for example in dev if texts.answers.get(example.query)]
        if not self.examples:
            raise GnnRetrievalError(
                "no training query has an answer (metadata.answers in queries.jsonl) in the text of a relevant passage."
            )
        if not answered:
            raise GnnRetrievalError("no dev query has answers (metadata.answers in queries.jsonl).")
        rng = np.random.default_rng([settings.seed, 0, 2])
        self.dev = [answered[row] for row in sorted(rng.permutation(len(answered))[: settings.dev_queries].tolist())]
        self.steps_per_epoch = -(-len(self.examples) // settings.batch_size)

    def batch(self, epoch: int, number: int) -> Batch:
        """A batch: the windows of its queries' passages, each query's positive first."""
        settings = self.settings
        drawn = draw(self.examples, settings.batch_size, settings.negatives, settings.seed, epoch, number)
        pairs = [(place, c.passage) for place, one in enumerate(drawn) for c in (one.positive, *one.negatives)]
        windows = self._windows([(drawn[place].query, passage) for place, passage in pairs])
        owners, spans, start = [], [], 0
        for window in windows:
            place, passage = pairs[window.pair]
            if passage == drawn[place].positive.passage:
                own = self._token_spans(window, drawn[place].query, passage)
                spans += [(place, start + first, start + last) for first, last in own]
            owners += [place] * len(window.characters)
            start += len(window.characters)
        return Batch(self.tower.items(windows), SpanLoss(torch.tensor(owners), torch.tensor(spans).view(-1, 3)))

    def _windows(self, pairs: Sequence[tuple[str, str]]) -> list[Window]:
        texts = self.texts
        return self.tower.tokens.windows([texts.queries[q] for q, _ in pairs], [texts.passages[p] for _, p in pairs])

    def _token_spans(self, window: Window, query: str, passage: str) -> list[tuple[int, int]]:
        """First and last token of each answer that lies in the window."""
        starts, ends = window.characters.T  # of each token, in the passage's text
        spans = []
        for start, end in self.texts.spans(query, passage):
            first, last = int(np.searchsorted(ends, start, side="right")), int(np.searchsorted(starts, end)) - 1
            if first <= last and starts[first] <= start and ends[last] >= end:
                spans.append((first, last))
        return spans

    def before_step(self, step: int, towers: Mapping[str, Tower], directory: Path, ranks: Ranks) -> None:
        """Do nothing: the examples do not change."""

    def measure(self, towers: Mapping[str, Tower]) -> dict[str, float]:
        """Exact match and F1 of the best span among each dev query's passages."""
        pairs = [
            (place, c.passage)
            for place, example in enumerate(self.dev)
            for c in (*example.positives, *example.negatives)[: self.settings.dev_passages]
        ]
        windows = self._windows([(self.dev[place].query, passage) for place, passage in pairs])
        best = [(-np.inf, "")] * len(self.dev)  # logit and text of each query's best span
        items = self.tower.items(windows)
        with torch.inference_mode():
            for chosen in item_batches(items, self.settings.token_budget):
                rows = self.tower.rows([items[number] for number in chosen]).cpu().numpy()
                parts = np.split(rows, np.cumsum([items[number].rows for number in chosen])[:-1])
                for number, logits in zip(chosen.tolist(), parts, strict=True):
                    first, last, logit = best_span(logits, self.settings.answer_tokens)
                    place, passage = pairs[windows[number].pair]
                    if logit > best[place][0]:
                        characters = windows[number].characters
                        text = self.texts.passages[passage].text[characters[first, 0] : characters[last, 1]]
                        best[place] = (logit, text)
        gold = [self.texts.answers[example.query] for example in self.dev]
        predicted = [text for _, text in best]
        return {
            "EM": fmean(map(exact_match, predicted, gold)),
            "F1": fmean(map(answer_f1, predicted, gold)),
        }


class SpanLoss:
    """Negative log-likelihood of a query's answer spans among all spans of its passages, mean over queries.

    ``−log Σ_{answer (i, j)} P_start(i) P_end(j)``: the marginal likelihood of DPR's reader (Karpukhin et al. 2020,
    section 6.1), with both softmaxes over all tokens of the query's passages (Clark and Gardner 2018, section 3). A
    query without a span, as an answer that no window holds whole, adds nothing.

    Args:
        owners: Number of the query of each token ``(R,)``.
        spans: Query, row of the first token and row of the last token of each answer ``(S, 3)``.
    """

    def __init__(self, owners: Tensor, spans: Tensor) -> None:
        self.owners, self.spans = owners, spans

    def __call__(self, rows: Tensor) -> Tensor:
        """The loss of start and end logits ``(R, 2)``."""
        owners, (query, first, last) = self.owners.to(rows.device), self.spans.to(rows.device).T
        losses = [
            own.logsumexp(0).sum() - (rows[first[mine], 0] + rows[last[mine], 1]).logsumexp(0)
            for number in query.unique().tolist()
            for own, mine in [(rows[owners == number], query == number)]
        ]
        return torch.stack(losses).mean() if losses else rows.sum() * 0


def reader_texts(dataset: Dataset, examples: Sequence[Example]) -> ReaderTexts:
    """Texts of the examples' queries and passages, and the dataset's answers.

    Raises:
        GnnRetrievalError: An id is not in the dataset.
    """
    queries = {example.query for example in examples}
    passages = {c.passage for example in examples for c in (*example.positives, *example.negatives)}
    made = ReaderTexts(
        {query.id: query.text for query in dataset.queries() if query.id in queries},
        {passage.id: passage for passage in dataset.passages() if passage.id in passages},
        read_answers(dataset.path / QUERIES),
    )
    require_texts(dataset, queries, made.queries, "query")
    require_texts(dataset, passages, made.passages, "passage")
    return made
