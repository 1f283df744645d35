"""The dry run of encoding: a sample of the dataset's texts is encoded, and nothing is written."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from gnnretrieval.data.dataset import Dataset
from gnnretrieval.encoders.encoding_shards import FILES, require_sharded
from gnnretrieval.encoders.feature_rows import reading_of, texts_of
from gnnretrieval.encoders.opening import open_encoder
from gnnretrieval.encoders.prompts import Side
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.encoders.sparse_encoder import SparseEncoder
from gnnretrieval.encoders.text_encoder import TextEncoder
from gnnretrieval.encoders.trained import trained_settings
from gnnretrieval.shards.engines import Sharding
from gnnretrieval.shards.forecast import Forecast, StageForecast, as_a_worker, measure, spread
from gnnretrieval.shards.stage import parts

_TEXTS = 1024  # texts of a side that are read, at most
_HALF = 2  # bytes of a number
_WEIGHT = 6  # bytes of a term's weight and of its number
_LISTED = 8 / 6  # bytes of a row and a weight in the inverted lists, per byte of the above
_OF_TEXT = 1.15  # bytes of texts.sqlite per byte of text


def forecast_encoding(
    dataset: Dataset, settings: EncoderSettings, sharding: Sharding, *, device: str = "cpu"
) -> Forecast:
    """What encoding in shards will take, to vectors or to weights of terms.

    Args:
        dataset: The texts.
        settings: A checkpoint.
        sharding: ``shards`` is used.
        device: Device of the checkpoint.

    Raises:
        GnnRetrievalError: As :func:`gnnretrieval.encoders.features.encode_dataset`.
    """
    settings = trained_settings(settings)
    require_sharded(settings, dataset)
    begun = time.perf_counter()
    encoder = SparseEncoder(settings, device) if settings.sparse else open_encoder(settings, device)
    Dataset.open(dataset.path, dataset.qrels, dataset.where)  # every worker does
    begin = time.perf_counter() - begun
    stages, result_bytes = [], 0.0
    with as_a_worker(device) as worker:
        for side, unit in FILES.items():
            total = len(dataset.passage_ids if side == "passage" else dataset.query_ids)
            rows = set(spread(total, _TEXTS))
            texts = [text for row, text in enumerate(islice(texts_of(dataset, side), total)) if row in rows]
            made = dict[int, float]()  # bytes by number of texts

            def encode(count: int, side: Side = side, texts: list[str] = texts, made: dict[int, float] = made) -> None:
                made[count] = _encoded_bytes(encoder, side, dataset, texts[:count])

            measured = measure(encode, len(texts))
            shard_bytes = round(total * made[max(made)] / max(1, max(made))) if made else 0
            result_bytes += total * _OF_TEXT * sum(len(text.encode()) for text in texts) / max(len(texts), 1)
            result_bytes += shard_bytes
            if settings.sparse and side == "passage":
                result_bytes += shard_bytes * _LISTED  # the inverted lists
            stages.append(
                StageForecast(
                    name=f"encoding {unit}",
                    unit=unit,
                    units=total,
                    shards=len(parts(total, sharding.shards, settings.window)),
                    rate=measured.units / measured.seconds,
                    measured=int(measured.units),
                    begin=begin if side == "passage" else 0.0,  # the same workers do both
                    shard_bytes=shard_bytes,
                )
            )
    return Forecast(stages=tuple(stages), result_bytes=round(result_bytes), worker=worker)


def _encoded_bytes(encoder: TextEncoder | SparseEncoder, side: Side, dataset: Dataset, texts: Sequence[str]) -> int:
    """Encode texts as a worker does, and return the bytes of what it makes of them."""
    if not texts:
        return 0
    if isinstance(encoder, SparseEncoder):
        return _WEIGHT * len(encoder.encode(texts, side).weights)
    with tempfile.TemporaryDirectory() as scratch:
        reading = reading_of(encoder, side, dataset, Path(scratch).joinpath, {})
        vectors = reading.vectors(texts, 0)
        return _HALF * vectors.size + sum(file.stat().st_size for file in Path(scratch).iterdir())
