"""Examples of what the graph changed: the questions that it helped most and hurt most."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from gnnretrieval.encoders.trained import GNN_ENCODER
from gnnretrieval.evaluation import judged_in, most_changed, parse_measures, per_query, relevant_ranks
from gnnretrieval.evaluation.changed_queries import ChangedQuery
from gnnretrieval.index.explain import explainer_of
from gnnretrieval.index.explanations import Explanation
from gnnretrieval.recipes.rankings import DUAL_ENCODER
from gnnretrieval.recipes.run import RecipeRun
from gnnretrieval.storage.provenance import write_json

FILE = "examples.json"


class RankedExample(NamedTuple):
    """A question whose relevant passage moved.

    Attributes:
        change: The question's id, and the main measure's value with the dual-encoder and with the GNN-encoder.
        question: The question's text.
        passage_id: Id of the relevant passage.
        before: The passage's rank by the dual-encoder; None below the runs' depth.
        after: The passage's rank by the GNN-encoder; None below the runs' depth, which only hurt questions have.
        why: The training questions that moved the passage.
        above: For a hurt question, the passage that the GNN-encoder ranks first, and the training questions that moved
            it; None where that passage is relevant.
        matched: Of these passages those that the question found by a training question, and that question's text.
    """

    change: ChangedQuery
    question: str
    passage_id: str
    before: int | None
    after: int | None
    why: Explanation
    above: tuple[str, Explanation] | None = None
    matched: Mapping[str, str] = MappingProxyType({})


def changed_examples(run: RecipeRun, most: int = 3) -> tuple[list[RankedExample], list[RankedExample]]:
    """The questions with the largest gain and with the largest loss in the main measure, at most ``most`` of each.

    Each comes with the explanation of one relevant passage: for a helped question the one that now ranks best, for a
    hurt question the one that ranked best before. No passage appears twice.
    """
    split, measure = run.recipe.compare.split, parse_measures(run.recipe.compare.measures)[:1]
    judgements = judged_in(run.dataset, split, measure)
    after, before = (
        next(iter(per_query(judgements, run.runs[name], measure, run.answers).values()))
        for name in (GNN_ENCODER, DUAL_ENCODER)
    )
    helped, hurt = most_changed(after, before, len(after))
    texts = {query.id: query.text for query in run.dataset.queries_of(split)}
    features = run.joint_features or run.features
    explainer = explainer_of(run.model, run.graph, run.joint_features, questions=run.index.has_questions)

    def explain(passage: str) -> Explanation:
        with run.graph.texts() as store:
            row = store.passage_by_id(passage).row
        return explainer.explain(row, most=3)

    def matched(query: str, passages: Iterable[str]) -> dict[str, str]:
        (vector,), found = features.queries[features.rows_of([query])], {}
        with run.graph.texts() as store:
            for passage in passages:
                row = explainer.nearest_question(store.passage_by_id(passage).row, vector)
                if row is not None:
                    found[passage] = store.query(row).text
        return found

    def examples(changes: Iterable[ChangedQuery], gained: bool) -> list[RankedExample]:
        by_passage: dict[str, RankedExample] = {}
        for change in changes:
            if len(by_passage) == most:
                break
            now, then = (run.runs[name].get(change.query, []) for name in (GNN_ENCODER, DUAL_ENCODER))
            ranks = relevant_ranks(judgements[change.query], now, then)
            ranked = {passage: pair[gained] for passage, pair in ranks.items() if pair[gained] is not None}
            passage = min(ranked, key=lambda id_: ranked[id_] or 0, default=None)
            if passage is None or passage in by_passage:
                continue
            first = now[0].passage_id if now and not gained else passage
            above = None if first in ranks else (first, explain(first))
            question, why = texts[change.query], explain(passage)
            by_question = matched(change.query, {passage, first})
            by_passage[passage] = RankedExample(change, question, passage, *ranks[passage], why, above, by_question)
        return list(by_passage.values())

    return examples(helped, True), examples(hurt, False)


def write_examples(run: RecipeRun, examples: Sequence[RankedExample]) -> None:
    """Write the examples into the run's directory, where the explorer looks for sample questions."""
    values = [
        {"question": example.question, "passage": example.passage_id, "before": example.before, "after": example.after}
        for example in examples
    ]
    write_json(run.directory / FILE, values)
