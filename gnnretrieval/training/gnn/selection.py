"""The choice on dev: a training run keeps an epoch and its context scale, its start, or the dual-encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gnnretrieval.graph.store import Graph
from gnnretrieval.training.gnn.model import GNNEncoderModel
from gnnretrieval.training.gnn.settings import TrainSettings


class Selection(NamedTuple):
    """The choice of a run, with its evidence.

    Attributes:
        best: Record of the epoch with the largest gain on dev.
        evidence: Significance level: the largest p-value at which the gain is accepted.
        transferred: Whether the level is ``transfer_evidence``, because the GNN-encoder's gain was significant over the
            dual-encoder of its training.
        is_significant: Whether the gain is significant at this level.
    """

    best: dict[str, Any]
    evidence: float
    transferred: bool
    is_significant: bool

    @classmethod
    def of(
        cls, best: dict[str, Any], settings: TrainSettings, store: Graph, start: GNNEncoderModel | None
    ) -> Selection:
        """Choose by the significance level that applies to a run.

        Args:
            best: Record of the epoch with the largest gain on dev.
            settings: Settings of the run.
            store: The graph.
            start: The GNN-encoder that the run started from; None: the identity.
        """
        transferred = not settings.epochs and start is not None and not start.is_over(store)
        transferred = transferred and _was_significant(start, settings.evidence)
        evidence = max(settings.evidence, settings.transfer_evidence) if transferred else settings.evidence
        return cls(best, evidence, transferred, best["gain"] > 0 and best["p"] <= evidence)

    @property
    def chosen(self) -> dict[str, Any]:
        """``epoch``, ``context_scale`` and dev ``RR@10`` of what is kept; scale 0 is the unchanged dual-encoder."""
        best = self.best
        if not self.is_significant:
            return {"epoch": 0, "context_scale": 0.0, "RR@10": best["dual_encoder"]}
        return {"epoch": best["epoch"], "context_scale": best["context_scale"], "RR@10": best["dev"]}

    def lines(
        self, history: Sequence[dict[str, Any]], settings: TrainSettings, start: GNNEncoderModel | None
    ) -> list[str]:
        """The choice as lines for the user.

        Args:
            history: Records of all epochs.
            settings: Settings of the run.
            start: The GNN-encoder that the run started from; None: the identity.
        """
        best, said, ran = self.best, [], history[-1]["epoch"]
        if ran < settings.epochs:
            said.append(f"stopped after {ran} of {settings.epochs} epochs: epoch {best['epoch']} is still the best")
        before = f"dual-encoder {100 * best['dual_encoder']:.1f}"
        if best["gain"] <= 0:
            said.append(
                f"the graph did not help on dev ({before}): the context scale is 0, so the embeddings are the "
                "dual-encoder's"
            )
            return said
        if not self.is_significant:
            level = "transfer_evidence" if self.transferred else "evidence"
            said.append(
                f"the best gain on dev, {100 * best['gain']:+.1f} RR@10 over {before}, may be chance "
                f"(p = {best['p']:.2g}, above {level} = {self.evidence:g}): the embeddings stay the "
                "dual-encoder's"
            )
            return said
        said.append(
            f"kept epoch {best['epoch']} with context scale {best['context_scale']:g}: "
            f"dev RR@10 {100 * best['dev']:.1f}, {before}"
        )
        if self.transferred and best["p"] > settings.evidence:
            said.append(self.weak)
        if settings.epochs and not best["epoch"]:
            said.append(self.nothing_gained(start is not None))
            if settings.is_joint:
                said.append("the dual-encoder is unchanged: embed without --features")
        if best["context_scale"] == max(settings.context_scales):
            said.append("the largest context scale was the best: try larger ones (--context-scales)")
        return said

    @property
    def weak(self) -> str:
        """Sentence: why a gain with a high p-value was accepted."""
        return (
            f"p = {self.best['p']:.2g} is enough (transfer_evidence = {self.evidence:g}), because its gain was "
            "significant over the dual-encoder it was trained over"
        )

    @staticmethod
    def nothing_gained(started: bool) -> str:
        """Sentence: no epoch was better than the start of the run."""
        what = "the GNN-encoder it started from" if started else "the untrained GNN"
        return f"no epoch gained on dev over {what} with the unchanged dual-encoder: this start is kept"


def what_was_kept(dev: Mapping[str, Any]) -> str:
    """What a GNN-encoder's training kept, in words, from ``dev`` of its metadata."""
    chosen = dev["chosen"]
    return dev.get("kept") or f"epoch {chosen['epoch']} with context scale {chosen['context_scale']:g}"


def _was_significant(start: GNNEncoderModel | None, evidence: float) -> bool:
    """Whether the gain of ``start`` was significant over the dual-encoder it was trained over."""
    if start is None or not start.meta["dev"].get("believed"):
        return False
    return bool(start.meta["dev"]["best"]["p"] <= evidence)
