"""Example questions of the explorer."""

from __future__ import annotations

import json
from itertools import islice

from gnnretrieval.index.retriever import Retriever
from gnnretrieval.recipes.examples import FILE
from gnnretrieval.serve.schemas import ExampleOut, ExamplesAnswer

_MOST = 6


def examples_of(retriever: Retriever, version: str) -> ExamplesAnswer:
    """The questions that gained most in a recipe's run, or else some training questions of the graph, if there is one.

    Args:
        retriever: The retriever that is served.
        version: The version that the answer names.
    """
    place = retriever.index.path.resolve().parent / FILE
    try:
        records = json.loads(place.read_text(encoding="utf-8"))
        questions = _shown(retriever, [ExampleOut.model_validate(record) for record in records])
        return ExamplesAnswer(version=version, gained=True, questions=questions[:_MOST])
    except (OSError, ValueError):  # missing or unreadable: examples are only a suggestion
        pass
    if not retriever.has_graph:
        return ExamplesAnswer(version=version, gained=False, questions=[])
    with retriever.shown_graph.texts() as texts:
        return ExamplesAnswer(
            version=version,
            gained=False,
            questions=[ExampleOut(question=query.text) for query in islice(texts.queries(), _MOST)],
        )


def _shown(retriever: Retriever, examples: list[ExampleOut]) -> list[ExampleOut]:
    """The examples without those of passages that were removed since."""
    if not len(retriever.index.removed):
        return examples
    left = retriever.texts.rows_of_passages([example.passage for example in examples if example.passage is not None])
    return [example for example in examples if example.passage is None or example.passage in left]
