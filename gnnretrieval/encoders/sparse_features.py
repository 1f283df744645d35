"""Sparse features: weights of terms of all passages and queries (SPLADE), and the inverted lists of the passages."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnretrieval.data.dataset import Dataset
from gnnretrieval.encoders.encoded_texts import TEXTS, EncodedTexts
from gnnretrieval.encoders.encoding_plan import SPARSE_FEATURES, EncodingPlan, together, with_absolute_paths
from gnnretrieval.encoders.encoding_shards import FILES
from gnnretrieval.encoders.exact_search import Ties
from gnnretrieval.encoders.feature_rows import require_finite, texts_of
from gnnretrieval.encoders.features import write_texts
from gnnretrieval.encoders.learned_from import write_learned_from
from gnnretrieval.encoders.part_files import PartFiles
from gnnretrieval.encoders.postings import Postings
from gnnretrieval.encoders.postings_search import Hits, PostingsSearch
from gnnretrieval.encoders.prompts import Side
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.encoders.sparse_encoder import SparseEncoder
from gnnretrieval.encoders.sparse_shards import SparseShards
from gnnretrieval.errors import InputError
from gnnretrieval.progress import progress, say
from gnnretrieval.shards.engines import Sharding, run_stage
from gnnretrieval.shards.stage import discard_shards
from gnnretrieval.storage.array_checks import require_offsets, require_rows
from gnnretrieval.storage.arrays import load_array
from gnnretrieval.storage.artifacts import open_artifact, relative_to
from gnnretrieval.storage.making import make_artifact, record_progress
from gnnretrieval.storage.places import scratch
from gnnretrieval.storage.provenance import write_json

KIND = SPARSE_FEATURES
VOCABULARY = "terms.json"

Weights = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float16]]


class SparseFeatures(EncodedTexts):
    """Weights of terms of all passages and queries of a dataset."""

    def passages(self) -> Weights:
        """As :meth:`queries`, of the passages ``(m + 1,)``."""
        return self._stored("passage", "num_passages")

    @property
    def postings(self) -> Postings:
        """Inverted lists of the passages, memory-mapped.

        Raises:
            ArtifactError: A file is missing or damaged.
        """
        postings = Postings.open(self.path)
        require_rows(postings.rows, self.meta["num_passages"], self.path)
        return postings

    def queries(self) -> Weights:
        """Offsets ``(n + 1,)`` of the queries in the terms ``(T,)`` and their weights ``(T,)``.

        Raises:
            ArtifactError: A file is missing or damaged.
        """
        return self._stored("query", "num_queries")

    def _stored(self, side: Side, count: str) -> Weights:
        return _stored(self.path, side, self.meta[count], self.meta[f"num_{side}_terms"], self.meta["terms"])

    def top_k(
        self,
        query_ids: Iterable[str],
        k: int,
        advance: Callable[[int], None] = lambda count: None,
        ties: Ties | None = None,
    ) -> Iterator[Hits]:
        """Rows and scores of the ``k`` best passages of each query, best first.

        A passage that shares no term with the query is left out.

        Args:
            query_ids: Ids of the queries.
            k: Maximum number of passages of a query.
            advance: Called with 1 after each query.
            ties: As :func:`gnnretrieval.encoders.exact_search.merge_top_k`.

        Raises:
            ArtifactError: A query has no features, or a file is damaged.
        """
        search = PostingsSearch(self.postings, self.meta["num_passages"])
        starts, terms, weights = self.queries()
        for row in self.rows_of(query_ids).tolist():
            part = slice(starts[row], starts[row + 1])
            yield search.top_k(terms[part].tolist(), k, weights[part].astype(np.float32), ties)
            advance(1)


def open_sparse_features(path: str | Path) -> SparseFeatures:
    """Open the sparse features at ``path``; errors as :func:`gnnretrieval.storage.artifacts.open_artifact`."""
    counts = ("num_passages", "num_queries", "num_passage_terms", "num_query_terms", "terms")
    artifact = open_artifact(path, KIND, ("encoder", "checkpoint_hash", "made_from", *counts))
    return SparseFeatures(artifact.path, artifact.meta)


def encode_sparse(
    dataset: Dataset,
    settings: EncoderSettings,
    out: str | Path,
    *,
    device: str = "cpu",
    sharding: Sharding | None = None,
    overwrite: bool = False,
) -> SparseFeatures:
    """Encode all passages and queries of a dataset to weights of terms. After an interruption, the same call continues.

    Args:
        dataset: The texts.
        settings: Settings of a sparse encoder: an encoder trained here, or a checkpoint and ``sparse = true``.
        out: Directory of the features.
        device: Where to compute.
        sharding: Encode in shards, by several processes or machines; the weights are the same. None: in this process.
        overwrite: Replace features that were made from other inputs.

    Raises:
        GnnRetrievalError: The encoder makes vectors or cannot be opened, or ``out`` holds something else.
    """
    plan = EncodingPlan.of(dataset, settings, device)
    settings = plan.settings
    if not settings.sparse:
        raise InputError(f"{settings.checkpoint}: this encoder makes vectors, not weights of terms: give --sparse.")

    def write(directory: Path) -> dict[str, Any]:
        say(f"encoder: {settings.checkpoint}, from {plan.source}, {plan.config['precision']}")
        encoder = SparseEncoder(settings, device)
        counts = write_texts(directory / TEXTS, dataset)
        if plan.learned_from:
            write_learned_from(directory, plan.learned_from.intersection(dataset.query_ids))
        names = encoder.vocabulary
        write_json(directory / VOCABULARY, names)
        if sharding is not None:
            stages = plan.shards(SparseShards, sharding.shards, out)
            run_stage(together(stages, range(sharding.shards)), sharding)
            figures = {f"num_{stage.side}_terms": _merged(stage, directory) for stage in stages}
        else:
            figures = {
                f"num_{side}_terms": _encode_side(encoder, side, dataset, counts[side], directory) for side in FILES
            }
        _invert(directory, counts["passage"], figures["num_passage_terms"], len(names))
        per_passage, per_query = (figures[f"num_{side}_terms"] / max(1, counts[side]) for side in FILES)
        say(f"{per_passage:,.1f} terms a passage, {per_query:,.1f} a query")
        return {
            **figures,
            "encoder": with_absolute_paths(settings).model_dump(),
            "source": plan.source,
            "checkpoint_hash": plan.fingerprint,
            "num_passages": counts["passage"],
            "num_queries": counts["query"],
            "terms": len(names),
            "made_from": {"dataset": relative_to(out, dataset.path)},
        }

    artifact = make_artifact(out, KIND, inputs=plan.inputs, config=plan.config, write=write, overwrite=overwrite)
    discard_shards(Path(out))
    return SparseFeatures(artifact.path, artifact.meta)


def _encode_side(encoder: SparseEncoder, side: Side, dataset: Dataset, total: int, directory: Path) -> int:
    """Encode the texts of one side, window by window; returns the number of their terms with a weight."""
    manifest_path = scratch(directory) / "manifest.json"
    manifest: dict[str, int] = json.loads(manifest_path.read_text()) if manifest_path.exists() else {}
    done, name = manifest.get(side, 0), FILES[side]
    files = _files(directory, side, manifest.get(f"{side}_terms", 0))
    texts = itertools.islice(texts_of(dataset, side), done, None)
    with progress(f"encoding {name}", total, name, done) as meter:
        while window := list(itertools.islice(texts, encoder.settings.window)):
            encoded = encoder.encode(window, side)
            require_finite(encoded.weights, encoder)
            files.write(encoded.weights[:, None], encoded.counts, done, encoded.terms.astype(np.int64))
            done += len(window)
            record_progress(directory, manifest_path, {**manifest, side: done, f"{side}_terms": files.parts})
            meter.advance(len(window))
    return files.parts


def _merged(stage: SparseShards, directory: Path) -> int:
    """Join the shards of one side; returns the number of their terms with a weight."""
    files = _files(directory, stage.side)
    stage.merge(files)
    return files.parts


def _invert(directory: Path, passages: int, count: int, vocabulary: int) -> None:
    """Write the inverted lists of the passages, each in the order of rows, with about 20 bytes of memory per weight."""
    starts, terms, weights = _stored(directory, "passage", passages, count, vocabulary)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(terms, minlength=vocabulary))]).astype(np.int64)
    order = np.argsort(terms, kind="stable")  # keeps the order of rows within a term
    rows = np.repeat(np.arange(passages, dtype=np.int32), np.diff(starts))
    Postings(indptr, rows[order], weights[order].astype(np.float32)).save(directory)


def _files(directory: Path, side: Side, terms: int = 0) -> PartFiles:
    """The files of one side, after ``terms`` weights of an interrupted run."""
    weights, starts, ids = (directory / name for name in _names(side))
    return PartFiles(weights, starts, 1, np.float16, terms, ids)


def _names(side: Side) -> tuple[str, str, str]:
    """Names of the files of weights, of offsets and of terms."""
    return f"{side}_weights.npy", f"{side}_starts.npy", f"{side}_terms.npy"


def _stored(directory: Path, side: Side, texts: int, count: int, vocabulary: int) -> Weights:
    weights_file, starts_file, terms_file = (directory / name for name in _names(side))
    starts = load_array(starts_file, (texts + 1,), np.int64)
    terms = load_array(terms_file, (count,), np.int32)
    weights = load_array(weights_file, (count, 1), np.float16)[:, 0]
    require_offsets(starts, count, starts_file)
    if count:
        require_rows(terms, vocabulary, terms_file)
    return starts, terms, weights
