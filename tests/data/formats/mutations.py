"""Files of every format made from a seed, with something wrong with them or not, and what import must do with them.

An operation says whether the file must be refused, must be accepted, or neither; what it then holds is what
:mod:`reference` reads in it. Files are written here, not by the package's writers.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal, NamedTuple

from tests.data.formats.reference import File

Wanted = Literal["accepted", "refused", "either"]
PIECES = [
    *(
        "what is",
        "the",
        "Manhattan Project",
        "1945",
        "naïve café",
        "東京",
        "\u202eעברית\u202c",
        "مرحبا",
        "👩\u200d🔬",
        "e\u0301",
    ),
    *(
        '"',
        '""',
        "'",
        "\\",
        ",",
        ";",
        "<b>",
        "</top",
        "{",
        "[1]",
        "\u2028",
        "\x85",
        "\u00a0",
        "\ufeff",
        "\0",
        "\x1f",
        "null",
    ),
]
BREAKS = ["\n", "\r", "\r\n", "\t"]
LONG = 10**6  # characters of the longest texts
HOSTILE = [
    b"\xff",
    b"\x00",
    b'"',
    b"\t",
    b"\n",
    b"\r",
    b"\r\n",
    b"\xef\xbb\xbf",
    b"[",
    b"}",
    b"<top>",
    b"null",
    b"1e999",
]
HOSTILE += [b"NaN", b"{}", b"[]", b"true", b"-1", "é".encode("utf-16"), b"\\ud800", b",", b" ", b"</top>", b"<num>"]
HOSTILE += [b"7" * 5000, b"[" * 100 + b"]" * 100, b'{"a":' * 20_000]
VALUES: list[Any] = [None, True, 0, -1, 1.5, 10**400, "", " ", "x", [], ["x"], {}, {"a": None}, [[]], "\ud800"]
PLAIN = {
    "beir-qrels": ("query", "passage", "relevance"),
    "msmarco-collection": ("id", "text"),
    "msmarco-queries": ("id", "question"),
    "msmarco-triples": ("question", "text", "text"),
    "msmarco-id-triples": ("query", "passage", "passage"),
    "msmarco-top1000": ("id", "id", "question", "text"),
    "trec-qrels": ("query", "iteration", "passage", "relevance"),
    "trec-run": ("query", "iteration", "passage", "rank", "score", "tag"),
}
CSV = {
    "dpr-passages": ("id", "text", "title"),
    "dpr-qa": ("question", "answers"),
    "passages": ("id", "text", "title", "more"),
    "queries": ("id", "question", "answers", "more"),
    "qrels": ("query", "passage", "relevance"),
}
TABLE_HEADERS = {
    "passages": ["docid", "text", "title", "year"],
    "queries": ["qid", "question", "answers", "kind"],
    "qrels": ["query_id", "passage_id", "relevance"],
}


class Case(NamedTuple):
    """A file with something wrong with it or not.

    Attributes:
        file: The file.
        beside: Files that are imported with it.
        wanted: What must become of it.
        line: Where it must be refused; None: where is not known.
        operation: What was done to it.
    """

    file: File
    beside: list[File]
    wanted: Wanted
    line: int | None
    operation: str


@dataclass
class Document:
    """A file in parts: what comes first, records, what comes last; and the values that they were made of."""

    format: str
    name: str
    split: str
    records: list[str]
    first: str = ""
    between: str = "\n"
    last: str = "\n"
    values: list[Any] = field(default_factory=list)
    beside: list[File] = field(default_factory=list)
    whole: bytes | None = None  # of a binary file

    def text(self) -> str:
        return self.first + self.between.join(self.records) + self.last

    def line_of(self, place: int) -> int:
        """The line that a record begins on."""
        before = self.first + self.between.join(self.records[:place]) + (self.between if place else "")
        return before.count("\n") + 1


def awkward(rng: Random, breaks: bool) -> str:
    """A text that is not blank, with what files go wrong by; one in 2,000 is long."""
    pieces = rng.choices(PIECES + BREAKS * 2 if breaks else PIECES, k=rng.randint(1, 6))
    if rng.random() < 0.0005:
        pieces.append("long " * (LONG // 5))
    return f"t{rng.choice(['', ' ']).join(pieces)}"


def ids(rng: Random, count: int, spaces: bool) -> list[str]:
    start = rng.randint(0, 10**6)
    kinds = [lambda n: str(start + n), lambda n: f"FBIS3-{n}", lambda n: f"é{n}", lambda n: f"00{n}"]
    kinds += [lambda n: f"a b{n}"] if spaces else []
    kind = rng.choice(kinds)
    return [kind(n) for n in range(count)]


def document(format_: str, rng: Random) -> Document:
    """A right file of a format, with the files it needs beside it."""
    passages, asked = ids(rng, rng.randint(2, 5), format_ not in PLAIN), ids(rng, rng.randint(2, 4), False)
    asked = [f"q{id_}" for id_ in asked]
    pairs = [(query, rng.choice(passages)) for query in asked]
    beside = {
        "passages": File("beir-corpus", "", "the-corpus.jsonl", jsonl(rng, [(id_, "text") for id_ in passages])),
        "queries": File("beir-queries", "", "the-queries.jsonl", jsonl(rng, [(id_, "text?") for id_ in asked])),
        "qrels": File("beir-qrels", "test", "the-qrels.tsv", "".join(f"{q}\t{p}\t1\n" for q, p in pairs).encode()),
    }
    name = format_.removesuffix("-parquet")
    if name in ("beir-corpus", "msmarco-collection", "dpr-passages", "passages"):
        del beside["passages"]
    elif name in ("beir-queries", "msmarco-queries", "trec-topics", "queries"):
        del beside["queries"]
    elif name in ("beir-qrels", "msmarco-id-triples", "trec-qrels", "qrels"):
        del beside["qrels"]
    elif name == "dpr-qa":
        del beside["queries"], beside["qrels"]
    else:
        beside.clear()
    made = MAKERS[name](name, rng, passages, asked, pairs)
    made.beside = list(beside.values())
    if format_.endswith("-parquet"):
        made.format, made.name = name, f"{name}.parquet"
        made.whole = parquet_bytes(made.values, TABLE_HEADERS[name])
    return made


def jsonl(rng: Random, records: list[tuple[str, str]]) -> bytes:
    return "".join(json.dumps({"_id": id_, "text": f"{text} {id_}"}) + "\n" for id_, text in records).encode()


def dumped(value: Any, rng: Random) -> str:
    separators = rng.choice([None, (",", ":"), (" , ", " : ")])
    return json.dumps(value, ensure_ascii=rng.random() < 0.5, separators=separators)


def shuffled(record: dict, rng: Random) -> dict:
    keys = list(record)
    rng.shuffle(keys)
    return {key: record[key] for key in keys}


def make_beir(name: str, rng: Random, passages: list[str], asked: list[str], pairs: list) -> Document:
    values = []
    for id_ in passages if name == "beir-corpus" else asked:
        record: dict[str, Any] = {"_id": id_, "text": awkward(rng, True)}
        if name == "beir-corpus":
            record["title"] = rng.choice(["", awkward(rng, True).strip()])
        if rng.random() < 0.5:
            record["metadata"] = {"url": awkward(rng, True), "year": rng.randint(0, 3000), "of": [1.5, None, True]}
        values.append(shuffled(record, rng))
    file = "corpus.jsonl" if name == "beir-corpus" else "queries.jsonl"
    return Document(name, file, "", [dumped(value, rng) for value in values], values=values)


def make_plain(name: str, rng: Random, passages: list[str], asked: list[str], pairs: list) -> Document:
    rows = []
    if name == "msmarco-collection":
        rows = [[id_, awkward(rng, False)] for id_ in passages]
    elif name == "msmarco-queries":
        rows = [[id_, awkward(rng, False)] for id_ in asked]
    elif name == "msmarco-triples":
        texts = [awkward(rng, False) for _ in passages]
        rows = [[f"{n} {awkward(rng, False)}", rng.choice(texts), rng.choice(texts)] for n in range(3)]
    elif name == "msmarco-top1000":
        texts, questions = {id_: awkward(rng, False) for id_ in passages}, {id_: awkward(rng, False) for id_ in asked}
        rows = [[q, p, questions[q], texts[p]] for q in asked for p in rng.sample(passages, 2)]
    elif name == "msmarco-id-triples":
        rows = [[query, passage, rng.choice(passages)] for query, passage in pairs]
    elif name == "beir-qrels":
        rows = [[query, passage, str(rng.randint(-1, 3))] for query, passage in pairs]
    elif name == "trec-qrels":
        rows = [[query, rng.choice(["0", "Q0"]), passage, str(rng.randint(-1, 3))] for query, passage in pairs]
    elif name == "trec-run":
        rows = [
            [query, "Q0", p, str(n), str(rng.choice([1e-40, -2.5, 3, 1e39, rng.random()])), "tag"]
            for query in asked
            for n, p in enumerate(passages)
        ]
    separator = rng.choice([" ", "\t", "  "]) if name.startswith("trec") else "\t"
    first = "query-id\tcorpus-id\tscore\n" if name == "beir-qrels" and rng.random() < 0.7 else ""
    split = "" if name in ("msmarco-collection", "msmarco-queries") else "test"
    return Document(name, f"{name}.tsv", split, [separator.join(row) for row in rows], first, values=rows)


def cell(value: str, rng: Random, delimiter: str) -> str:
    needed = bool(set(value) & {delimiter, "\n", "\r"}) or value.startswith('"')
    return '"' + value.replace('"', '""') + '"' if needed or rng.random() < 0.4 else value


def make_csv(name: str, rng: Random, passages: list[str], asked: list[str], pairs: list) -> Document:
    delimiter = rng.choice(",\t") if name in TABLE_HEADERS else "\t"
    if name == "qrels":
        rows = [[query, passage, str(rng.randint(0, 3))] for query, passage in pairs]
    elif name == "dpr-qa":
        rows = [[awkward(rng, True), repr([awkward(rng, True) for _ in range(rng.randint(0, 2))])] for _ in asked]
    elif name == "queries":
        answers = ["", "one", '["a", "b\\n"]', '["é", "\\u00e9"]', "[not a list"]
        rows = [[id_, awkward(rng, True), rng.choice(answers), rng.choice(["", awkward(rng, True)])] for id_ in asked]
    else:
        rows = [[id_, awkward(rng, True), rng.choice(["", awkward(rng, True).strip()]), "1999"] for id_ in passages]
        rows = [row[: len(CSV[name])] for row in rows]
    header = TABLE_HEADERS.get(name, ["id", "text", "title"] if name == "dpr-passages" and rng.random() < 0.8 else [])
    records = [delimiter.join(cell(value, rng, delimiter) for value in row) for row in rows]
    ending = {"dpr-passages": "tsv", "dpr-qa": "qa.csv"}.get(name, "csv" if delimiter == "," else "tsv")
    split = "test" if name in ("dpr-qa", "qrels") else ""
    first = delimiter.join(header) + "\n" if header else ""
    return Document(name, f"{name}.{ending}", split, records, first, values=rows)


def make_dpr_training(name: str, rng: Random, passages: list[str], asked: list[str], pairs: list) -> Document:
    texts = {id_: (rng.choice(["", awkward(rng, True).strip()]), awkward(rng, True)) for id_ in passages}

    def contexts(most: int) -> list[dict]:
        found = []
        for id_ in rng.sample(passages, rng.randint(most // 2, min(most, len(passages)))):
            title, text = texts[id_]
            found.append({"title": title, "text": text, "score": 1.5, rng.choice(["passage_id", "psg_id"]): id_})
        return found

    values = [
        shuffled(
            {
                "question": awkward(rng, True),
                "answers": [awkward(rng, True) for _ in range(rng.randint(0, 2))],
                "positive_ctxs": contexts(2),
                "negative_ctxs": contexts(1),
                "hard_negative_ctxs": contexts(2),
            },
            rng,
        )
        for _ in asked
    ]
    if not any(value[key] for value in values for key in value if key.endswith("ctxs")):
        values[0]["positive_ctxs"] = [{"title": "T", "text": "a text", "passage_id": passages[0]}]
    records = [dumped(value, rng) for value in values]
    return Document(name, "nq-dev.json", "dev", records, "[\n", ",\n", "\n]\n", values)


def make_squad(name: str, rng: Random, passages: list[str], asked: list[str], pairs: list) -> Document:
    articles, left = [], list(asked)
    for number in range(2):
        paragraphs = []
        for _ in range(rng.randint(1, 2)):
            context = f"{len(articles)}{len(paragraphs)} {awkward(rng, True)}"
            questions = []
            for id_ in [left.pop() for _ in range(min(len(left), rng.randint(0, 2)))]:
                impossible = rng.random() < 0.3
                answers = [] if impossible else [{"text": context[1:3], "answer_start": 1}]
                question = {"id": id_, "question": awkward(rng, True), "answers": answers}
                questions.append(shuffled({**question, "is_impossible": True} if impossible else question, rng))
            paragraphs.append({"context": context, "qas": questions})
        articles.append({"title": f"T_{number}é", "paragraphs": paragraphs})
    articles[0]["paragraphs"][0]["qas"].append(
        {"id": "last", "question": "the last?", "answers": [{"text": "0", "answer_start": 0}]}
    )
    records = [dumped(article, rng) for article in articles]
    return Document(name, "dev-v2.0.json", "dev", records, '{"version": "v2.0", "data": [\n', ",\n", "\n]}\n", articles)


def make_topics(name: str, rng: Random, passages: list[str], asked: list[str], pairs: list) -> Document:
    records = []
    for id_ in asked:
        title = " ".join(awkward(rng, False).split())
        number, closing = rng.choice(["Number: ", "", "Number:  "]), rng.choice(["", " </title>"])
        block = ["<top>", "", f"<num> {number}{id_}", f"<title> {rng.choice(['', 'Topic: '])}{title}{closing}"]
        if rng.random() < 0.6:
            block += ["<desc> Description:", "what it is", " and more", "<narr> Narrative: relevant is", "what is"]
        if rng.random() < 0.3:
            block += ["<con> Concept(s):", "1. one", "<smry> Summary", "in short"]
        records.append("\n".join([*block, "</top>"]))
    return Document(name, "topics.301-350.txt", "", records, values=list(asked))


MAKERS: dict[str, Callable[[str, Random, list[str], list[str], list], Document]] = {
    "beir-corpus": make_beir,
    "beir-queries": make_beir,
    **dict.fromkeys(PLAIN, make_plain),
    **dict.fromkeys(CSV, make_csv),
    "dpr-training": make_dpr_training,
    "squad": make_squad,
    "trec-topics": make_topics,
}
READERS = [*MAKERS, *(f"{name}-parquet" for name in TABLE_HEADERS)]


def parquet_bytes(rows: list[list[Any]], header: list[str]) -> bytes:
    import pyarrow
    import pyarrow.parquet

    columns = [pyarrow.array(list(column)) for column in zip(*rows, strict=True)]
    with io.BytesIO() as file:
        pyarrow.parquet.write_table(pyarrow.Table.from_arrays(columns, names=header), file)
        return file.getvalue()


# ----------------------------------------------------------------------------------------------------------------------
# Operations: each gives the bytes, what must become of them and on which line, or None where it does not apply.

Done = tuple[bytes, Wanted, int | None] | None


def as_it_is(made: Document, rng: Random) -> Done:
    return made.text().encode(), "accepted", None


def carriage_returns(made: Document, rng: Random) -> Done:
    breaks = any("\n" in record for record in made.records) and made.format != "trec-topics"
    return None if breaks else (made.text().replace("\n", "\r\n").encode(), "accepted", None)


def byte_order_mark(made: Document, rng: Random) -> Done:
    return b"\xef\xbb\xbf" + made.text().encode(), "accepted", None


def gzipped(made: Document, rng: Random) -> Done:
    return gzip.compress(made.text().encode(), mtime=0), "accepted", None


def no_last_line_break(made: Document, rng: Random) -> Done:
    return made.text().removesuffix("\n").encode(), "accepted", None


def blank_lines(made: Document, rng: Random) -> Done:
    made.between += rng.choice(["\n", "\n\n", " \n"])
    made.last += "\n\n"
    return made.text().encode(), "accepted", None


def other_order(made: Document, rng: Random) -> Done:
    rng.shuffle(made.records)
    return made.text().encode(), "accepted", None


def bad_byte(made: Document, rng: Random) -> Done:
    data = bytearray(made.text().encode())
    start = rng.randrange(len(data))
    data[start:start] = rng.choice([b"\xff", b"\xc0", b"\xed\xa0\x80"])
    ids_ = made.format == "trec-run"  # whose other columns may be anything
    return bytes(data), "either" if ids_ else "refused", None if ids_ else bytes(data[:start]).count(b"\n") + 1


def utf_16(made: Document, rng: Random) -> Done:
    return made.text().encode("utf-16"), "refused", 1


def latin_1(made: Document, rng: Random) -> Done:
    data = made.text().encode("latin-1", "replace")
    return data, "either", None


def cut_gzip(made: Document, rng: Random) -> Done:
    data = gzip.compress(made.text().encode(), mtime=0)
    return data[: rng.randint(2, len(data) - 1)], "refused", None


def damaged_gzip(made: Document, rng: Random) -> Done:
    data = bytearray(gzip.compress(made.text().encode(), mtime=0))
    data[rng.randrange(2, len(data))] ^= 1 << rng.randrange(8)
    return bytes(data), "either", None


def nothing(made: Document, rng: Random) -> Done:
    return rng.choice([b"", b"\n", b" \n\n", b"\xef\xbb\xbf", gzip.compress(b"", mtime=0)]), "either", None


def cut_off(made: Document, rng: Random) -> Done:
    data = made.text().encode()
    return data[: rng.randrange(len(data))], "either", None


def another_formats_file(made: Document, rng: Random) -> Done:
    other = document(rng.choice([name for name in MAKERS if name != made.format]), rng)
    return other.text().encode(), "either", None


def blind(made: Document, rng: Random) -> Done:
    data = bytearray(made.whole if made.whole is not None else made.text().encode())
    for _ in range(rng.randint(1, 3)):
        start = rng.randint(0, len(data))
        end = min(len(data), start + rng.choice([1, 2, 5, 20, 100]))
        kind = rng.randrange(6)
        if kind == 0:
            del data[start:]
        elif kind == 1:
            del data[start:end]
        elif kind == 2:
            data[start:start] = rng.choice(HOSTILE)
        elif kind == 3:
            data[start:start] = data[start:end]
        elif kind == 4 and start < len(data):
            data[start] = rng.randrange(256)
        else:
            rows = bytes(data).split(b"\n")
            rng.shuffle(rows)
            data = bytearray(b"\n".join(rows))
    return bytes(data), "either", None


def columns_of(made: Document) -> tuple[str, ...] | None:
    return {**PLAIN, **CSV}.get(made.format)


def with_row(made: Document, place: int, row: list[str], rng: Random) -> bytes:
    """The file with a row in the place of another."""
    if made.format in CSV:
        delimiter = "," if ".csv" in made.name and made.format != "dpr-qa" else "\t"
        made.records[place] = delimiter.join(cell(value, rng, delimiter) for value in row)
    else:
        made.records[place] = (" " if made.format.startswith("trec") else "\t").join(row)
    return made.text().encode()


def a_column_less(made: Document, rng: Random) -> Done:
    if (columns := columns_of(made)) is None:
        return None
    place = rng.randrange(len(made.values))
    row = list(made.values[place])
    del row[rng.randrange(len(columns))]
    return with_row(made, place, row, rng), "refused", made.line_of(place)


def a_column_more(made: Document, rng: Random) -> Done:
    if columns_of(made) is None:
        return None
    place = rng.randrange(len(made.values))
    return with_row(made, place, [*made.values[place], "more"], rng), "refused", made.line_of(place)


def spaces_for_tabs(made: Document, rng: Random) -> Done:
    if made.format not in PLAIN or made.format.startswith("trec"):
        return None
    place = rng.randrange(len(made.records))
    made.records[place] = made.records[place].replace("\t", " ")
    return made.text().encode(), "refused", made.line_of(place)


def _replaced(made: Document, rng: Random, kinds: set[str], values: list[str]) -> Done:
    columns = columns_of(made) or ()
    places = [n for n, column in enumerate(columns) if column in kinds]
    if not places:
        return None
    place = rng.randrange(len(made.values))
    row = list(made.values[place])
    row[rng.choice(places)] = rng.choice(values)
    return with_row(made, place, row, rng), "refused", made.line_of(place)


def a_relevance_that_is_none(made: Document, rng: Random) -> Done:
    return _replaced(made, rng, {"relevance"}, ["1.5", "yes", "1e3", "٣", "0x1", "1_0", "9999999999", "-", "relevant"])


def a_score_that_is_none(made: Document, rng: Random) -> Done:
    return _replaced(made, rng, {"score"}, ["nan", "high", "1_0", "0x1", "٣", "1,5", "--1"])


def an_id_that_no_file_has(made: Document, rng: Random) -> Done:
    return None if made.format == "trec-run" else _replaced(made, rng, {"query", "passage"}, ["nowhere", "Q", "🤷"])


def an_empty_id(made: Document, rng: Random) -> Done:
    if made.format in ("beir-corpus", "beir-queries"):
        return _with_key(made, rng, "_id", ["", " ", "\u00a0"])
    return _replaced(made, rng, {"id"}, [" ", "\u00a0"])


def an_empty_question(made: Document, rng: Random) -> Done:
    if made.format == "beir-queries":
        return _with_key(made, rng, "text", ["", " ", "\n\t"])
    return _replaced(made, rng, {"question"}, [" ", "\u00a0"]) if made.format != "msmarco-triples" else None


def _with_key(made: Document, rng: Random, key: str, values: list[Any]) -> Done:
    place = rng.randrange(len(made.values))
    made.records[place] = json.dumps({**made.values[place], key: rng.choice(values)})
    return made.text().encode(), "refused", made.line_of(place)


def the_same_id_with_another_text(made: Document, rng: Random) -> Done:
    place = rng.randrange(len(made.values))
    if made.format in ("beir-corpus", "beir-queries"):
        made.records.append(json.dumps({**made.values[place], "text": "quite another text"}))
    elif made.format in ("msmarco-collection", "msmarco-queries", "dpr-passages", "passages", "queries"):
        made.records.append("")
        with_row(made, len(made.records) - 1, [made.values[place][0], "quite another", *made.values[place][2:]], rng)
    elif made.format == "msmarco-top1000":
        row = made.values[place]
        made.records.append(
            "\t".join([row[0], row[1], *(["another?", row[3]] if rng.random() < 0.5 else [row[2], "no"])])
        )
    elif made.format == "dpr-training":
        given = [context for value in made.values for key in value if key.endswith("ctxs") for context in value[key]]
        again = {**rng.choice(given), "text": "quite another text"}
        made.records.append(json.dumps({"question": "another?", "positive_ctxs": [again]}))
    elif made.format == "trec-topics":
        made.records.append(f"<top>\n<num> {made.values[place]}\n<title> quite another title\n</top>")
    else:
        return None
    return made.text().encode(), "refused", made.line_of(len(made.records) - 1)


def a_judgement_that_contradicts(made: Document, rng: Random) -> Done:
    if made.format not in ("beir-qrels", "trec-qrels", "qrels", "trec-run"):
        return None
    row = list(rng.choice(made.values))
    row[-2 if made.format == "trec-run" else -1] = "7"
    made.records.append("")
    return with_row(made, len(made.records) - 1, row, rng), "refused", made.line_of(len(made.records) - 1)


def a_key_less(made: Document, rng: Random) -> Done:
    needed = {
        "beir-corpus": ("_id", "text"),
        "beir-queries": ("_id", "text"),
        "dpr-training": ("question", "positive_ctxs"),
    }
    if made.format not in needed:
        return None
    place = rng.randrange(len(made.values))
    gone = rng.choice(needed[made.format])
    made.records[place] = json.dumps({key: value for key, value in made.values[place].items() if key != gone})
    return made.text().encode(), "refused", made.line_of(place)


def nodes(value: Any, path: tuple = ()) -> list[tuple]:
    """The path of every value inside a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, one in inner for found in [(*path, key), *nodes(one, (*path, key))]]


def another_value(made: Document, rng: Random) -> Done:
    """Any value of a JSON record becomes another, of any type."""
    if not made.values or not isinstance(made.values[0], dict):
        return None
    place = rng.randrange(len(made.values))
    record = json.loads(json.dumps(made.values[place]))
    path = rng.choice(nodes(record))
    inner = record
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = rng.choice(VALUES)
    made.records[place] = json.dumps(record)
    return made.text().encode(), "either", None


def a_string_of_another_type(made: Document, rng: Random) -> Done:
    """A string that a layout names becomes a number, a list, an object or true."""
    named = {"_id", "text", "title", "question", "context", "id", "passage_id", "psg_id"}
    if not made.values or not isinstance(made.values[0], dict):
        return None
    place = rng.randrange(len(made.values))
    record = json.loads(json.dumps(made.values[place]))
    path = rng.choice([one for one in nodes(record) if one[-1] in named and "metadata" not in one])
    inner = record
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = rng.choice([1.5, True, ["x"], {"a": 1}])
    made.records[place] = json.dumps(record)
    return made.text().encode(), "refused", None if made.format == "squad" else made.line_of(place)


def half_a_surrogate_pair(made: Document, rng: Random) -> Done:
    if not made.values or not isinstance(made.values[0], dict):
        return None
    place = rng.randrange(len(made.records))
    record = made.records[place]
    quotes = [
        n for n, sign in enumerate(record) if sign == '"' and record[n + 1 : n + 2] not in (":", ",", "]", "}", " ", "")
    ]
    start = rng.choice(quotes) + 1
    made.records[place] = record[:start] + rng.choice(["\\ud800", "\\uDFFF"]) + record[start:]
    return made.text().encode(), "either", None


def a_half_record(made: Document, rng: Random) -> Done:
    """The file ends inside a record of JSON or a topic."""
    if made.format not in ("beir-corpus", "beir-queries", "dpr-training", "squad", "trec-topics"):
        return None
    record = made.records[-1]
    made.records[-1] = record[: rng.randint(5, len(record) - 2)]
    made.last = ""
    text = made.text()
    return text.encode(), "refused", None


def an_open_topic(made: Document, rng: Random) -> Done:
    if made.format != "trec-topics":
        return None
    place = rng.randrange(len(made.records))
    kinds = [lambda text: text.removesuffix("</top>"), lambda text: text.removeprefix("<top>")]
    made.records[place] = rng.choice(kinds)(made.records[place])
    return made.text().encode(), "refused", None


def parquet_of_other_types(made: Document, rng: Random) -> Done:
    rows = [list(row) for row in made.values]
    header = list(TABLE_HEADERS[made.format])
    column = rng.randrange(len(header))
    values = rng.choice(
        [[1.5, None], [None, None], [b"x", b"y"], [["a"], []], [True, False], [{"a": 1}, {"a": 2}], [7, 8]]
    )
    for number, row in enumerate(rows):
        row[column] = values[number % 2]
    return parquet_bytes(rows, header), "either", None


def parquet_of_other_columns(made: Document, rng: Random) -> Done:
    header = list(TABLE_HEADERS[made.format])
    kind = rng.randrange(3)
    if kind == 0:
        header[rng.randrange(len(header))] = rng.choice(["x", "id", "title", "text", header[0]])
    elif kind == 1:
        rng.shuffle(header)
    return parquet_bytes(made.values, header), "either", None


def parquet_in_other_order(made: Document, rng: Random) -> Done:
    rng.shuffle(made.values)
    return parquet_bytes(made.values, TABLE_HEADERS[made.format]), "accepted", None


def parquet_as_it_is(made: Document, rng: Random) -> Done:
    return made.whole or b"", "accepted", None


def parquet_cut_off(made: Document, rng: Random) -> Done:
    data = made.whole or b""
    return data[: rng.randrange(len(data))], "refused", None


OF_PARQUET = [
    *(parquet_of_other_types, parquet_of_other_columns, parquet_in_other_order, parquet_as_it_is, parquet_cut_off),
    *(blind, blind, another_formats_file, nothing),
]
OPERATIONS = [
    *(as_it_is, carriage_returns, byte_order_mark, gzipped, no_last_line_break, blank_lines, other_order, bad_byte),
    *(utf_16, latin_1, cut_gzip, damaged_gzip, nothing, cut_off, another_formats_file, a_column_less, a_column_more),
    *(spaces_for_tabs, a_relevance_that_is_none, a_score_that_is_none, an_id_that_no_file_has, an_empty_id),
    *(an_empty_question, the_same_id_with_another_text, a_judgement_that_contradicts, a_key_less, another_value),
    *(a_string_of_another_type, half_a_surrogate_pair, a_half_record, an_open_topic),
    *([blind] * 12),
]


def case(reader: str, rng: Random) -> Case:
    """A mutated file of a reader, one of :data:`READERS`."""
    while True:
        made = document(reader, rng)
        operation = rng.choice(OPERATIONS if made.whole is None else OF_PARQUET)
        if (done := operation(made, rng)) is not None:
            data, wanted, line = done
            name = operation.__name__.replace("_", " ")
            return Case(File(made.format, made.split, made.name, data), made.beside, wanted, line, name)
