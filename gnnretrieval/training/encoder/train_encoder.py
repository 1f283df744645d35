"""Training of a dual-encoder or sentence encoder into an artifact, which can be used like any checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gnnretrieval.data.answers import read_answers
from gnnretrieval.data.dataset import QUERIES, Dataset
from gnnretrieval.encoders.checkpoint import Checkpoint, find_checkpoint
from gnnretrieval.encoders.loading import weights_dtype
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.encoders.trained import ENCODER, PASSAGE, QUERY, RE_RANKER
from gnnretrieval.errors import GnnRetrievalError, counted
from gnnretrieval.mining.examples import Example, Examples
from gnnretrieval.platform.devices import as_device
from gnnretrieval.progress import say
from gnnretrieval.storage.arrays import load_array
from gnnretrieval.storage.artifacts import Artifact
from gnnretrieval.storage.durable import make_directory
from gnnretrieval.storage.places import scratch
from gnnretrieval.training.encoder.artifact import train_into
from gnnretrieval.training.encoder.cross_task import PAIR
from gnnretrieval.training.encoder.dev import DevQueries, RetrievalDev, dev_queries
from gnnretrieval.training.encoder.dual_task import DualEncoderTask
from gnnretrieval.training.encoder.dual_towers import Start, make_towers, save_towers
from gnnretrieval.training.encoder.encoded import write_passage_vectors
from gnnretrieval.training.encoder.fixed_passages import FixedPassagesTask, FixedRetrievalDev
from gnnretrieval.training.encoder.joint_task import JointListwiseTask, WidePairTower
from gnnretrieval.training.encoder.late_task import LateInteractionDev, LateInteractionTask
from gnnretrieval.training.encoder.loop import EncoderLoop
from gnnretrieval.training.encoder.pair_data import Texts, count_cut, in_share, labelled_examples, merged
from gnnretrieval.training.encoder.refresh import Refresher
from gnnretrieval.training.encoder.sentence_task import SentenceDev, SentenceTask
from gnnretrieval.training.encoder.settings import DualEncoderTrainSettings, require_fit
from gnnretrieval.training.encoder.sparse_task import SparseTask, SparseTower, center_towers
from gnnretrieval.training.encoder.towers import TextTower, Tower
from gnnretrieval.training.ranks import ALONE, Ranks

# not in the configuration, so that encoders from before these settings stay valid
_SINCE = {"query_share": 1.0, "fixed_passages": False, "fixed_top": 200}
_SINCE |= {"pair_tokens": 192, "query_flops": 3e-4, "passage_flops": 1e-4, "flops_warmup": 0.33, "start_terms": 400}


def train_dual_encoder(
    dataset: Dataset,
    examples: Sequence[Examples],
    encoder: EncoderSettings,
    settings: DualEncoderTrainSettings,
    out: str | Path,
    *,
    labels: bool = True,
    cross_encoder: str | None = None,
    split: str = "train",
    device: str = "cpu",
    ranks: Ranks = ALONE,
    overwrite: bool = False,
) -> Artifact:
    """Train a dual-encoder or sentence encoder. After an interruption, the same call continues.

    Args:
        dataset: Texts, labels and the dev split.
        examples: Mined examples, joined with each other and with the labels.
        encoder: The encoder to start from (a checkpoint, or an encoder trained here), with its similarity and limits.
        settings: Settings of training.
        out: Directory of the artifact.
        labels: Whether to train on the split's labels too.
        cross_encoder: Name or path of a cross-encoder that is trained with the encoder (RocketQAv2), into
            ``re-ranker/`` of the artifact. None: the encoder is trained alone.
        split: The split of the labels.
        device: Where to compute.
        ranks: The processes that train together.
        overwrite: Replace an encoder made from other inputs.

    Returns:
        The trained encoder; on all but the first process an artifact without metadata.

    Raises:
        GnnRetrievalError: There is nothing for training or for dev, or the checkpoint cannot be trained.
    """
    start = Start.of(encoder)
    require_fit(settings, start.settings, is_joint=cross_encoder is not None)
    judge = None if cross_encoder is None else find_checkpoint(cross_encoder)
    if settings.shared:
        start.require_shared()

    def train(directory: Path) -> dict[str, Any]:
        return _train(dataset, examples, start, judge, settings, directory, labels, split, as_device(device), ranks)

    inputs = {"dataset": dataset.hash, "passage encoder": start.passage.hash, "query encoder": start.query.hash}
    inputs |= {f"examples {number}": part.hash for number, part in enumerate(examples, 1)}
    if judge is not None:
        inputs["cross-encoder"] = judge.hash
    return train_into(
        out,
        ENCODER,
        train,
        settings,
        dataset,
        inputs=inputs,
        made_from={f"examples {number}": part.path for number, part in enumerate(examples, 1)},
        config={"encoder": start.config(), "labels": labels, "split": split},
        since=_SINCE,
        device=device,
        ranks=ranks,
        overwrite=overwrite,
    )


def _train(
    dataset: Dataset,
    mined: Sequence[Examples],
    start: Start,
    judge: Checkpoint | None,
    settings: DualEncoderTrainSettings,
    directory: Path,
    labels: bool,
    split: str,
    device: torch.device,
    ranks: Ranks,
) -> dict[str, Any]:
    """Train into ``directory``; returns the artifact's metadata."""
    dev = dev_queries(dataset, split, settings.seed)
    if dev.hidden:
        say(f"{counted(len(dev.hidden), 'training query is', 'training queries are')} held out as dev queries")
    labelled = labelled_examples(dataset, split, dev.hidden) if labels else []
    examples = _training_examples(labelled, mined, dev, settings.query_share)
    common: dict[str, Any] = {"pooling": settings.pooling, "dropout": settings.dropout}
    towers = make_towers(start, shared=settings.shared, device=device, seed=settings.seed, **common)
    # negatives that are searched for during training may be any passage
    whole_corpus = settings.refresh_every is not None or settings.fixed_passages
    texts = Texts.of(
        dataset,
        (example.query for example in examples),
        dataset.passage_ids if whole_corpus else (c.passage for e in examples for c in (*e.positives, *e.negatives)),
    )
    if isinstance(towers[PASSAGE], SparseTower):
        center_towers(towers, list(texts.passages.values()), settings)
    cut = _count_cut(texts, towers)
    if settings.precision == "auto":
        say(f"computing in {str(weights_dtype('auto', device)).removeprefix('torch.')}")
    vectors = _fixed_vectors(dataset, towers[PASSAGE], settings, directory, ranks) if settings.fixed_passages else None
    pair = None
    if judge is not None:
        width = towers[PASSAGE].width
        pair = WidePairTower(judge, device, settings.pair_tokens, settings.dropout, width)
    task = _task(dataset, dev, examples, texts, towers, start.similarity, settings, vectors, pair)
    short = sum(len(example.negatives) < settings.hard_negatives for example in task.examples)
    if short and not whole_corpus:
        lack = counted(short, "query has", "queries have")
        say(f"{lack} fewer than {settings.hard_negatives} hard negatives: they use all they have")
    say(f"training on {counted(len(task.examples), 'query')}, {counted(task.steps_per_epoch, 'step')} per epoch")
    trained: dict[str, Tower] = dict(towers) if vectors is None else {QUERY: towers[QUERY]}
    trained |= {} if pair is None else {PAIR: pair}
    best = EncoderLoop(trained, task, settings, directory, device, ranks).run()
    say(f"kept epoch {best['epoch']}: dev RR@10 {100 * best['dev']['RR@10']:.1f}")
    if not ranks.first:
        return {}
    if isinstance(task, SentenceTask) and task.sentences_cut:
        say(f"{counted(task.sentences_cut, 'sentence is cut', 'sentences are cut')} off by the limit of tokens")
    if pair is not None:
        pair.save(directory / RE_RANKER)
    assert isinstance(task.dev, RetrievalDev)
    trained_encoder = save_towers(towers, start, directory, (example.query for example in task.examples))
    answers = task.answer_sentences if isinstance(task, SentenceTask) else None
    return {
        "encoder": trained_encoder.model_dump(mode="json"),
        "dimension": towers[PASSAGE].width,
        "started_from": {"passage": start.passage.name, "query": start.query.name, "source": start.passage.source},
        "examples": {
            "queries": len(task.examples),
            "positives": sum(len(example.positives) for example in task.examples),
            "negatives": sum(len(example.negatives) for example in task.examples),
            "queries_short_of_negatives": short,
        },
        "answers": answers and {"positives_skipped": answers.skipped, "positives_by_overlap": answers.by_overlap},
        "sentences_cut": task.sentences_cut if isinstance(task, SentenceTask) else None,
        "tokens": cut,
        "dev": {"split": dev.name, "queries": len(task.dev.queries), "passages": len(task.dev.passages), "best": best},
    }


def _training_examples(
    labelled: list[Example], mined: Sequence[Examples], dev: DevQueries, share: float
) -> list[Example]:
    """Labelled and mined examples of a share of the queries, without dev queries."""
    parts = [labelled]
    parts += [[example for example in part.examples() if example.query not in dev.relevant] for part in mined]
    examples = [example for example in merged(parts) if in_share(example.query, share)]
    if not examples:
        raise GnnRetrievalError(
            "there is nothing to train on: no query has a positive passage, neither mined nor labelled."
        )
    return examples


def _count_cut(texts: Texts, towers: Mapping[str, TextTower]) -> dict[str, dict[str, int]]:
    """Count the texts of each side that are longer than its tower reads, and say so."""
    cut = {
        QUERY: count_cut(texts.queries.values(), towers[QUERY].lengths, towers[QUERY].max_tokens),
        PASSAGE: count_cut(texts.passages.values(), towers[PASSAGE].lengths, towers[PASSAGE].max_tokens),
    }
    for side, counts in cut.items():
        if counts["cut"]:
            say(f"{counts['cut']:,} of {counts['texts']:,} {side} texts are cut to {counts['max_tokens']} tokens")
    return cut


def _fixed_vectors(
    dataset: Dataset, tower: TextTower, settings: DualEncoderTrainSettings, directory: Path, ranks: Ranks
) -> NDArray[np.float16]:
    """Vectors of all passages ``(m, d)``, encoded by the first process; a resumed run encodes them again."""
    place = Path(ranks.agree(str(scratch(directory) / "passages.npy")))
    if ranks.first:
        make_directory(place.parent)
        write_passage_vectors(dataset, tower, place, settings.token_budget, "encoding passages")
    ranks.agree(None)  # all processes wait for the file
    vectors: NDArray[np.float16] = load_array(place)
    return vectors


def _task(
    dataset: Dataset,
    dev: DevQueries,
    examples: Sequence[Example],
    texts: Texts,
    towers: Mapping[str, TextTower],
    similarity: Similarity,
    settings: DualEncoderTrainSettings,
    fixed: NDArray[np.float16] | None,
    pair: WidePairTower | None,
) -> DualEncoderTask:
    by_sentences, is_late = towers[PASSAGE].sentences != "none", towers[PASSAGE].is_late
    kind: type[RetrievalDev] = LateInteractionDev if is_late else SentenceDev if by_sentences else RetrievalDev
    measure = (kind if fixed is None else FixedRetrievalDev)(
        dataset,
        dev,
        towers,
        similarity,
        settings.dev_queries,
        settings.dev_passages,
        settings.token_budget,
        settings.seed,
    )
    if pair is not None:
        return JointListwiseTask(pair, examples, texts, towers, similarity, settings, measure)
    if by_sentences:
        return SentenceTask(
            examples, texts, read_answers(dataset.path / QUERIES), towers, similarity, settings, measure
        )
    if is_late or isinstance(towers[PASSAGE], SparseTower):
        task = LateInteractionTask if is_late else SparseTask
        return task(examples, texts, towers, similarity, settings, measure)
    if fixed is not None:
        ids = dataset.passage_ids
        return FixedPassagesTask(examples, texts, towers, similarity, settings, measure, ids, fixed)
    refresher = None
    if settings.refresh_every is not None:
        refresher = Refresher(
            dataset,
            texts.queries,
            towers,
            similarity,
            settings.refresh_every,
            settings.refresh_top,
            settings.token_budget,
        )
    return DualEncoderTask(examples, texts, towers, similarity, settings, measure, refresher)
