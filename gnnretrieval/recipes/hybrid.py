"""Hybrid rankings: BM25 joined with each dense ranking, and the best pipeline with and without the graph."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from gnnretrieval.baselines import LEXICAL
from gnnretrieval.baselines.rankings import DEV, Baselines
from gnnretrieval.data import Dataset
from gnnretrieval.data.runs.trec import Run, read_run
from gnnretrieval.evaluation import (
    AnswerHits,
    ClickedDev,
    Comparison,
    FusionChoice,
    choose_fusion,
    compare,
    fuse,
    leave_out_self,
)
from gnnretrieval.evaluation.fusion_choice import METHOD
from gnnretrieval.feedback.clicked_questions import clicked_questions, open_clicks
from gnnretrieval.index.hybrid import RankingSettings
from gnnretrieval.index.lexical import LexicalSetting
from gnnretrieval.recipes.recipe import CompareSettings, Recipe
from gnnretrieval.storage.artifacts import Artifact
from gnnretrieval.training.gnn.held_out import HELD_OUT_NAME, dev_split
from gnnretrieval.training.gnn.judged import rows_of

WITHOUT, WITH = "best without the graph", "best with the graph"


class Pipeline(NamedTuple):
    """A lexical and a dense ranking, and the fusion that dev chose for them."""

    lexical: str
    dense: str
    choice: FusionChoice

    def run(self, runs: Mapping[str, Run], depth: int) -> Run:
        """The joined ranking."""
        both = [runs[self.lexical], runs[self.dense]]
        return fuse(both, METHOD, weights=self.choice.weights, depth=depth)

    def ranking(self, depth: int, lexical: LexicalSetting | None) -> RankingSettings:
        """How a retriever over the dense ranking's index ranks like this pipeline.

        Args:
            depth: Passages per query in the runs.
            lexical: Setting of the lexical ranking; None: BM25 over the passages alone.
        """
        of_lexical, of_dense = self.choice.weights
        joined: dict[str, Any] = {}
        if of_lexical:
            joined = {"hybrid": True, "fuse": METHOD, "weights": (of_dense, of_lexical), "lexical": lexical}
            joined["candidates"] = depth
        return RankingSettings.parse({"system": self.dense, **joined})

    def line(self) -> str:
        """The choice as text."""
        return self.choice.line((self.lexical, self.dense))


def compare_with_bm25(
    recipe: Recipe,
    dataset: Dataset,
    reported: Mapping[str, Mapping[str, int]],
    runs: Mapping[str, Run],
    systems: tuple[list[str], list[str], list[str]],
    rankings: Artifact,
    baselines: Baselines | None,
    provenance: dict[str, Any],
    answers: AnswerHits,
) -> Comparison | None:
    """Compare hybrids of a recipe's systems (:func:`compare_hybrids`), chosen on the dev split.

    Without one they are chosen on the training questions that training held out, if ``rankings`` has these.

    Args:
        recipe: The recipe.
        dataset: The dataset with its dev split, if it has one.
        reported: Judgements of the reported split.
        runs: Runs on the reported split, by system and by baseline.
        systems: Names of the lexical systems, of the dense ones without the graph, and of those with it.
        rankings: Artifact with the systems' runs on dev, or on the questions held out.
        baselines: Baselines, which all take part; None: none.
        provenance: Provenance for the comparison.
        answers: Answers in the passages of ``runs``, for measures that look at answers.
    """
    lexical, dense, with_graph = map(list, systems)
    dev_runs: dict[str, Run] = {}
    dev_qrels: dict[str, dict[str, int]] = {}
    expanded = clicked = dev = None
    if (rankings.path / DEV).is_dir() and recipe.compare.fuse == "chosen":
        dev_runs = {
            name: read_run(rankings.path / DEV / f"{name}.run", may_be_empty=True)
            for name in (*lexical, *dense, *with_graph)
        }
        in_graph, dev = dataset.split(recipe.graph.split), dev_split(dataset)
        if dev is None:
            dev_qrels = {query: in_graph[query] for query in dev_runs[dense[0]]}
        else:
            dev_qrels = {query: judged for query, judged in dataset.split(dev).items() if query not in in_graph}
        if baselines is not None:
            lexical.append(LEXICAL)
            expanded = LexicalSetting(**baselines.meta["chosen"][LEXICAL]["setting"])
            dense += [name for name in baselines.names if name != LEXICAL]
            dev_runs |= baselines.runs(dev=True)
        dev_runs, _ = leave_out_self(dev_runs, dataset.path, dev_qrels)
        clicked = clicked_dev(dataset, dev or recipe.graph.split, dev_qrels)
    return compare_hybrids(
        reported,
        runs,
        recipe.compare,
        lexical,
        dense,
        with_graph,
        provenance,
        answers,
        dev_runs=dev_runs,
        dev_qrels=dev_qrels,
        expanded=expanded,
        clicked=clicked,
        chosen_on=dev or HELD_OUT_NAME,
    )


def clicked_dev(dataset: Dataset, split: str, queries: Collection[str]) -> ClickedDev | None:
    """How dev questions count by their clicks; None if the dataset is not from event logs that say what was shown."""
    clicks = open_clicks(dataset)
    if clicks is None:
        return None
    ids = dataset.passage_ids
    clicked = clicked_questions(clicks, split, {id_: row for row, id_ in enumerate(ids)}, queries)
    shown = [None if rows is None else {ids[row] for row in rows} for rows in clicked.shown]
    weights = clicked.weights.tolist()
    return ClickedDev(dict(zip(queries, shown, strict=True)), dict(zip(queries, weights, strict=True)))


def compare_hybrids(
    qrels: Mapping[str, Mapping[str, int]],
    runs: Mapping[str, Run],
    settings: CompareSettings,
    lexical: Sequence[str],
    dense: Sequence[str],
    with_graph: Sequence[str],
    provenance: dict[str, Any],
    answers: AnswerHits,
    *,
    dev_runs: Mapping[str, Run] | None = None,
    dev_qrels: Mapping[str, Mapping[str, int]] | None = None,
    expanded: LexicalSetting | None = None,
    clicked: ClickedDev | None = None,
    chosen_on: str = "dev",
) -> Comparison | None:
    """Compare lexical rankings alone with hybrids of lexical and dense rankings.

    With ``fuse = "chosen"`` and dev runs, the rows are the lexical rankings, BM25 joined with the dual-encoder, and the
    best pipelines without and with the graph. A pipeline is a pair of a lexical and a dense ranking, joined as
    :func:`gnnretrieval.evaluation.choose_fusion` says, or the better one alone. The baseline of the tests is the best
    pipeline without the graph. Otherwise the rows are BM25, and BM25 joined with the dual-encoder and with the
    GNN-encoder by the method in ``settings``.

    In the provenance, ``fusion`` is ``chosen on`` these questions or the method, and ``pipeline`` has the settings with
    which the index of its system ranks like the best pipeline with the graph. Where dev chose, ``fusion_choices``
    has the pair, method, weights and dev values of each row, and ``said`` is the same as text.

    Args:
        qrels: Judgements of the reported split.
        runs: Run by system.
        settings: What is compared; ``fuse`` is the method.
        lexical: Names among ``runs``, BM25 first.
        dense: Names among ``runs``: the dual-encoder first, then baselines.
        with_graph: Names among ``runs``: the GNN-encoder, last as it is by default.
        provenance: Provenance for the comparison.
        answers: Answers in the passages of ``runs``, for measures that look at answers.
        dev_runs: Runs of the same systems on dev questions; None: ``fuse = "chosen"`` means ``rrf``.
        dev_qrels: Judgements of the dev questions.
        expanded: Setting of bm25+questions, where it is among the lexical rankings.
        clicked: How the dev questions count if their labels are clicks; None: all alike.
        chosen_on: Name of the dev questions.

    Returns:
        The comparison; None where ``fuse`` is ``none``.
    """
    if settings.fuse == "none":
        return None
    bm25, dual, gnn = lexical[0], dense[0], with_graph[-1]
    systems = {name: runs[name] for name in lexical}
    if settings.fuse != "chosen" or not dev_runs or not dev_qrels:
        method = "rrf" if settings.fuse == "chosen" else settings.fuse
        systems = {bm25: runs[bm25]}
        for name in (dual, gnn):
            systems[f"{bm25}+{name}"] = fuse([runs[bm25], runs[name]], method, depth=settings.depth)
        pipeline = RankingSettings.parse({"system": gnn, "hybrid": True, "fuse": method, "candidates": settings.depth})
        provenance = {**provenance, "fusion": method, "pipeline": pipeline.model_dump(mode="json")}
        baseline = f"{bm25}+{dual}"
        return compare(qrels, systems, baseline, settings.measures, settings.split, provenance, answers=answers)
    pipelines = choose_pipelines(lexical, dense, with_graph, dev_runs, dev_qrels, clicked)
    best = pipelines[WITH]
    ranking = best.ranking(settings.depth, expanded if best.lexical == LEXICAL else None)
    systems |= {name: pair.run(runs, settings.depth) for name, pair in pipelines.items()}
    provenance = {
        **provenance,
        "fusion": f"chosen on {chosen_on}",
        "pipeline": ranking.model_dump(mode="json"),
        "fusion_choices": {
            name: {"runs": [pair.lexical, pair.dense], **pair.choice.as_json(), "said": pair.line()}
            for name, pair in pipelines.items()
        },
    }
    return compare(qrels, systems, WITHOUT, settings.measures, settings.split, provenance, answers=answers)


def choose_pipelines(
    lexical: Sequence[str],
    dense: Sequence[str],
    with_graph: Sequence[str],
    dev_runs: Mapping[str, Run],
    dev_qrels: Mapping[str, Mapping[str, int]],
    clicked: ClickedDev | None = None,
) -> dict[str, Pipeline]:
    """BM25 joined with the dual-encoder, and the best pairs on dev without and with the graph.

    Args:
        lexical: Names among ``dev_runs``, BM25 first.
        dense: Names among ``dev_runs`` of systems without the graph, the dual-encoder first.
        with_graph: Names among ``dev_runs`` of systems with the graph.
        dev_runs: Run by system.
        dev_qrels: Judgements of the dev questions; at most 2,000 of them, evenly spread, are used.
        clicked: How these count if their labels are clicks; None: all alike.

    Returns:
        Pipeline by the name of its row.
    """
    queries = list(dev_qrels)
    dev_qrels = {queries[row]: dev_qrels[queries[row]] for row in rows_of(len(queries)).tolist()}
    pairs = [
        Pipeline(first, second, choose_fusion([dev_runs[first], dev_runs[second]], dev_qrels, clicked=clicked))
        for first in lexical
        for second in (*dense, *with_graph)
    ]
    return {
        f"{lexical[0]}+{dense[0]}": pairs[0],
        WITHOUT: max((pair for pair in pairs if pair.dense in dense), key=lambda pair: pair.choice.value),
        WITH: max((pair for pair in pairs if pair.dense in with_graph), key=lambda pair: pair.choice.value),
    }


def fusion_lines(hybrids: Comparison) -> list[str]:
    """The fusion of each row as text."""
    choices = hybrids.provenance.get("fusion_choices", {})
    return [f"{name}: {choice['said']}" for name, choice in choices.items()]
