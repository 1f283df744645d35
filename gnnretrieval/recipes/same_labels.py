"""The GNN-encoder compared with baselines that use the same labels, on passages with and without training questions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from gnnretrieval.baselines.rankings import Baselines
from gnnretrieval.data.runs.trec import Run
from gnnretrieval.evaluation import AnswerHits, Comparison, TestResult, compare, paired_test, per_query
from gnnretrieval.graph.store import Graph
from gnnretrieval.recipes.recipe import CompareSettings

WARM, COLD = "passages with training questions", "passages without"


class SameLabels(NamedTuple):
    """The comparison of all systems with the dense baseline that is best on dev.

    Attributes:
        comparison: The comparison on all questions.
        groups: The comparison on questions about passages with training questions (:data:`WARM`), and on those about
            passages without (:data:`COLD`).
        over_encoder: The first measure of the GNN-encoder against the dual-encoder in each group.
    """

    comparison: Comparison
    groups: dict[str, Comparison]
    over_encoder: dict[str, TestResult]

    @property
    def measure(self) -> str:
        """Name of the first measure."""
        return self.comparison.measure_names[0]

    def rows(self) -> list[tuple[str, ...]]:
        """Header, and one row per system: the first measure × 100 on all questions and in each group."""
        parts = {f"all {self.comparison.queries:,} questions": self.comparison} | {
            f"{name} ({part.queries:,})": part for name, part in self.groups.items()
        }
        columns = [{system.name: system.measures[self.measure] for system in part.systems} for part in parts.values()]
        return [
            (f"{self.measure} × 100", *parts),
            *((name, *(f"{100 * column[name]:.1f}" for column in columns)) for name in columns[0]),
        ]


def compare_same_labels(
    qrels: Mapping[str, Mapping[str, int]],
    runs: Mapping[str, Run],
    baselines: Mapping[str, Run],
    made: Baselines,
    graph: Graph,
    settings: CompareSettings,
    system: str,
    encoder: str,
    provenance: Mapping[str, Any],
    answers: AnswerHits,
) -> SameLabels:
    """Compare every system with the dense baseline that is best on dev.

    Args:
        qrels: Judgements of the reported split.
        runs: Run by system: BM25, the dual-encoder, the GNN-encoder.
        baselines: Run by baseline.
        made: The artifact of the baselines, with their chosen settings.
        graph: The graph, with the labels that all systems saw.
        settings: Measures and split.
        system: Name of the GNN-encoder among ``runs``.
        encoder: Name of the dual-encoder among ``runs``.
        provenance: Provenance for the comparison.
        answers: Answers in the passages of all runs, for measures that look at answers.
    """
    systems = {name: run for name, run in runs.items() if name != system}
    systems |= {**baselines, system: runs[system]}
    provenance = {**provenance, "baselines": made.meta["chosen"], "baselines_chosen_by": made.meta["chosen_by"]}
    shared = (made.best_dense, settings.measures, settings.split)
    groups, over_encoder = {}, {}
    first = settings.measures[0]
    for name, part in split_by_labels(qrels, graph).items():
        if part:
            group_runs = {
                other: {query: ranking for query, ranking in run.items() if query in part}
                for other, run in systems.items()
            }
            groups[name] = compare(part, group_runs, *shared, {}, answers=answers)
            after, before = (per_query(part, group_runs[key], [first], answers)[first] for key in (system, encoder))
            over_encoder[name] = paired_test(after, before)
    parts = {name: part.as_json() for name, part in groups.items()}
    comparison = compare(qrels, systems, *shared, {**provenance, "groups": parts}, answers=answers)
    return SameLabels(comparison, groups, over_encoder)


def split_by_labels(qrels: Mapping[str, Mapping[str, int]], graph: Graph) -> dict[str, dict[str, Mapping[str, int]]]:
    """Split judged questions by whether a relevant passage has training questions in the graph."""
    with graph.texts() as texts:
        rows = set(graph.labels[:, 1].tolist())
        labelled = {passage.id for passage in texts.passages() if passage.row in rows}
    groups: dict[str, dict[str, Mapping[str, int]]] = {WARM: {}, COLD: {}}
    for query, passages in qrels.items():
        is_warm = any(relevance > 0 and passage in labelled for passage, relevance in passages.items())
        groups[WARM if is_warm else COLD][query] = passages
    return groups
