"""Writer of DPR's passages and training JSON."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from gnnretrieval.data.answers import answers_of
from gnnretrieval.data.formats.contents import Contents, Lost, count_padded
from gnnretrieval.data.records import Passage

_KINDS = ("negative", "hard_negative")


def write_dpr(data: Contents, directory: Path, lost: Lost) -> None:
    """Write ``psgs.tsv``, ``biencoder-SPLIT.json`` and, for queries without judgements, ``unjudged.qa.csv``."""
    count_padded(data.dataset.passage_ids, lost)
    with (directory / "psgs.tsv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n", quoting=csv.QUOTE_ALL)
        writer.writerow(("id", "text", "title"))
        for passage, metadata in data.passages():
            lost["metadata of passages"] += bool(metadata)
            writer.writerow((passage.id, passage.text, passage.title))
    texts = {passage.id: passage for passage, _ in data.passages()}
    queries = {query.id: (query, metadata) for query, metadata in data.queries()}
    lost["ids of queries"] = len(queries)
    split_of = data.split_of()
    judged_in = {split: data.dataset.split(split) for split in data.splits}
    data.count_lost_negatives(lost, lambda split, query: query in judged_in.get(split, ()), _KINDS)
    for split in data.splits:
        negatives_of = data.negatives(split)
        records = []
        for id_, judged in judged_in[split].items():
            (query, metadata), negatives = queries[id_], negatives_of.get(id_, [])
            lost["relevance other than 0 and 1"] += sum(value not in (0, 1) for value in judged.values())
            lost["judgements of 0"] += sum(value == 0 for value in judged.values())
            records.append(
                {
                    "question": query.text,
                    "answers": answers_of(metadata),
                    "positive_ctxs": [_context(texts[passage]) for passage, value in judged.items() if value > 0],
                    "negative_ctxs": [_context(texts[p]) for p, kind in negatives if kind != "hard_negative"],
                    "hard_negative_ctxs": [_context(texts[p]) for p, kind in negatives if kind == "hard_negative"],
                }
            )
        text = json.dumps(records, ensure_ascii=False, indent=4) + "\n"
        (directory / f"biencoder-{split}.json").write_text(text, encoding="utf-8", newline="\n")
    unjudged = [record for id_, record in queries.items() if id_ not in split_of]
    if unjudged:
        with (directory / "unjudged.qa.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, delimiter="\t", lineterminator="\n", quoting=csv.QUOTE_ALL)
            writer.writerows((query.text, repr(answers_of(metadata))) for query, metadata in unjudged)


def _context(passage: Passage) -> dict[str, str]:
    return {"title": passage.title, "text": passage.text, "passage_id": passage.id}
