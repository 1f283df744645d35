"""Writer of TREC topics and qrels."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from gnnretrieval.data.formats.contents import Contents, Lost, one_line
from gnnretrieval.data.formats.trec import CLOSING, LEAD
from gnnretrieval.data.runs.trec import require_writable_ids


def write_trec(data: Contents, directory: Path, lost: Lost) -> None:
    """Write ``topics.SPLIT.txt`` and ``qrels.SPLIT.txt``.

    Raises:
        InputError: an id has white space, which separates the columns of qrels.
    """
    lost["passages"] = len(data.dataset.passage_ids)
    data.count_lost_negatives(lost)
    split_of = data.split_of()
    blocks: dict[str, list[str]] = {}
    for query, metadata in data.queries():
        lost["metadata of queries"] += bool(metadata.keys() - {"description", "narrative"})
        block = f"<top>\n<num> Number: {query.id}\n{_field('title', '', query.text, lost)}"
        for tag, lead, key in (("desc", "Description: ", "description"), ("narr", "Narrative: ", "narrative")):
            if isinstance(metadata.get(key), str) and metadata[key].strip():
                block += _field(tag, lead, metadata[key], lost)
        blocks.setdefault(split_of.get(query.id, ""), []).append(f"{block}</top>\n")
    for split, topics in blocks.items():
        path = directory / f"topics{f'.{split}' if split else ''}.txt"
        path.write_text("\n".join(topics), encoding="utf-8", newline="\n")
    write_trec_qrels(data, directory, " ", "txt")


def _field(tag: str, lead: str, text: str, lost: Lost) -> str:
    """A line of a topic. Readers strip a lead such as ``Topic:`` and a closing tag, so a text that has one gets two."""
    line = one_line(text, lost).strip()
    lost["white space around texts"] += line != one_line(text, defaultdict(int))
    if not lead and LEAD.match(line):
        lead = "Topic: "
    return f"<{tag}> {lead}{line}{f' </{tag}>' if CLOSING.search(line) else ''}\n"


def write_trec_qrels(data: Contents, directory: Path, separator: str, ending: str) -> None:
    """Write ``qrels.SPLIT.ENDING``: query, 0, passage and relevance."""
    require_writable_ids([*data.dataset.passage_ids, *data.dataset.query_ids], data.dataset.path)
    for split in data.splits:
        with (directory / f"qrels.{split}.{ending}").open("w", encoding="utf-8", newline="\n") as file:
            for query, judged in data.dataset.split(split).items():
                file.writelines(
                    separator.join((query, "0", passage, str(value))) + "\n" for passage, value in judged.items()
                )
