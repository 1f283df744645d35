"""Convert a dataset directory into files of another format."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

from gnnretrieval.data.dataset import Dataset
from gnnretrieval.data.formats.beir_writer import write_beir
from gnnretrieval.data.formats.contents import Contents, Lost, negatives_files
from gnnretrieval.data.formats.dpr_writer import write_dpr
from gnnretrieval.data.formats.msmarco_writer import write_msmarco
from gnnretrieval.data.formats.squad_writer import write_squad
from gnnretrieval.data.formats.table_writer import write_table
from gnnretrieval.data.formats.trec_writer import write_trec
from gnnretrieval.progress import say
from gnnretrieval.storage.artifacts import Artifact
from gnnretrieval.storage.making import make_artifact
from gnnretrieval.storage.provenance import sha256_of_file, sha256_of_json

To = Literal["beir", "msmarco", "dpr", "squad", "trec", "tsv", "csv", "parquet"]
KIND = "conversion"
_WRITERS: dict[str, Callable[[Contents, Path, Lost], None]] = {
    "beir": write_beir,
    "msmarco": write_msmarco,
    "dpr": write_dpr,
    "squad": write_squad,
    "trec": write_trec,
    **{ending: partial(write_table, ending=ending) for ending in ("tsv", "csv", "parquet")},
}


def convert_dataset(
    dataset: Dataset,
    to: To,
    out: str | Path,
    *,
    overwrite: bool = False,
) -> Artifact:
    """Write ``dataset`` as files of the format ``to`` into the directory ``out``.

    Content that the format cannot hold is counted in ``lost`` of its ``meta.json``, and printed.

    Args:
        dataset: The dataset to convert.
        to: The format.
        out: A new directory.
        overwrite: Replace files made from another dataset.

    Raises:
        GnnRetrievalError: ``squad``, and answers have no spans; or ``parquet``, and pyarrow is not installed.
    """

    def write(directory: Path) -> dict[str, Any]:
        lost: Lost = defaultdict(int)
        _WRITERS[to](Contents.of(dataset), directory, lost)
        counts = {what: count for what, count in lost.items() if count}
        for what, count in counts.items():
            say(f"{to} cannot hold {what}: {count:,}")
        return {"lost": counts}

    config = {"to": to}
    inputs = {"dataset": dataset.hash}
    if files := negatives_files(dataset):  # they are not in the dataset's hash
        inputs["negatives"] = sha256_of_json({split: sha256_of_file(file) for split, file in files.items()})
    return make_artifact(
        out,
        "dataset" if to == "beir" else KIND,
        inputs=inputs,
        config=config,
        write=write,
        overwrite=overwrite,
    )
