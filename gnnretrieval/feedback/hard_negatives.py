"""Hard negatives of feedback as training examples: passages that were often shown for a question and never clicked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gnnretrieval.data.dataset import Dataset
from gnnretrieval.errors import InputError
from gnnretrieval.feedback.clicked_questions import open_clicks
from gnnretrieval.mining.candidates import open_texts
from gnnretrieval.mining.examples import (
    EXAMPLES,
    Candidate,
    Example,
    Examples,
    make_examples,
    write_examples,
)
from gnnretrieval.mining.tally import Tally


def make_feedback_examples(
    dataset: Dataset, out: str | Path, *, split: str = "train", overwrite: bool = False
) -> Examples:
    """The questions of a split with their relevant passages, and with the passages judged 0 as negatives.

    Args:
        dataset: A dataset by :func:`gnnretrieval.feedback.import_feedback`.
        out: Directory of the examples.
        split: Name of the split.
        overwrite: Replace examples made from other judgements.

    Raises:
        InputError: the split does not exist, or has no judgement of 0.
    """
    judged = dataset.split(split)
    if not any(value == 0 for grades in judged.values() for value in grades.values()):
        what = f"split {split!r} has no hard negatives"
        if open_clicks(dataset) is None:
            raise InputError(f"{what}: its logs do not have what was shown and not clicked. Log it.", dataset.path)
        raise InputError(f"{what}: import a longer time, or raise --negative-level.", dataset.path)

    def write(directory: Path) -> Mapping[str, Any]:
        tally = Tally("feedback", queries=len(judged))
        write_examples(directory / EXAMPLES, _examples(judged, tally))
        with open_texts(dataset, directory) as texts:
            return {"figures": tally.write_report(directory, texts)}

    return make_examples(
        out,
        dataset,
        write,
        sources={},
        inputs={"dataset": dataset.hash},
        config={"split": split, "source": "feedback"},
        seed=None,
        overwrite=overwrite,
    )


def _examples(judged: Mapping[str, Mapping[str, int]], tally: Tally) -> Iterator[Example]:
    for query, grades in judged.items():
        tally.candidates += len(grades)
        positives = tuple(Candidate(passage, "label") for passage, value in grades.items() if value > 0)
        negatives = tuple(Candidate(passage, "shown") for passage, value in grades.items() if value == 0)
        if positives and negatives:
            example = Example(query, positives, negatives)
            tally.keep(example)
            yield example
        else:
            tally.left_out["without a relevant passage" if not positives else "without a hard negative"] += 1
