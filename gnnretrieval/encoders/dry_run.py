"""The dry run of encoding: a sample of the dataset's texts is encoded, and nothing is written."""

from __future__ import annotations

import time
from itertools import islice

from gnnretrieval.data.dataset import Dataset
from gnnretrieval.encoders.encoding_shards import FILES, require_sharded
from gnnretrieval.encoders.feature_rows import WholeTexts
from gnnretrieval.encoders.opening import open_encoder
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.encoders.trained import trained_settings
from gnnretrieval.errors import InputError
from gnnretrieval.shards.engines import Sharding
from gnnretrieval.shards.forecast import Forecast, StageForecast, as_a_worker, measure, spread
from gnnretrieval.shards.stage import parts

_TEXTS = 1024  # texts of a side that are read, at most
_HALF = 2  # bytes of a number
_OF_TEXT = 1.15  # bytes of texts.sqlite per byte of text


def forecast_encoding(
    dataset: Dataset, settings: EncoderSettings, sharding: Sharding, *, device: str = "cpu"
) -> Forecast:
    """What :func:`gnnretrieval.encoders.features.encode_dataset` in shards will take.

    Args:
        dataset: The texts.
        settings: A checkpoint.
        sharding: ``shards`` is used.
        device: Device of the checkpoint.

    Raises:
        GnnRetrievalError: As :func:`gnnretrieval.encoders.features.encode_dataset`.
    """
    settings = trained_settings(settings)
    require_sharded(settings)
    if settings.sparse:
        raise InputError("weights of terms have no forecast: leave out --dry-run.")
    begun = time.perf_counter()
    encoder = open_encoder(settings, device)
    Dataset.open(dataset.path, dataset.qrels, dataset.where)  # every worker does
    begin = time.perf_counter() - begun
    stages, text_bytes = [], 0.0
    with as_a_worker(device) as worker:
        for side, unit in FILES.items():
            total = len(dataset.passage_ids if side == "passage" else dataset.query_ids)
            reading = WholeTexts(encoder, side, dataset)
            rows = set(spread(total, _TEXTS))
            texts = [item for row, item in enumerate(islice(reading.items(), total)) if row in rows]
            text_bytes += total * sum(len(text.encode()) for text in texts) / max(len(texts), 1)

            def encode(count: int, reading: WholeTexts = reading, texts: list[str] = texts) -> None:
                reading.vectors(texts[:count], 0)

            measured = measure(encode, len(texts))
            stages.append(
                StageForecast(
                    name=f"encoding {unit}",
                    unit=unit,
                    units=total,
                    shards=len(parts(total, sharding.shards, settings.window)),
                    rate=measured.units / measured.seconds,
                    measured=int(measured.units),
                    begin=begin if side == "passage" else 0.0,  # the same workers do both
                    shard_bytes=_HALF * encoder.dimension * total,
                )
            )
    vectors = sum(stage.shard_bytes for stage in stages)
    return Forecast(stages=tuple(stages), result_bytes=vectors + round(_OF_TEXT * text_bytes), worker=worker)
