"""Data augmentation (RocketQA, Qu et al. 2021, §3.3): a cross-encoder labels passages of unjudged queries."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from gnnretrieval.data.dataset import Dataset
from gnnretrieval.data.inspection.same_text import normalised
from gnnretrieval.errors import InputError
from gnnretrieval.mining.candidates import Retrieved, open_texts, search
from gnnretrieval.mining.examples import (
    EXAMPLES,
    Candidate,
    Example,
    Examples,
    as_written,
    make_examples,
    write_examples,
)
from gnnretrieval.mining.judge import JudgeSettings, judged_beside, probabilities_of
from gnnretrieval.mining.tally import Tally
from gnnretrieval.progress import say
from gnnretrieval.shards.engines import Sharding
from gnnretrieval.shards.stage import discard_shards

if TYPE_CHECKING:
    from gnnretrieval.encoders.features import Features


class PseudoLabelSettings(JudgeSettings):
    """Judge and thresholds of pseudo-labelling.

    Attributes:
        cross_encoder: Name or path of the cross-encoder that judges.
        pair_tokens: Maximum length of a pair in tokens.
        positive_threshold: Above this probability a candidate is a positive.
        negative_threshold: Below this probability a candidate is a negative.
        top_k: Number of passages to judge per query.
    """

    top_k: int = Field(50, ge=1)


def pseudo_label(
    dataset: Dataset,
    features: Features,
    settings: PseudoLabelSettings,
    out: str | Path,
    *,
    device: str = "cpu",
    sharding: Sharding | None = None,
    overwrite: bool = False,
) -> Examples:
    """Label the queries that have no judgements in any split. After an interruption, the same call continues.

    A query with the text of a judged query is left out, because it may be a test question or have labels already. A
    query without a passage above ``positive_threshold`` is left out too.

    Args:
        dataset: Passages and queries.
        features: Vectors that retrieve the passages.
        settings: Cross-encoder and thresholds.
        out: Directory of the examples.
        device: Where to compute.
        sharding: Read the pairs in shards, by several processes or machines; the examples are the same. None: in this
            process.
        overwrite: Replace examples made from other inputs.

    Returns:
        The pseudo-labelled examples.

    Raises:
        ArtifactError: ``features`` were made from other texts than the dataset's.
        InputError: There is no query without judgements.
        GnnRetrievalError: The cross-encoder cannot be found or loaded.
    """
    from gnnretrieval.encoders.checkpoint import find_checkpoint

    features.require_of(dataset)
    checkpoint = find_checkpoint(settings.cross_encoder)
    unjudged, repeated = unjudged_queries(dataset)
    if not unjudged:
        raise InputError(
            "there is no query to label: every query is judged in some split, or has the text of a judged one. "
            "Add queries without judgements to queries.jsonl.",
            dataset.path,
        )
    _warn_of_imported(dataset, unjudged)

    inputs = {"dataset": dataset.hash, "cross-encoder": checkpoint.hash}
    config = settings.model_dump(mode="json", exclude={"cross_encoder"})
    shards = None if sharding is None else (judged_beside(out, {**inputs, "features": features.hash}, config), sharding)

    def write(directory: Path) -> dict[str, Any]:
        tally = Tally("pseudo-label", len(unjudged) + repeated, settings)
        tally.left_out["with the text of a judged query"] = repeated
        with open_texts(dataset, directory, features) as texts:
            # All pairs are judged together: sorted by passage, few passages are tokenised twice.
            retrieved = list(search(texts, unjudged, settings.top_k, directory, features, device))
            query_rows = np.repeat(unjudged, [len(rows) for rows, _ in retrieved])
            pairs = np.stack([query_rows, np.concatenate([rows for rows, _ in retrieved])], axis=1)  # (P, 2)
            probabilities = probabilities_of(pairs, texts, settings, directory, device, shards)
            ids = [dataset.query_ids[row] for row in unjudged]
            labelled = _labelled(ids, dataset.passage_ids, retrieved, probabilities, settings, tally)
            write_examples(directory / EXAMPLES, labelled)
            figures = tally.write_report(directory, texts)
        return {
            "figures": figures,
            "encoder": features.meta["encoder"],
            "cross_encoder": {"name": settings.cross_encoder, "source": checkpoint.source},
        }

    made = make_examples(
        out,
        dataset,
        write,
        sources={"features": features},
        inputs=inputs,
        config=config,
        seed=None,
        overwrite=overwrite,
    )
    discard_shards(Path(out))
    return made


def unjudged_queries(dataset: Dataset) -> tuple[list[int], int]:
    """Rows of the queries to label, and the number of unjudged queries with the text of a judged one."""
    judged = {query for split in dataset.splits for query in dataset.split(split)}
    known = {normalised(query.text) for query in dataset.queries() if query.id in judged}
    rows, repeated = [], 0
    for row, query in enumerate(dataset.queries()):
        if query.id in judged:
            continue
        if normalised(query.text) in known:
            repeated += 1
        else:
            rows.append(row)
    return rows, repeated


def _warn_of_imported(dataset: Dataset, rows: Sequence[int]) -> None:
    """Warn of questions to label that were imported for dev or test, which have such ids where they have none."""
    ids = [dataset.query_ids[row] for row in rows]
    for split in ("dev", "test"):
        if imported := [id_ for id_ in ids if re.fullmatch(rf"{split}-[0-9]+", id_)]:
            say(
                f"queries to label: {len(imported):,}, such as {imported[0]}, are {split} questions by their ids. If "
                f"you report on {split}, label a copy of the dataset without them: training would learn from them"
            )


def _labelled(
    query_ids: Sequence[str],
    passage_ids: Sequence[str],
    retrieved: Sequence[Retrieved],
    probabilities: NDArray[np.float32],
    settings: PseudoLabelSettings,
    tally: Tally,
) -> Iterator[Example]:
    start = 0
    for query, (rows, scores) in zip(query_ids, retrieved, strict=True):
        positives, negatives, between = [], [], 0
        for rank, (row, score) in enumerate(zip(rows.tolist(), scores, strict=True), 1):
            value = as_written(probabilities[start])
            start += 1
            tally.judged(value)
            verdict = settings.verdict(value)
            if verdict == "positive":
                positives.append(Candidate(passage_ids[row], "cross-encoder", rank, as_written(score), value))
            elif verdict == "negative":
                negatives.append(Candidate(passage_ids[row], "dual-encoder", rank, as_written(score), value))
            else:
                between += 1
        tally.candidates += len(rows)
        tally.dropped["between the thresholds"] += between
        if not positives:
            tally.left_out["without a positive"] += 1
            tally.dropped["of a query without a positive"] += len(negatives)
            continue
        tally.noted["queries without a negative"] += not negatives
        example = Example(query, tuple(positives), tuple(negatives))
        tally.keep(example)
        yield example
