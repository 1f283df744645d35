"""Writer of MS MARCO passage ranking, with each text on one line."""

from __future__ import annotations

from pathlib import Path

from gnnretrieval.data.formats.contents import Contents, Lost, one_line
from gnnretrieval.data.formats.trec_writer import write_trec_qrels


def write_msmarco(data: Contents, directory: Path, lost: Lost) -> None:
    """Write ``collection.tsv``, ``queries.SPLIT.tsv``, ``qrels.SPLIT.tsv`` and ``qidpidtriples.SPLIT.tsv``."""
    with (directory / "collection.tsv").open("w", encoding="utf-8", newline="\n") as file:
        for passage, metadata in data.passages():
            lost["metadata of passages"] += bool(metadata)
            lost["titles apart from texts"] += bool(passage.title)
            file.write(f"{passage.id}\t{one_line(passage.full_text, lost)}\n")
    split_of = data.split_of()
    files = {name: directory / f"queries{f'.{name}' if name else ''}.tsv" for name in ["", *data.splits]}
    lines: dict[str, list[str]] = {name: [] for name in files}
    for query, metadata in data.queries():
        lost["metadata of queries"] += bool(metadata)
        lines[split_of.get(query.id, "")].append(f"{query.id}\t{one_line(query.text, lost)}\n")
    for name, path in files.items():
        if lines[name]:
            path.write_text("".join(lines[name]), encoding="utf-8", newline="\n")
    write_trec_qrels(data, directory, "\t", "tsv")
    judged_in = {split: data.dataset.split(split) for split in data.splits}
    data.count_lost_negatives(
        lost, lambda split, query: max(judged_in.get(split, {}).get(query, {"": 0}).values()) > 0, kinds=("triple",)
    )
    for split, judged in judged_in.items():
        triples = [
            f"{query}\t{positive}\t{passage}\n"
            for query, negatives in data.negatives(split).items()
            for positive, relevance in judged.get(query, {}).items()
            if relevance > 0
            for passage, _ in negatives
        ]
        if triples:
            path = directory / f"qidpidtriples.{split}.tsv"
            path.write_text("".join(triples), encoding="utf-8", newline="\n")
