"""Denoised hard negatives (RocketQA, Qu et al. 2021, §3.3): negatives that a cross-encoder also judges irrelevant."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from gnnretrieval.data.dataset import Dataset
from gnnretrieval.data.text_store import TextStore
from gnnretrieval.errors import ArtifactError, InputError
from gnnretrieval.mining.candidates import open_texts
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
from gnnretrieval.shards.engines import Sharding
from gnnretrieval.shards.stage import discard_shards

_EXAMPLES = 1024  # examples with ids that are looked up together


class DenoiseSettings(JudgeSettings):
    """Judge and thresholds of denoising.

    Attributes:
        cross_encoder: Name or path of the cross-encoder that judges.
        pair_tokens: Maximum length of a pair in tokens.
        positive_threshold: Above this probability a candidate becomes a positive.
        negative_threshold: Below this probability a candidate stays a negative.
        scored: Judge a random sample of this many negatives per query and drop the others; not given: judge all.
        seed: Seed of the sample.
    """

    scored: int | None = Field(None, ge=1)
    seed: int = Field(0, ge=0)


def denoise(
    dataset: Dataset,
    examples: Examples,
    settings: DenoiseSettings,
    out: str | Path,
    *,
    device: str = "cpu",
    sharding: Sharding | None = None,
    overwrite: bool = False,
) -> Examples:
    """Judge the negatives of ``examples`` by a cross-encoder. After an interruption, the same call continues.

    A negative below ``negative_threshold`` stays a negative, one above ``positive_threshold`` becomes a positive, and
    one between the thresholds is dropped. Positives get a probability too, for losses that learn from it, and stay
    positives.

    Args:
        dataset: The dataset of the examples.
        examples: Mined examples.
        settings: Cross-encoder and thresholds.
        out: Directory of the new examples.
        device: Where to compute.
        sharding: Read the pairs in shards, by several processes or machines; the examples are the same. None: in this
            process.
        overwrite: Replace examples made from other inputs.

    Returns:
        The denoised examples.

    Raises:
        ArtifactError: The examples were made from other texts than the dataset's.
        InputError: The examples cannot be read, are empty, or name ids that are not in the dataset.
        GnnRetrievalError: The cross-encoder cannot be found or loaded.
    """
    from gnnretrieval.encoders.checkpoint import find_checkpoint

    if examples.meta["texts"] != dataset.texts_hash:
        raise ArtifactError(
            f"{examples.path}: these examples were made from other texts than those of {dataset.path}. "
            "Mine examples from this dataset."
        )
    checkpoint = find_checkpoint(settings.cross_encoder)

    inputs = {"texts": dataset.texts_hash, "cross-encoder": checkpoint.hash}
    config = settings.model_dump(mode="json", exclude={"cross_encoder"})
    shards = None if sharding is None else (judged_beside(out, {**inputs, "examples": examples.hash}, config), sharding)

    def write(directory: Path) -> dict[str, Any]:
        with open_texts(dataset, directory) as texts:
            pairs = _pairs(examples, settings, texts)
            probabilities = probabilities_of(pairs, texts, settings, directory, device, shards)
            tally = Tally("denoise", sum(1 for _ in examples.examples()), settings)
            write_examples(directory / EXAMPLES, _denoised(examples, settings, probabilities, tally))
            figures = tally.write_report(directory, texts)
        return {
            "figures": figures,
            "cross_encoder": {"name": settings.cross_encoder, "source": checkpoint.source},
        }

    made = make_examples(
        out,
        dataset,
        write,
        sources={"examples": examples},
        inputs=inputs,
        config=config,
        seed=settings.seed,
        overwrite=overwrite,
    )
    discard_shards(Path(out))
    return made


def _sampled(example: Example, number: int, settings: DenoiseSettings) -> tuple[Candidate, ...]:
    """The negatives of example ``number`` to judge."""
    count = len(example.negatives)
    if settings.scored is None or count <= settings.scored:
        return example.negatives
    chosen = np.random.default_rng([settings.seed, number]).permutation(count)[: settings.scored]
    return tuple(example.negatives[place] for place in sorted(chosen.tolist()))


def _pairs(examples: Examples, settings: DenoiseSettings, texts: TextStore) -> NDArray[np.int64]:
    """Query and passage rows ``(P, 2)`` of the pairs to judge: each example's positives, then its sampled negatives."""
    parts = []
    numbered = enumerate(examples.examples())
    while block := list(islice(numbered, _EXAMPLES)):
        judged = [(example.query, (*example.positives, *_sampled(example, n, settings))) for n, example in block]
        queries = texts.rows_of_queries([query for query, _ in judged])
        named = [(query, candidate.passage) for query, candidates in judged for candidate in candidates]
        passages = texts.rows_of_passages(sorted({passage for _, passage in named}))
        try:
            pairs = [(queries[query], passages[passage]) for query, passage in named]
        except KeyError as error:
            raise InputError(
                f"the examples name {error}, which is not in this dataset. Mine them again from this dataset.",
                examples.path / EXAMPLES,
            ) from None
        parts.append(np.array(pairs, dtype=np.int64))
    if not parts:
        raise InputError("the file has no example: there is nothing to judge.", examples.path / EXAMPLES)
    return np.concatenate(parts)


def _denoised(
    examples: Examples, settings: DenoiseSettings, probabilities: NDArray[np.float32], tally: Tally
) -> Iterator[Example]:
    start = 0  # probabilities are in the order of :func:`_pairs`
    for number, example in enumerate(examples.examples()):
        sampled = _sampled(example, number, settings)
        count = len(example.positives) + len(sampled)
        values = [as_written(value) for value in probabilities[start : start + count]]
        start += count
        labels = [label._replace(probability=value) for label, value in zip(example.positives, values, strict=False)]
        positives, negatives = list(labels), []
        tally.candidates += len(example.negatives)
        tally.dropped["not in the random sample"] += len(example.negatives) - len(sampled)
        for label in labels:
            tally.judged(label.probability or 0.0, label=True)
        for candidate, value in zip(sampled, values[len(labels) :], strict=True):
            tally.judged(value)
            verdict = settings.verdict(value)
            if verdict == "positive":
                positives.append(candidate._replace(source="cross-encoder", probability=value))
            elif verdict == "negative":
                negatives.append(candidate._replace(probability=value))
            else:
                tally.dropped["between the thresholds"] += 1
        tally.noted["queries without a negative"] += not negatives
        denoised = Example(example.query, tuple(positives), tuple(negatives))
        tally.keep(denoised)
        yield denoised
