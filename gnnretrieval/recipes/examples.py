"""Questions before and after: what the graph did, on the ones it helped most and hurt most."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gnnretrieval.evaluation import judged_in, most_changed, parse_measures, per_query, relevant_ranks
from gnnretrieval.evaluation.changed_queries import Change
from gnnretrieval.index.explain import Explanation, explainer_of
from gnnretrieval.recipes.run import DUAL_ENCODER, GNN_ENCODER, RecipeRun
from gnnretrieval.storage.provenance import write_json

FILE = "examples.json"


class RankedExample(NamedTuple):
    """A question whose relevant passage moved.

    Attributes:
        change: Its id, and the main measure's value with the dual-encoder and with the GNN-encoder.
        question: Its text.
        passage_id: The relevant passage.
        before: Its rank by the dual-encoder; None below the runs' depth.
        after: Its rank by the GNN-encoder; None below the runs' depth, which no question that was helped has.
        why: The questions that moved it.
        above: Of a question that was hurt: the passage that the GNN-encoder puts first, and the questions that moved
            that one; None where it is relevant itself.
    """

    change: Change
    question: str
    passage_id: str
    before: int | None
    after: int | None
    why: Explanation
    above: tuple[str, Explanation] | None = None


def changed_examples(run: RecipeRun, most: int = 3) -> tuple[list[RankedExample], list[RankedExample]]:
    """The questions with the largest gain of the main measure and with the largest loss, at most ``most`` of each.

    One a passage, with the explanation of the passage: of a question that was helped the relevant passage that now
    stands best, of one that was hurt the one that stood best before.
    """
    split, measure = run.recipe.compare.split, parse_measures(run.recipe.compare.measures)[:1]
    judgements = judged_in(run.dataset, split, measure)
    after, before = (
        next(iter(per_query(judgements, run.runs[name], measure, run.answers).values()))
        for name in (GNN_ENCODER, DUAL_ENCODER)
    )
    helped, hurt = most_changed(after, before, len(after))
    texts = {query.id: query.text for query in run.dataset.queries_of(split)}
    explainer = explainer_of(run.model, run.graph, run.its_features)

    def explain(passage: str) -> Explanation:
        with run.graph.texts() as store:
            row = store.passage_by_id(passage).row
        return explainer.explain(row, most=3)

    def examples(changes: Iterable[Change], gained: bool) -> list[RankedExample]:
        found: dict[str, RankedExample] = {}
        for change in changes:
            if len(found) == most:
                break
            now, then = (run.runs[name].get(change.query, []) for name in (GNN_ENCODER, DUAL_ENCODER))
            ranks = relevant_ranks(judgements[change.query], now, then)
            standing = {passage: pair[gained] for passage, pair in ranks.items() if pair[gained] is not None}
            passage = min(standing, key=lambda one: standing[one] or 0, default=None)
            if passage is None or passage in found:
                continue
            first = now[0].passage_id if now and not gained else passage
            above = None if first in ranks else (first, explain(first))
            found[passage] = RankedExample(
                change, texts[change.query], passage, *ranks[passage], explain(passage), above
            )
        return list(found.values())

    return examples(helped, True), examples(hurt, False)


def write_examples(run: RecipeRun, examples: Sequence[RankedExample]) -> None:
    """Leave them in the run's directory, where the explorer looks for questions to offer."""
    values = [
        {"question": one.question, "passage": one.passage_id, "before": one.before, "after": one.after}
        for one in examples
    ]
    write_json(run.directory / FILE, values)
