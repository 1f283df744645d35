"""What a training run keeps, and why: an epoch with its context scale, what it started from, or the dual-encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gnnretrieval.graph.store import Graph
from gnnretrieval.training.gnn.model import GNNEncoderModel
from gnnretrieval.training.gnn.settings import TrainSettings


class Selection(NamedTuple):
    """What is kept of a run.

    Attributes:
        best: The record of the epoch that gained most on dev.
        evidence: p-value up to which its gain is believed.
        transferred: Whether that is ``transfer_evidence``, the gain having been believed over another dual-encoder.
        believed: Whether it is.
    """

    best: dict[str, Any]
    evidence: float
    transferred: bool
    believed: bool

    @classmethod
    def of(
        cls, best: dict[str, Any], settings: TrainSettings, store: Graph, start: GNNEncoderModel | None
    ) -> Selection:
        """The choice, by the evidence that is wanted of such a run.

        Args:
            best: The record of the epoch that gained most on dev.
            settings: How it was trained.
            store: Over which graph.
            start: From which GNN-encoder.
        """
        transferred = not settings.epochs and start is not None and not start.is_over(store)
        transferred = transferred and _was_believed(start, settings.evidence)
        evidence = max(settings.evidence, settings.transfer_evidence) if transferred else settings.evidence
        return cls(best, evidence, transferred, best["gain"] > 0 and best["p"] <= evidence)

    @property
    def chosen(self) -> dict[str, Any]:
        """``epoch``, ``context_scale`` and ``RR@10`` on dev of what is kept; λ = 0 is the dual-encoder as it came."""
        best = self.best
        if not self.believed:
            return {"epoch": 0, "context_scale": 0.0, "RR@10": best["dual_encoder"]}
        return {"epoch": best["epoch"], "context_scale": best["context_scale"], "RR@10": best["dev"]}

    def lines(
        self, history: Sequence[dict[str, Any]], settings: TrainSettings, start: GNNEncoderModel | None
    ) -> list[str]:
        """The same in words, for the user.

        Args:
            history: Every epoch's record.
            settings: How it was trained.
            start: From which GNN-encoder.
        """
        best, said, ran = self.best, [], history[-1]["epoch"]
        if ran < settings.epochs:
            said.append(f"stopped after {ran} of {settings.epochs} epochs: none was better than {best['epoch']}")
        before = f"dual-encoder {100 * best['dual_encoder']:.1f}"
        if best["gain"] <= 0:
            said.append(
                f"the graph did not help on dev ({before}): with context scale 0 the embeddings are the "
                "dual-encoder's own"
            )
            return said
        if not self.believed:
            said.append(
                f"the best gain on dev, {100 * best['gain']:+.1f} RR@10 over {before}, may be chance "
                f"(p = {best['p']:.2g}, above {self._name} = {self.evidence:g}): the embeddings stay the "
                "dual-encoder's own"
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
                said.append("it has no dual-encoder of its own: embed it without --features")
        if best["context_scale"] == max(settings.context_scales):
            said.append("the largest context scale offered did best: larger ones may do better (--context-scales)")
        return said

    @property
    def weak(self) -> str:
        """That weak evidence was enough here, and why."""
        return (
            f"p = {self.best['p']:.2g} does (transfer_evidence = {self.evidence:g}), since its gain was believed over "
            "the dual-encoder that it was trained over"
        )

    @property
    def _name(self) -> str:
        return "transfer_evidence" if self.transferred else "evidence"

    @staticmethod
    def nothing_gained(started: bool) -> str:
        """That no epoch was better than what a run went on from."""
        what = "the GNN-encoder that it started from" if started else "the GNN's untrained start, the identity,"
        return f"no epoch gained on dev over {what} with the dual-encoder as it came: that is what is kept"


def what_was_kept(dev: Mapping[str, Any]) -> str:
    """What a GNN-encoder kept on dev, in words, from what it says under ``dev``."""
    chosen = dev["chosen"]
    return dev.get("kept") or f"epoch {chosen['epoch']} with context scale {chosen['context_scale']:g}"


def _was_believed(start: GNNEncoderModel | None, evidence: float) -> bool:
    """Whether what is only put over another dual-encoder was believed where it was trained, by this much evidence."""
    if start is None or not start.meta["dev"].get("believed"):
        return False
    return bool(start.meta["dev"]["best"]["p"] <= evidence)
