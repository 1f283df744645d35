"""Writer of BEIR's layout."""

from __future__ import annotations

from pathlib import Path

from gnnretrieval.data.beir import write_passages, write_qrels, write_queries
from gnnretrieval.data.dataset import CORPUS, QUERIES
from gnnretrieval.data.formats.contents import Contents, Lost
from gnnretrieval.data.records import Qrel


def write_beir(data: Contents, directory: Path, lost: Lost) -> None:
    """Write ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/SPLIT.tsv``."""
    write_passages(directory / CORPUS, data.passages())
    write_queries(directory / QUERIES, data.queries())
    data.count_lost_negatives(lost)
    for split in data.splits:
        judged = data.dataset.split(split)
        write_qrels(
            directory / "qrels" / f"{split}.tsv",
            (Qrel(query, passage, value) for query, grades in judged.items() for passage, value in grades.items()),
        )
