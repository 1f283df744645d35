"""Training task of DCSR's sentence encoder (§3.2).

The positive is a sentence of the positive passage that contains an answer. Negatives are the other sentences of the
batch, one random sentence of each mined negative passage, and *in-passage* negatives: sentences of the positive passage
without the answer. If the passage has too few, more sentences of the first mined passage replace them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gnnretrieval.data.answers import Answers
from gnnretrieval.encoders.sentence_tokens import SentenceTokenizer, SentenceTokens
from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.losses import contrastive_loss
from gnnretrieval.mining.examples import Example
from gnnretrieval.training.cached_step import Batch
from gnnretrieval.training.encoder.dev import RetrievalDev
from gnnretrieval.training.encoder.dual_task import PASSAGE, QUERY, DualEncoderTask
from gnnretrieval.training.encoder.pair_data import Relevance, Texts, draw
from gnnretrieval.training.encoder.settings import DualEncoderTrainSettings
from gnnretrieval.training.encoder.towers import Item, TextTower

_WORD = re.compile(r"\w+")


class AnswerSentences(NamedTuple):
    """Sentences with answers, and the examples that can be trained on.

    Attributes:
        of: Numbers of the sentences of a passage that contain an answer of a query, by (query id, passage id).
        examples: Examples with the positives that have a sentence with an answer.
        skipped: Number of positives that are left out because no sentence contains an answer.
        by_overlap: Number of positives for which word overlap chose the sentence instead.
    """

    of: Mapping[tuple[str, str], frozenset[int]]
    examples: list[Example]
    skipped: int
    by_overlap: int


def answer_sentences(
    examples: Sequence[Example],
    texts: Texts,
    answers: Mapping[str, Sequence[str]],
    tokens: Mapping[str, SentenceTokens],
    without_answer: str,
) -> AnswerSentences:
    """Find the sentences that contain an answer, for all positives of all examples.

    Args:
        examples: Queries with positives.
        texts: Texts of both.
        answers: Answer strings by query id.
        tokens: Tokens and sentences of the passages by id.
        without_answer: ``skip`` or ``overlap``, as in
            :class:`gnnretrieval.training.encoder.settings.DualEncoderTrainSettings`.
    """
    of: dict[tuple[str, str], frozenset[int]] = {}
    kept, skipped, by_overlap = [], 0, 0
    for example in examples:
        positives = []
        for candidate in example.positives:
            text, spans = texts.passages[candidate.passage], tokens[candidate.passage].spans
            sentences = [text[start:end] for start, end in spans]
            gold = holding(sentences, answers.get(example.query, ()))
            if not gold and without_answer == "overlap" and sentences:
                gold = frozenset({most_overlap(texts.queries[example.query], sentences)})
                by_overlap += 1
            if gold:
                of[example.query, candidate.passage] = gold
                positives.append(candidate)
            else:
                skipped += 1
        if positives:
            kept.append(example._replace(positives=tuple(positives)))
    return AnswerSentences(of, kept, skipped, by_overlap)


def holding(sentences: Sequence[str], answers: Sequence[str]) -> frozenset[int]:
    """Numbers of the sentences that contain one of the answers, by DPR's rule."""
    wanted = Answers(answers)
    return frozenset(number for number, sentence in enumerate(sentences) if wanted.in_text(sentence))


def most_overlap(query: str, sentences: Sequence[str]) -> int:
    """Number of the sentence that shares most words with the query, the first of equal ones."""
    words = set(_WORD.findall(query.casefold()))
    shared = [len(words & set(_WORD.findall(sentence.casefold()))) for sentence in sentences]
    return shared.index(max(shared))


class SentenceTask(DualEncoderTask):
    """Batches of queries with sentences of their passages; arguments as :class:`DualEncoderTask`.

    Args:
        answers: Answer strings by query id.

    Raises:
        GnnRetrievalError: No positive has a sentence with an answer.
    """

    def __init__(
        self,
        examples: Sequence[Example],
        texts: Texts,
        answers: Mapping[str, Sequence[str]],
        towers: Mapping[str, TextTower],
        similarity: Similarity,
        settings: DualEncoderTrainSettings,
        dev: RetrievalDev,
    ) -> None:
        tokenizer = sentence_tokenizer(towers[PASSAGE])
        ids = list(texts.passages)
        made = tokenizer.tokens([texts.passages[id_] for id_ in ids])
        self.tokens = dict(zip(ids, made, strict=True))
        self.answer_sentences = answer_sentences(examples, texts, answers, self.tokens, settings.without_answer)
        if not self.answer_sentences.examples:
            raise GnnRetrievalError(
                "no positive passage has a sentence with an answer of its query. Answers are read from "
                "metadata.answers in queries.jsonl; without answers, give without_answer = overlap."
            )
        super().__init__(self.answer_sentences.examples, texts, towers, similarity, settings, dev)
        self.relevance = Relevance(examples, texts)  # positives without an answer are not negatives either
        self.sentences_cut = sum(tokens.cut for tokens in made)

    def batch(self, epoch: int, number: int) -> Batch:
        """A batch: rows of its queries, then rows of the sampled sentences, passage by passage."""
        settings = self.settings
        drawn = draw(self.examples, settings.batch_size, settings.hard_negatives, settings.seed, epoch, number)
        rng = np.random.default_rng([settings.seed, epoch, number, 1])
        # sentences by passage: a passage of several queries is encoded once
        wanted: dict[str, dict[int, None]] = {}
        positives: list[tuple[str, int]] = []
        for example in drawn:
            passage = example.positive.passage
            gold = sorted(self.answer_sentences.of[example.query, passage])
            sentence = gold[int(rng.integers(len(gold)))]
            positives.append((passage, sentence))
            chosen = wanted.setdefault(passage, {})
            chosen[sentence] = None
            others = [n for n in range(len(self.tokens[passage].spans)) if n not in gold]
            inside = rng.permutation(others)[: settings.in_passage].tolist() if others else []
            chosen.update(dict.fromkeys(inside))
            instead = settings.in_passage - len(inside)
            for place, negative in enumerate(example.negatives):
                count = 1 + (instead if place == 0 else 0)
                sampled = rng.permutation(len(self.tokens[negative.passage].spans))[:count].tolist()
                wanted.setdefault(negative.passage, {}).update(dict.fromkeys(sampled))
        items = self._items(QUERY, [self.texts.queries[one.query] for one in drawn])
        columns: dict[tuple[str, int], int] = {}
        for passage, sentences in wanted.items():
            if sentences:
                items.append(sentence_item(self.tokens[passage], list(sentences)))
                for sentence in sentences:
                    columns[passage, sentence] = len(columns)
        return Batch(items, _SentenceLoss(self, [one.query for one in drawn], positives, columns))


class _SentenceLoss:
    """Contrastive loss over sentences; other sentences with the answer in a positive passage are not negatives."""

    def __init__(
        self,
        task: SentenceTask,
        queries: list[str],
        positives: list[tuple[str, int]],
        columns: dict[tuple[str, int], int],
    ) -> None:
        self.scale = task.similarity.scale
        self.positives = torch.tensor([columns[place] for place in positives])
        passages = list(dict.fromkeys(passage for passage, _ in columns))
        of_passage = dict(zip(passages, task.relevance.mask(queries, passages).T, strict=True))
        self.relevant = torch.zeros(len(queries), len(columns), dtype=torch.bool)
        for (passage, sentence), column in columns.items():
            for row in np.flatnonzero(of_passage[passage]).tolist():
                # a passage with a positive's text under another id has no entry: all its sentences count as relevant
                gold = task.answer_sentences.of.get((queries[row], passage))
                self.relevant[row, column] = gold is None or sentence in gold

    def __call__(self, rows: Tensor) -> Tensor:
        count = len(self.positives)
        scores = self.scale * rows[:count] @ rows[count:].T  # (B, sentences)
        return contrastive_loss(scores, self.positives.to(rows.device), self.relevant.to(rows.device))


class SentenceDev(RetrievalDev):
    """Evaluation on dev with ``HasAns`` over a passage's sentences (eq. 2) as its score."""

    def passage_items(self, texts: Sequence[str]) -> list[Item]:
        """Items of the passages' texts, with a row for each sentence."""
        made = sentence_tokenizer(self.towers[PASSAGE]).tokens(texts)
        self._counts = torch.tensor([len(tokens.spans) for tokens in made])
        self._mean = float(self._counts.float().mean())
        return [sentence_item(tokens, range(len(tokens.spans))) for tokens in made]

    def scores(self, part: slice, queries: Tensor, passages: Tensor) -> Tensor:
        """``-log(1 - HasAns)`` ``(b, passages)``, from rows of sentences ``(sentences, d)``; it ranks as ``HasAns``."""
        scores = (self.similarity.scale * queries @ passages.T).double()  # (b, sentences)
        most = min(scores.shape[1], round(100 * self._mean))
        best, places = scores.topk(most, dim=1)
        log_none = torch.log1p(-torch.softmax(best, 1).clamp(max=1 - 1e-15))
        passage_of = torch.repeat_interleave(torch.arange(len(self._counts)), self._counts)
        total = torch.zeros(len(scores), len(self._counts), dtype=torch.float64)
        return -total.scatter_add_(1, passage_of[places], log_none)


def sentence_tokenizer(tower: TextTower) -> SentenceTokenizer:
    """Sentence tokenizer for a tower's passages."""
    return SentenceTokenizer(tower.tokenizer, tower.max_tokens, tower.prompt)


def sentence_item(tokens: SentenceTokens, sentences: Sequence[int]) -> Item:
    """Item of a passage, with a row for each of the given sentences."""
    spans = tuple((int(tokens.starts[number]), int(tokens.ends[number])) for number in sentences)
    return Item(PASSAGE, tuple(int(id_) for id_ in tokens.ids), (), spans)
