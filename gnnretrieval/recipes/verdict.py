"""The verdict on a recipe's run: what the graph gained, over what, for whom it got worse, and what to do next."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from gnnretrieval.evaluation import Comparison, TestResult
from gnnretrieval.evaluation.compare import Difference
from gnnretrieval.index.faiss_index import ONE_VECTOR, PLACES
from gnnretrieval.recipes.hybrid import WITH, WITHOUT
from gnnretrieval.recipes.same_labels import SameLabels

LEVEL = 0.05  # a difference with a larger p-value may be chance


class Verdict(NamedTuple):
    """What a run showed.

    Attributes:
        comparison: The GNN-encoder, its dual-encoder and BM25. The dual-encoder is the baseline.
        same_labels: The comparison with baselines that use the same labels; None: there are none.
        hybrids: The comparison of hybrids with BM25; None: there are none.
        system: Name of the GNN-encoder.
        bm25: Name of BM25.
        kept: Whether training kept more than the dual-encoder.
        directory: Directory of the artifacts, as the reader would type it.
        uses_graph: Whether what training kept has messages along the graph.
    """

    comparison: Comparison
    same_labels: SameLabels | None
    hybrids: Comparison | None
    system: str
    bm25: str
    kept: bool
    directory: Path
    uses_graph: bool = True

    @property
    def measure(self) -> str:
        """Name of the first measure, the only one in the verdict."""
        return self.comparison.measure_names[0]

    def sentences(self) -> list[str]:
        """The verdict in a few sentences: gains, BM25 and pipelines, who loses, and what to do next."""
        parts = [self._over_the_encoder(), self._over_baselines(), self._with_one_vector(), self._with_bm25()]
        return [part for part in (*parts, self._who_loses(), self._next()) if part]

    def _over_the_encoder(self) -> str:
        dual = self.comparison.baseline
        if not self.kept:
            return (
                f"Training kept the vectors of the {dual}: nothing that the graph offers gained on dev by more than "
                f"chance. {self.measure} is {self._value(self.comparison, dual)}."
            )
        test = self._test(self.comparison, self.system)
        now, before = (self._value(self.comparison, name) for name in (self.system, dual))
        alone = (
            ""
            if self.uses_graph
            else " It has linear heads alone: on dev, messages along the graph gained nothing significant."
        )
        return (
            f"The {self.system} {_ranks(test)} its {dual}: {self.measure} {now} against {before} ({_in_figures(test)})."
            f"{alone}"
        )

    def _over_baselines(self) -> str:
        if self.same_labels is None or not self.kept:
            return ""
        best = self.same_labels.comparison.baseline
        test = self._test(self.same_labels.comparison, self.system)
        if test.p > LEVEL:
            gain = self._test(self.comparison, self.system)
            as_well = ": a simple use of the labels gains as well" if gain.p <= LEVEL and gain.difference > 0 else ""
            return (
                f"The difference to {best}, the strongest baseline on dev with the same labels, may be chance "
                f"({_in_figures(test)}){as_well}."
            )
        return f"It {_ranks(test)} {best}, the strongest baseline on dev with the same labels ({_in_figures(test)})."

    def _with_one_vector(self) -> str:
        name = ONE_VECTOR
        if self.same_labels is None or name not in {system.name for system in self.comparison.systems}:
            return ""
        test = self._test(self.same_labels.comparison, name)
        has, best = self._value(self.comparison, name), self.same_labels.comparison.baseline
        place = f"`{self.directory / PLACES[name]}`"
        return (
            "The gnn-encoder's index has one vector more for each training question of a passage. With one a passage "
            f"({place}) it has {has} ({_in_figures(test)}, to {best})."
        )

    def _with_bm25(self) -> str:
        alone = f"BM25 alone has {self._value(self.comparison, self.bm25)}."
        pipelines = self._pipelines()
        if pipelines is None:
            return alone
        if self._pair(WITH) == self._pair(WITHOUT):
            best = f"{self._pair(WITH)}, without the graph: {self._value(pipelines, WITH)}"
            return f"{alone} Of the pipelines with BM25, the best on dev is {best}."
        test = self._test(pipelines, WITH)
        has, without = (self._value(pipelines, name) for name in (WITH, WITHOUT))
        compared = "a difference that may be chance" if test.p > LEVEL else "a significant difference"
        return (
            f"{alone} Of the pipelines with BM25, the best on dev with the graph ({self._pair(WITH)}) has {has}, and "
            f"the best without it ({self._pair(WITHOUT)}) {without}: {compared} ({_in_figures(test)})."
        )

    def _who_loses(self) -> str:
        if not self.kept:
            return ""
        test = self._test(self.comparison, self.system)
        counts = f"{test.wins:,} questions rank better than with the {self.comparison.baseline}, {test.losses:,} worse"
        groups = {} if self.same_labels is None else self.same_labels.over_encoder
        worse = [
            f"{name} ({_in_figures(group)})"
            for name, group in groups.items()
            if group.difference < 0 and group.p <= LEVEL
        ]
        return f"{counts}; worse as a group: questions about {' and '.join(worse)}." if worse else f"{counts}."

    def _next(self) -> str:
        if (pipelines := self._pipelines()) is not None:
            joined = self._test(pipelines, WITH)
            if joined.difference < 0 and joined.p <= LEVEL:
                weights = "`comparison-with-bm25.json` has the weights for `gnnretrieval fuse`"
                return f"Next: use {self._pair(WITHOUT)}; {weights}."
        if self._is_joined():
            return f"Next: `gnnretrieval serve {self.directory} --pipeline` serves the best pipeline with the graph."
        if not self.kept:
            return f"Next: `gnnretrieval graph inspect {self.directory}/graph` shows what the graph lacks."
        if self.same_labels is not None:
            test = self._test(self.same_labels.comparison, self.system)
            if test.difference < 0 and test.p <= LEVEL:
                return f"Next: use {self.same_labels.comparison.baseline}, whose setting is in the table below."
        return f"Next: `gnnretrieval serve {self.directory}` shows for each question what moved, and why."

    def _pipelines(self) -> Comparison | None:
        """The comparison of hybrids, if it has the best pipelines with and without the graph."""
        names = set() if self.hybrids is None else {system.name for system in self.hybrids.systems}
        return self.hybrids if {WITH, WITHOUT} <= names else None

    def _is_joined(self) -> bool:
        """Whether the best pipeline with the graph is more than an index: also a lexical ranking, or another index."""
        choices = {} if self.hybrids is None else self.hybrids.provenance.get("fusion_choices", {})
        return WITH in choices and bool(choices[WITH]["weights"][0] or choices[WITH]["runs"][1] == ONE_VECTOR)

    def _pair(self, name: str) -> str:
        assert self.hybrids is not None
        choice = self.hybrids.provenance["fusion_choices"][name]
        used = [run for run, weight in zip(choice["runs"], choice["weights"], strict=True) if weight]
        return " + ".join(used) if len(used) > 1 else f"{used[0]} alone"

    def _test(self, comparison: Comparison, system: str) -> Difference:
        test = comparison.test(system, self.measure)
        assert test is not None, system
        return test

    def _value(self, comparison: Comparison, system: str) -> str:
        return f"{100 * next(row.measures[self.measure] for row in comparison.systems if row.name == system):.1f}"


def _ranks(test: Difference | TestResult) -> str:
    """How a system compares, as the words before the other's name."""
    if test.p > LEVEL:
        return "does not rank significantly differently from"
    return "ranks better than" if test.difference > 0 else "ranks worse than"


def _in_figures(test: Difference | TestResult) -> str:
    return f"{100 * test.difference:+.1f}, p = {test.p:.2g}"
