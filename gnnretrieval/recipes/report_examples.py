"""The report's card of examples: rankings side by side, and the training questions that moved a passage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gnnretrieval.encoders.trained import GNN_ENCODER
from gnnretrieval.evaluation.comparison_page import in_words
from gnnretrieval.index.explanations import Explanation
from gnnretrieval.pages.html import Card, Html, element, escape, folded, join, paragraph, section, short, source, table
from gnnretrieval.recipes.examples import RankedExample, changed_examples
from gnnretrieval.recipes.rankings import DUAL_ENCODER
from gnnretrieval.recipes.report_parts import Reported
from gnnretrieval.recipes.run import RecipeRun

_MOST, _TOP = 5, 3  # examples of each kind; passages shown of a ranking
_HOW = {  # by whether the layer is linear
    True: "A passage moves towards the training questions it is relevant to, and away from others that retrieved it. "
    "Attention is a question's weight in the passage's vector. Linear heads, if any were kept, move all passages.",
    False: "A passage moves towards the training questions that retrieved it. Attention is a question's weight in the "
    "message that is added to the passage; the rest is the passage's self-loop. The filter gate, times the context "
    "scale, is the weight of the whole message.",
}


def examples(reported: Reported, run: RecipeRun, model: str) -> Card:
    """The questions that the GNN-encoder helped most and hurt most.

    Args:
        reported: The run as the report sees it.
        run: The run with its parts.
        model: Name of the GNN-encoder's directory.
    """
    helped, hurt = changed_examples(run, _MOST)
    texts = reported.passages(
        {
            id_
            for example in (*helped, *hurt)
            for id_ in (
                example.passage_id,
                *(hit.passage_id for name in run.runs for hit in run.runs[name].get(example.change.query, [])[:_TOP]),
            )
        }
    )
    measure = run.recipe.compare.measures[0]
    judged = reported.judged
    named = source(
        *(f"rankings/{name}.run" for name in (DUAL_ENCODER, GNN_ENCODER)),
        reported.judgements,
        f"{model}/model.safetensors",
        f"{reported.texts}/texts.sqlite",
        "graph/texts.sqlite",
    )

    def shown(group: Sequence[RankedExample]) -> list[Html]:
        return [
            _example(example, run, measure, judged[example.change.query], texts, is_open=example is group[0])
            for example in group
        ] or [paragraph("None.")]

    return section(
        "Examples before and after",
        paragraph(
            f"The questions whose {measure} gained and lost most, one per passage, with the first passages of each "
            f"ranking. {_HOW[run.model.is_linear]}"
        ),
        element("h3", "Helped most"),
        *shown(helped),
        element("h3", "Hurt most"),
        *shown(hurt),
        named,
    )


def _example(
    example: RankedExample,
    run: RecipeRun,
    measure: str,
    judged: Mapping[str, int],
    texts: Mapping[str, str],
    is_open: bool,
) -> Html:
    change = example.change
    summary = join(
        [
            element("strong", short(example.question)),
            f" {measure} {100 * change.before:.1f} → {100 * change.after:.1f}; ",
            element("code", example.passage_id),
            f" rank {in_words(example.before)} → {in_words(example.after)}",
        ]
    )
    rankings = [
        element(
            "div",
            element("h4", f"Ranked first by the {name}"),
            element(
                "ol",
                *(
                    _hit(hit.passage_id, texts, judged.get(hit.passage_id, 0) > 0)
                    for hit in run.runs[name].get(change.query, [])[:_TOP]
                ),
            ),
        )
        for name in (DUAL_ENCODER, GNN_ENCODER)
    ]
    moved = _why(example.passage_id, example.why, example.matched)
    if example.above is not None:
        moved += _why(*example.above, example.matched)
    return folded(summary, element("div", *rankings, class_="pair"), *moved, is_open=is_open)


def _hit(passage: str, texts: Mapping[str, str], relevant: bool) -> Html:
    mark = join([" ", element("mark", "relevant")]) if relevant else escape("")
    return element(
        "li", element("code", passage), mark, element("div", short(texts.get(passage, ""), 200), class_="soft")
    )


def _why(passage: str, why: Explanation, matched: Mapping[str, str]) -> list[Html]:
    found = (
        [" Found by its training question ", element("q", short(matched[passage])), "."] if passage in matched else []
    )
    shift = f"cosine of its embedding before and after {why.shift:.2f}"
    attention = f": {why.gate}attention to itself {why.own_attention:z.2f}; {shift}."
    if not why.neighbors:
        alone = why.without_neighbors
        return [paragraph(element("code", passage), attention, f" {alone[0].upper()}{alone[1:]}.", *found)]
    rows = [
        (
            join([short(neighbor.text), " ", element("mark", "labelled with it")])
            if neighbor.labelled
            else short(neighbor.text),
            f"{neighbor.attention:z.2f}",
        )
        for neighbor in why.neighbors
    ]
    moved = table(("training question that moved it", "attention"), rows, numbers=[1], name=f"What moved {passage}")
    return [paragraph("What moved ", element("code", passage), attention, *found), moved]
