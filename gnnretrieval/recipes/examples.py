"""Questions before and after: what the graph did, on the ones it helped most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gnnretrieval.evaluation import per_query
from gnnretrieval.index.explain import Explainer, Explanation
from gnnretrieval.provenance import write_json
from gnnretrieval.recipes.run import DUAL_ENCODER, GNN_ENCODER, RecipeRun

FILE = "examples.json"


class Example(NamedTuple):
    """A question whose relevant passage moved.

    Attributes:
        question: Its text.
        passage_id: The relevant passage.
        before: Its rank by the dual-encoder; None below the runs' depth.
        after: Its rank by the GNN-encoder.
        why: The questions that moved it.
    """

    question: str
    passage_id: str
    before: int | None
    after: int
    why: Explanation


def most_helped(run: RecipeRun, most: int = 3) -> list[Example]:
    """The questions with the largest gain of the main measure, one a passage, with the explanation of the passage."""
    split, measure = run.recipe.compare.split, run.recipe.compare.measures[:1]
    judgements = run.dataset.split(split)
    gains: dict[str, float] = {}
    for name, sign in ((GNN_ENCODER, 1), (DUAL_ENCODER, -1)):
        (values,) = per_query(judgements, run.runs[name], measure).values()
        for query, value in values.items():
            gains[query] = gains.get(query, 0.0) + sign * value
    texts = {query.id: query.text for query in run.dataset.queries_of(split)}
    explainer = Explainer(run.model, run.graph, run.its_features)
    examples: dict[str, Example] = {}
    for query in sorted(gains, key=lambda query: (-gains[query], query)):
        if len(examples) == most or gains[query] <= 0:
            break
        relevant = {passage for passage, relevance in judgements[query].items() if relevance > 0}
        after = _first(run, GNN_ENCODER, query, relevant)
        if after is None or after[1] in examples:
            continue
        rank, passage = after
        before = _first(run, DUAL_ENCODER, query, {passage})
        with run.graph.texts() as store:
            row = store.passage_by_id(passage).row
        why = explainer.explain(row, most=3)
        examples[passage] = Example(texts[query], passage, before[0] if before else None, rank, why)
    return list(examples.values())


def write_examples(run: RecipeRun, examples: Sequence[Example]) -> None:
    """Leave them in the run's directory, where the explorer looks for questions to offer."""
    values = [
        {"question": one.question, "passage": one.passage_id, "before": one.before, "after": one.after}
        for one in examples
    ]
    write_json(run.directory / FILE, values)


def _first(run: RecipeRun, system: str, query: str, relevant: set[str]) -> tuple[int, str] | None:
    """Rank and id of the first relevant passage of a run."""
    ranking = run.runs[system].get(query, [])
    return next(((rank, hit.passage_id) for rank, hit in enumerate(ranking, 1) if hit.passage_id in relevant), None)
