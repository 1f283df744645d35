"""TREC's topics and qrels."""

from __future__ import annotations

from pathlib import Path

from gnnretrieval.data.writers.contents import Contents, Lost, one_line


def write_trec(data: Contents, directory: Path, lost: Lost) -> None:
    """``topics.SPLIT.txt`` and ``qrels.SPLIT.txt``."""
    lost["passages"] = len(data.dataset.passage_ids)
    split_of = data.split_of()
    blocks: dict[str, list[str]] = {}
    for query, metadata in data.queries():
        lost["metadata of queries"] += bool(metadata.keys() - {"description", "narrative"})
        block = f"<top>\n<num> Number: {query.id}\n<title> {one_line(query.text, lost)}\n"
        for tag, name, key in (("desc", "Description", "description"), ("narr", "Narrative", "narrative")):
            if isinstance(metadata.get(key), str):
                block += f"<{tag}> {name}:\n{one_line(metadata[key], lost)}\n"
        blocks.setdefault(split_of.get(query.id, ""), []).append(f"{block}</top>\n")
    for split, found in blocks.items():
        path = directory / f"topics{f'.{split}' if split else ''}.txt"
        path.write_text("\n".join(found), encoding="utf-8", newline="\n")
    write_trec_qrels(data, directory, " ", "txt")


def write_trec_qrels(data: Contents, directory: Path, separator: str, ending: str) -> None:
    """``qrels.SPLIT.ENDING``: query, 0, passage and relevance."""
    for split in data.splits:
        with (directory / f"qrels.{split}.{ending}").open("w", encoding="utf-8", newline="\n") as file:
            for query, judged in data.dataset.split(split).items():
                file.writelines(
                    separator.join((query, "0", passage, str(value))) + "\n" for passage, value in judged.items()
                )
