"""The GNN-encoder beside what is done with the same labels without one, and where passages have questions and not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from gnnretrieval.baselines.rankings import Baselines
from gnnretrieval.data.runs.trec import Run
from gnnretrieval.evaluation import AnswerHits, Comparison, compare
from gnnretrieval.graph.store import Graph
from gnnretrieval.recipes.recipe import CompareSettings

WARM, COLD = "passages with training questions", "passages without"


class SameLabels(NamedTuple):
    """The GNN-encoder against the best dense baseline on dev.

    Attributes:
        comparison: Of all systems, on all questions.
        groups: The same of the questions about passages with training questions, and of those about passages without.
        system: The GNN-encoder's name.
    """

    comparison: Comparison
    groups: dict[str, Comparison]
    system: str

    @property
    def measure(self) -> str:
        """The first one."""
        return self.comparison.measure_names[0]

    def verdict(self) -> str:
        """What the GNN-encoder gains over the best dense baseline, in a sentence."""
        test = self.comparison.test(self.system, self.measure)
        assert test is not None
        assert test.interval is not None
        low, high = (100 * bound for bound in test.interval)
        return (
            f"{self.system} against {self.comparison.baseline}, the dense baseline that is best on dev: "
            f"{self.measure} {100 * test.difference:+.1f} [{low:+.1f}, {high:+.1f}], p = {test.p:.2g}"
        )

    def rows(self) -> list[tuple[str, ...]]:
        """A header and a row a system: the first measure × 100 on all questions and in each group."""
        parts = {f"all {self.comparison.queries:,} questions": self.comparison} | {
            f"{name} ({part.queries:,})": part for name, part in self.groups.items()
        }
        values = [{one.name: one.measures[self.measure] for one in part.systems} for part in parts.values()]
        return [
            (f"{self.measure} × 100", *parts),
            *((one.name, *(f"{100 * of[one.name]:.1f}" for of in values)) for one in self.comparison.systems),
        ]


def compare_same_labels(
    qrels: Mapping[str, Mapping[str, int]],
    runs: Mapping[str, Run],
    baselines: Mapping[str, Run],
    made: Baselines,
    graph: Graph,
    settings: CompareSettings,
    system: str,
    provenance: Mapping[str, Any],
    answers: AnswerHits,
) -> SameLabels:
    """Compare every system with the dense baseline that dev finds best.

    Args:
        qrels: Of the reported split.
        runs: By system: BM25, the dual-encoder, the GNN-encoder.
        baselines: By baseline.
        made: What was chosen for them.
        graph: Whose labels they all saw.
        settings: Measures and split.
        system: The GNN-encoder's name among ``runs``.
        provenance: Of the comparison.
        answers: In the passages of all runs, for measures of answers.
    """
    systems = {name: run for name, run in runs.items() if name != system}
    systems |= {**baselines, system: runs[system]}
    said = {**provenance, "baselines": made.meta["chosen"], "baselines_chosen_by": made.meta["chosen_by"]}
    shared = (made.best_dense, settings.measures, settings.split)
    groups = {}
    for name, part in split_by_labels(qrels, graph).items():
        if part:
            its = {one: {query: found for query, found in run.items() if query in part} for one, run in systems.items()}
            groups[name] = compare(part, its, *shared, {}, answers=answers)
    parts = {name: part.as_json() for name, part in groups.items()}
    comparison = compare(qrels, systems, *shared, {**said, "groups": parts}, answers=answers)
    return SameLabels(comparison, groups, system)


def split_by_labels(qrels: Mapping[str, Mapping[str, int]], graph: Graph) -> dict[str, dict[str, Mapping[str, int]]]:
    """Judged questions with a relevant passage that has training questions in the graph, and those without one."""
    with graph.texts() as texts:
        rows = set(graph.labels[:, 1].tolist())
        labelled = {passage.id for passage in texts.passages() if passage.row in rows}
    found: dict[str, dict[str, Mapping[str, int]]] = {WARM: {}, COLD: {}}
    for query, passages in qrels.items():
        is_warm = any(relevance > 0 and passage in labelled for passage, relevance in passages.items())
        found[WARM if is_warm else COLD][query] = passages
    return found
