"""Training with layer = linear: train heads, choose messages on dev by the ladder, and keep them by evidence."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from gnnretrieval.errors import InputError
from gnnretrieval.graph.store import Graph
from gnnretrieval.nn.label_messages import Heads, MessageGraph, Messages, Sides, mean_nearness
from gnnretrieval.platform.memory import memory_limit, require_memory
from gnnretrieval.progress import progress, say
from gnnretrieval.training.gnn.corpus_part import PASSAGES, CorpusPart, most_nodes
from gnnretrieval.training.gnn.head import train_heads
from gnnretrieval.training.gnn.held_out import BY_QUESTION, HeldOut
from gnnretrieval.training.gnn.judged import FEW, FOLDS, Judged, cross_validated, rows_of
from gnnretrieval.training.gnn.ladder import (
    MOST_SETTINGS,
    MOST_WITH_QUESTIONS,
    PRIORS,
    QUESTIONS,
    REJECTIONS,
    SCALINGS,
    SIDES,
    STEPS,
    UPDATE_SIZES,
    Climb,
    Rung,
    climb,
    head_steps,
    heads_of,
    message_graph,
    steps_of_heads,
)
from gnnretrieval.training.gnn.message_memory import bytes_of_messages, require_fit
from gnnretrieval.training.gnn.question_ladder import climb_with_questions
from gnnretrieval.training.gnn.settings import TrainSettings

CPU = torch.device("cpu")
WEIGHTS, LOG = "model.safetensors", "log.jsonl"
QUESTION_WEIGHTS = "questions.safetensors"


class TrainedMessages(NamedTuple):
    """Parameters of a model with layer = linear.

    Attributes:
        heads: ``H_q`` and ``H_p`` ``(d, d)`` float32; None: the identity.
        messages: Weights of the messages.
    """

    heads: Heads | None
    messages: Messages

    def save(self, path: Path) -> None:
        """Write the heads to ``path``, a shared one as ``head``; a file without tensors is the identity."""
        tensors: dict[str, Tensor] = {}
        if self.heads is not None:
            heads = self.heads.to(CPU)
            tensors = {"head": heads.queries} if self.messages.sides == "both" else heads._asdict()
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)

    def with_level(self, graph: MessageGraph) -> TrainedMessages:
        """The same with the level of local scaling fixed to the passages' mean nearness in ``graph``."""
        heads = self.heads if self.heads is None else self.heads.to(graph.device)
        return self._replace(messages=self.messages._replace(level=mean_nearness(graph, heads, self.messages)))

    @classmethod
    def load(cls, path: Path, messages: Messages) -> TrainedMessages:
        """Load the heads at ``path``.

        Raises:
            InputError: The weights are damaged.
        """
        try:
            weights = load_file(path)
            if not messages.steps:
                return cls(None, messages)
            if messages.sides == "both":
                return cls(Heads.shared(weights["head"]), messages)
            return cls(Heads(weights["queries"], weights["passages"]), messages)
        except (SafetensorError, KeyError) as error:
            raise InputError(f"these weights cannot be loaded ({error}). Train again.", path) from None


class MessagesTraining(NamedTuple):
    """Result of training with layer = linear.

    Attributes:
        climb: The ladder's choice, rung by rung.
        evidence: Significance level: the largest p-value at which the gain is accepted.
        heads: Heads of the ladder's choice, trained without the dev questions; None: the identity.
        trained: What is kept; the dual-encoder if the gain is not significant.
        dev: Mean RR@10 of what is kept on the dev questions.
        dual_encoder: Mean RR@10 of the dual-encoder.
        cross_validated: Number of training questions that joined the dev questions.
        passages: Number of passages that the dev questions ranked.
        judged: The dev questions, with a graph and heads that lack them; None: over a part of the corpus.
        several: What is kept for several vectors a passage; None: nothing.
        climb_several: The ladder's choice for these; None: there is no dev split.
        dev_several: Mean RR@10 of that choice on the dev questions.
    """

    climb: Climb
    evidence: float
    heads: Heads | None
    trained: TrainedMessages
    dev: float
    dual_encoder: float
    cross_validated: int
    passages: int
    judged: Judged | None = None
    several: TrainedMessages | None = None
    climb_several: Climb | None = None
    dev_several: float = 0.0

    @property
    def is_significant(self) -> bool:
        """Whether the gain is significant."""
        return _is_significant(self.climb, self.evidence)

    @property
    def kept(self) -> str:
        """What is kept, in words."""
        messages = self.trained.messages
        alone = bool(messages.steps) and messages == messages.head
        return in_words(messages) + (
            " alone, because messages along the graph's edges gained no more than chance" if alone else ""
        )

    def described(self) -> dict[str, Any]:
        """The entry ``dev`` of a model's metadata; of several vectors a passage where these are kept."""
        return {
            "dual_encoder": {"RR@10": self.dual_encoder},
            "passages": self.passages,
            "cross_validated": self.cross_validated,
            "evidence": self.evidence,
            **self._described_choice(),
        }

    def _described_choice(self) -> dict[str, Any]:
        one = {
            "best": _figures_of(self.climb),
            "believed": self.is_significant,
            "chosen": {"RR@10": self.dev},
            "kept": self.kept,
        }
        if self.several is None or self.climb_several is None:
            return one
        return {
            "best": _figures_of(self.climb_several),
            "believed": True,
            "chosen": {"RR@10": self.dev_several},
            "kept": in_words(self.several.messages),
            "one_vector": one,
        }

    def write_log(self, path: Path) -> None:
        """Write one line per rung, in the form of the other trainings' measurements."""
        lines: list[dict[str, Any]] = [
            {
                "step": number,
                "epoch": number,
                "rung": rung.name,
                "messages": rung.messages._asdict(),
                "gain": rung.gain,
                "error": or_none(rung.error),
                "log_rank": {"gain": rung.rank_gain, "error": or_none(rung.rank_error)},
                "kept": rung.kept,
                "dev": {"RR@10": rung.dev, "dual-encoder": self.climb.dual_encoder},
            }
            for number, rung in enumerate(self._rungs, 1)
        ]
        path.write_text("".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines), encoding="utf-8")

    @property
    def _rungs(self) -> list[Rung]:
        return [*self.climb.rungs, *([] if self.climb_several is None else self.climb_several.rungs)]

    def lines(self) -> list[str]:
        """The choice as lines for the user."""
        choice, said = self.climb, []
        if self.cross_validated:
            said.append(f"few dev questions: added {self.cross_validated:,} cross-validated training questions")
        said += [
            f"{rung.name}: log2 rank {-rung.rank_gain:+.2f}"
            + (f" ± {rung.rank_error:.2f}" if math.isfinite(rung.rank_error) else " on one question")
            + f", RR@10 {100 * rung.gain:+.1f}"
            + (f" ± {100 * rung.error:.1f}" if math.isfinite(rung.error) else "")
            + f", by {in_words(rung.messages)}: "
            + ("kept" if rung.kept else "left out")
            for rung in self._rungs
        ]
        if self.several is not None and self.climb_several is not None:
            return [*said, *self._lines_of_several(self.several.messages, self.climb_several)]
        best = _evidence_in_words(choice)
        if choice.messages == Messages():
            said.append("nothing gained more than chance: the embeddings are the dual-encoder's")
        elif not self.is_significant:
            said.append(
                f"the gain, {100 * choice.gain:+.1f} RR@10, may be chance ({best}; evidence = {self.evidence:g}): the "
                "embeddings stay the dual-encoder's"
            )
        else:
            said.append(
                f"kept: {self.kept}; dev RR@10 {100 * self.dev:.1f}, dual-encoder {100 * self.dual_encoder:.1f} "
                f"({best})"
            )
        return said

    def _lines_of_several(self, messages: Messages, choice: Climb) -> list[str]:
        one = self.kept if self.is_significant else "the dual-encoder's"
        return [
            "kept, with one vector more of a passage for each of its training questions: "
            f"{in_words(messages)}; dev RR@10 {100 * self.dev_several:.1f}, dual-encoder {100 * self.dual_encoder:.1f} "
            f"({_evidence_in_words(choice)})",
            f"kept for one vector a passage (embed --one-vector): {one}; dev RR@10 {100 * self.dev:.1f}",
        ]


def _figures_of(choice: Climb) -> dict[str, Any]:
    return {"gain": choice.gain, "p": choice.p, "tried": choice.tried}


def _evidence_in_words(choice: Climb) -> str:
    return f"p = {choice.p:.2g}, the best of {choice.tried} settings"


def or_none(error: float) -> float | None:
    """The error for JSON, which has no infinity; None: of one question."""
    return error if math.isfinite(error) else None


def _is_significant(choice: Climb, evidence: float) -> bool:
    return choice.messages != Messages() and choice.gain > 0 and choice.p <= evidence


def in_words(messages: Messages) -> str:
    """The messages in words."""
    parts = []
    if messages.steps:
        beside = f" trained with label mean {messages.trained_mean:g}" if messages.trained_mean else ""
        heads = "head" if messages.sides == "both" else "separate heads"
        parts.append(f"{heads} of {messages.steps} steps{beside}")
    if messages.mean:
        parts.append(f"label mean {messages.mean:g}")
    if messages.rounds:
        parts.append(f"rejection {messages.rounds} × {messages.step_size:g}")
    if messages.passes:
        parts.append(f"{messages.passes} passes of updates by {messages.update_size:g}")
    if messages.prior:
        parts.append(f"prior {messages.prior:+g}")
    if messages.scaling:
        parts.append(f"local scaling {messages.scaling:g}")
    if messages.questions:
        parts.append(f"nearest question {messages.questions:g}")
    return ", ".join(parts) or "the dual-encoder"


def train_messages(
    store: Graph,
    held_out: HeldOut,
    settings: TrainSettings,
    taught: Tensor,
    *,
    sides: Sequence[Sides] = SIDES,
    update_sizes: Sequence[float] = UPDATE_SIZES,
    device: torch.device = CPU,
) -> MessagesTraining:
    """As :func:`train_over`, over the vectors and edges of ``store``, or over a part of the corpus.

    A part is taken where ``settings.passages`` says so, or where memory does not hold the vectors of all nodes.
    Training and measuring on dev are done on ``device``.

    Raises:
        GnnRetrievalError: The vectors of the part do not fit into memory.
    """
    part = training_part(store, held_out, settings, taught)
    of_whole: dict[str, Any] = {"rejections": REJECTIONS, "update_sizes": update_sizes}
    if not part.is_whole:
        of_whole = {"rejections": REJECTIONS[:1], "update_sizes": ()}
    made = train_over(part.graph.to(device), part.held_out, settings, part.taught, sides=sides, **of_whole)
    return made if part.is_whole else made._replace(judged=None)


def training_part(store: Graph, held_out: HeldOut, settings: TrainSettings, taught: Tensor) -> CorpusPart:
    """The graph, dev questions and questions to train on of layer = linear: all, or those of a part of the corpus.

    Raises:
        GnnRetrievalError: Memory does not hold its vectors.
    """
    passages = passages_of_part(settings, store.dimension, store.num_passages, store.num_queries)
    if passages is None:
        require_fit(store)
        return CorpusPart(message_graph(store), held_out, taught, is_whole=True)
    needed = bytes_of_messages(store.dimension, most_nodes(passages))
    require_memory(needed, f"layer = linear on {passages:,} passages of {store.path}", "Give fewer (--passages).")
    why = "memory does not hold all vectors: " if settings.passages is None else ""
    shown = f"about {passages:,} of {store.num_passages:,} passages"
    say(f"{why}training on {shown}, without rejection and updates, which need all")
    return CorpusPart.of(store, held_out, taught, passages, settings.seed)


def passages_of_part(settings: TrainSettings, dimension: int, passages: int, queries: int) -> int | None:
    """Number of passages that layer = linear trains on, of a graph of this size; None: all."""
    if settings.passages is not None:
        return settings.passages if settings.passages < passages else None
    return None if bytes_of_messages(dimension, passages + queries) <= memory_limit() else min(PASSAGES, passages)


def train_over(
    whole: MessageGraph,
    held_out: HeldOut,
    settings: TrainSettings,
    taught: Tensor,
    *,
    most: int = len(STEPS),
    sides: Sequence[Sides] = SIDES,
    rejections: Sequence[tuple[int, float]] = REJECTIONS,
    update_sizes: Sequence[float] = UPDATE_SIZES,
) -> MessagesTraining:
    """Train heads over a graph and choose the messages on the held-out questions.

    A prior is chosen by the dev split alone, and local scaling only with one: held-out training questions do not show
    how often later questions will be about passages with training questions, and these passages are near to more
    questions than the others.

    Args:
        whole: The graph.
        held_out: The dev questions.
        settings: Settings; ``seed`` and ``evidence`` are used.
        taught: ``(n,)`` bool, True for queries to train the head on.
        most: Numbers of steps of a head that are tried, the smallest first.
        sides: Kinds of heads that are tried.
        rejections: Rounds and step sizes of rejection that are tried.
        update_sizes: Step sizes of passage updates that are tried.
    """
    graph = whole if held_out.hidden is None else whole.without(torch.from_numpy(held_out.hidden))
    steps = head_steps(graph, taught)[:most]
    tried, judged = _trained_heads(graph, held_out, settings, taught, steps, sides)
    common: dict[str, Any] = {"steps": steps, "sides": sides, "rejections": rejections, "update_sizes": update_sizes}
    choice, climb_several = _chosen(judged, held_out, settings, common)
    messages = choice.messages if _is_significant(choice, settings.evidence) else Messages()
    heads = without_dev = tried[messages.head] if messages.steps else None
    chosen = Messages() if climb_several is None else climb_several.messages
    dev, before, dev_several = (float(judged[0].measure(each).mean()) for each in (messages, Messages(), chosen))
    if heads is not None and held_out.hidden is not None and not held_out.is_split:
        # after the choice, train on the held-out training questions too
        mean, seed = messages.trained_mean, settings.seed
        heads = train_heads(whole, messages.steps, sides=messages.sides, mean=mean, seed=seed, taught=taught)
    trained = TrainedMessages(heads, messages)
    if messages.scaling:
        trained = trained.with_level(whole)
    several = None
    if climb_several is not None and chosen.questions and _is_significant(climb_several, settings.evidence):
        several = TrainedMessages(tried[chosen.head] if chosen.steps else None, chosen)
        several = several.with_level(whole) if chosen.scaling else several
    return MessagesTraining(
        choice,
        settings.evidence,
        without_dev,
        trained,
        dev,
        before,
        cross_validated=sum(len(part.relevant) for part in judged[1:]),
        passages=len(whole.passages),
        judged=judged[0],
        several=several,
        climb_several=climb_several,
        dev_several=dev_several,
    )


def _trained_heads(
    graph: MessageGraph,
    held_out: HeldOut,
    settings: TrainSettings,
    taught: Tensor,
    steps: Sequence[int],
    sides: Sequence[Sides],
) -> tuple[dict[Messages, Heads], list[Judged]]:
    """Heads of every kind, and the questions to judge them on: dev's and, where these are few, cross-validated ones."""
    few = is_few(held_out)
    with progress("training heads", steps_of_heads(steps, FOLDS * few, len(sides)), "steps") as meter:
        tried = heads_of(graph, steps, settings.seed, taught, meter.advance, sides=sides)
        judged = [Judged.of(graph, tried, held_out.queries, held_out.relevant, held_out.clicked)]
        if few:
            split = judged[0] if held_out.is_split else None
            judged += cross_validated(
                graph,
                split,
                steps,
                settings.seed,
                taught,
                meter.advance,
                sides,
                clicked=held_out.clicked_in_graph,
                may_join=held_out.may_join,
            )
    return tried, judged


def _chosen(
    judged: Sequence[Judged],
    held_out: HeldOut,
    settings: TrainSettings,
    tried: dict[str, Any],
) -> tuple[Climb, Climb | None]:
    """The choice among what is ``tried`` for one vector a passage, and with a dev split the one for several."""
    further = MOST_WITH_QUESTIONS * len(QUESTIONS) + len(PRIORS) + len(SCALINGS)
    with progress("measuring on dev", MOST_SETTINGS + further * held_out.is_split, "settings") as meter:

        def measure(messages: Messages) -> NDArray[np.float64]:
            return np.concatenate([part.measure(messages) for part in judged])

        def by_rank(messages: Messages) -> NDArray[np.float64]:
            meter.advance(1)
            return np.concatenate([part.log_ranks(messages) for part in judged])

        added = sum(len(part.relevant) for part in judged[1:])
        parts = np.append(held_out.parts[rows_of(len(held_out.parts))], np.full(added, BY_QUESTION))
        common = {**tried, "by_rank": by_rank, "of_dev": len(judged[0].relevant)}
        choice = climb(
            measure,
            priors=PRIORS if held_out.is_split else (0.0,),
            scalings=SCALINGS if held_out.is_split else (0.0,),
            parts=None if held_out.is_split else parts,
            **common,
        )
        if not held_out.is_split:  # nothing shows how often later questions repeat the training questions
            return choice, None
        start = choice.messages if _is_significant(choice, settings.evidence) else Messages()
        return choice, climb_with_questions(measure, start, choice.measured, **common)


def is_few(held_out: HeldOut) -> bool:
    """Whether these dev questions are so few that training questions join them, and some may."""
    return len(held_out.relevant) < FEW and (held_out.may_join is None or bool(held_out.may_join.any()))
