"""Any dataset, out into each format and in again: the same, or different as docs/formats.md says, and then the same."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gnnretrieval.data import Dataset
from gnnretrieval.data.beir import read_passages, read_queries
from gnnretrieval.data.converting import convert_dataset
from gnnretrieval.data.importing import import_dataset
from gnnretrieval.data.sources import source_of
from gnnretrieval.errors import GnnRetrievalError, InputError

# Lone surrogates are no characters, and refused by every reader.
CHARACTERS = st.characters(exclude_categories=["Cs"])
PIECES = st.sampled_from(
    [
        *('"', '""', "'", "\\", "\t", "\n", "\r", "\r\n", "\0", "\ufeff", "\u2028", "\x85", "\x1f", ",", "[", "</top>"),
        *(
            "<top>",
            "<desc> x",
            "Topic: ",
            "Number: 3",
            " </title>",
            "👩\u200d🔬",
            "\u202eעברית",
            "מזל",
            "\\ud800",
            "_",
            "NaN",
        ),
    ]
)
TEXT = st.lists(st.text(CHARACTERS, max_size=6) | PIECES | st.just("word"), min_size=1, max_size=5).map("".join)
TEXT = TEXT.filter(lambda text: text.strip())
IDS = st.text(CHARACTERS, min_size=1, max_size=4).filter(
    lambda id_: id_.strip() == id_ and not set(id_) & set("\t\n\r")
)
PLAIN_IDS = IDS.filter(lambda id_: not re.search(r"[\s\0\ufeff]", id_))
VALUES = st.recursive(
    TEXT
    | st.integers(-(10**12), 10**12)
    | st.booleans()
    | st.none()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=2),
    max_leaves=3,
)
KEYS = st.sampled_from(["id", "text", "Title", "query", "qid", "year", "Year", " year", "relevance", "docid"]) | TEXT
METADATA = st.dictionaries(KEYS, VALUES, max_size=3)


@st.composite
def datasets(draw, ids=IDS, spans=False):
    """Passages, queries, judgements of two splits, and negatives."""
    passages = [
        {"_id": id_, "title": draw(st.just("") | TEXT.map(str.strip)), "text": draw(TEXT), "metadata": draw(METADATA)}
        for id_ in draw(st.lists(ids, min_size=2, max_size=4, unique=True))
    ]
    queries, judged, negatives = [], {"train": [], "test": []}, []
    for number, id_ in enumerate(draw(st.lists(ids, min_size=2, max_size=4, unique=True))):
        split = "train" if number % 2 else "test"
        relevant = draw(st.sampled_from(passages))
        metadata = draw(METADATA)
        metadata.pop("is_impossible", None)
        answers = [relevant["text"][start : start + 3] for start in range(draw(st.integers(int(spans), 2)))]
        if answers:
            metadata |= {"answers": answers, "answer_starts": list(range(len(answers)))}
        queries.append({"_id": id_, "text": draw(TEXT), "metadata": metadata})
        judged[split].append((id_, relevant["_id"], draw(st.sampled_from([1, 1, 2]))))
        others = [one["_id"] for one in passages if one is not relevant]
        if draw(st.booleans()) and not spans:
            judged[split].append((id_, others[0], draw(st.sampled_from([0, 1]))))
        kind = draw(st.sampled_from(["negative", "hard_negative"]))
        if draw(st.booleans()):
            negatives.append((split, id_, others[-1], kind))
    return passages, queries, judged, negatives


def written(place: Path, drawn: tuple) -> Dataset:
    passages, queries, judged, negatives = drawn
    for folder in ("qrels", "negatives"):
        (place / folder).mkdir(parents=True)
    for name, records in (("corpus", passages), ("queries", queries)):
        lines = [json.dumps(one if one["metadata"] else {**one, "metadata": None}) + "\n" for one in records]
        (place / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    for split, rows in judged.items():
        text = "".join(f"{query}\t{passage}\t{value}\n" for query, passage, value in rows)
        (place / "qrels" / f"{split}.tsv").write_bytes(f"query-id\tcorpus-id\tscore\n{text}".encode())
    for split in {row[0] for row in negatives}:
        text = "".join("\t".join(row[1:]) + "\n" for row in negatives if row[0] == split)
        (place / "negatives" / f"{split}.tsv").write_bytes(text.encode())
    return Dataset.open(place)


def back(directory: Path, out: Path, *others: Path) -> Dataset:
    files = [*others, *(file for file in sorted(directory.iterdir()) if file.name != "meta.json")]
    return Dataset.open(import_dataset([one for file in files for one in source_of(file)], out).path)


def passages_of(dataset: Dataset) -> list[tuple]:
    return [(one.id, one.title, one.text, dict(of)) for one, of in read_passages(dataset.path / "corpus.jsonl")]


def queries_of(dataset: Dataset) -> list[tuple]:
    return [(one.id, one.text, dict(of)) for one, of in read_queries(dataset.path / "queries.jsonl")]


def judged_of(dataset: Dataset) -> dict:
    return {split: dataset.split(split) for split in dataset.splits}


def negatives_of(dataset: Dataset) -> dict:
    folder = dataset.path / "negatives"
    return {file.stem: sorted(file.read_bytes().decode().split("\n")[:-1]) for file in sorted(folder.glob("*.tsv"))}


def round_trip(drawn: tuple, to: str, place: Path, *others: Path):
    """The dataset, what came back of it, and what was lost; a second round must write the same bytes."""
    before = written(place / "data", drawn)
    made = convert_dataset(before, to, place / "files")
    after = back(made.path, place / "back", *others) if to != "beir" else Dataset.open(made.path)
    again = convert_dataset(after, to, place / "again")
    if to in ("beir", "tsv", "csv", "parquet", "msmarco", "trec"):
        assert again.meta["files"] == made.meta["files"]
    return before, after, made.meta["lost"]


def as_cells(metadata: dict) -> dict:
    """Metadata as a table holds it, with the names that it has there left aside."""
    values = {
        key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for key, value in metadata.items()
    }
    if "answers" in metadata:
        values["answers"] = metadata["answers"]
    return values


SMALL = settings(max_examples=12, deadline=None)
LONG = "x" * 10**6
ONE = (
    [
        {"_id": "a b", "title": "T_1", "text": f'one "{LONG}"\r\n\0\ttwo', "metadata": {"id": "other", "text": "no"}},
        {"_id": "c", "title": "", "text": "\ufeffbom", "metadata": {"Year": "1", "year": 2, " year": None}},
    ],
    [
        {"_id": "q", "text": LONG, "metadata": {"qid": "7", "answers": ["one"], "answer_starts": [0]}},
        {"_id": "r", "text": "</top>", "metadata": {"answers": ["\ufeff"], "answer_starts": [0]}},
    ],
    {"train": [("r", "c", 2)], "test": [("q", "a b", 1)]},
    [("train", "r", "a b", "hard_negative")],
)


@SMALL
@given(datasets())
@example(ONE)
def test_beir_keeps_all_but_negatives(tmp_path_factory, drawn):
    before, after, lost = round_trip(drawn, "beir", tmp_path_factory.mktemp("trip"))
    assert passages_of(after) == passages_of(before)
    assert queries_of(after) == queries_of(before)
    assert judged_of(after) == judged_of(before)
    assert lost == ({"negatives": len(drawn[3])} if drawn[3] else {})


@pytest.mark.parametrize("to", ["tsv", "csv", "parquet"])
@SMALL
@given(drawn=datasets())
@example(drawn=ONE)
def test_tables_keep_ids_texts_and_judgements_and_metadata_as_text(to, drawn, tmp_path_factory):
    before, after, lost = round_trip(drawn, to, tmp_path_factory.mktemp("trip"))
    assert [one[:3] for one in passages_of(after)] == [one[:3] for one in passages_of(before)]
    assert [one[:2] for one in queries_of(after)] == [one[:2] for one in queries_of(before)]
    assert judged_of(after) == judged_of(before)
    for mine, theirs in ((passages_of(before), passages_of(after)), (queries_of(before), queries_of(after))):
        for (*_, was), (*_, now) in zip(mine, theirs, strict=True):
            assert sorted(map(str, as_cells(was).values())) == sorted(map(str, now.values()))
            assert was.keys() == now.keys() or lost["names of metadata"] > 0
    assert lost.keys() <= {"negatives", "names of metadata"}


def one_line(text: str) -> str:
    return re.sub(r"[\t\n\r]", " ", text)


@SMALL
@given(datasets(ids=PLAIN_IDS))
def test_ms_marco_keeps_ids_judgements_and_one_line_a_text(tmp_path_factory, drawn):
    before, after, lost = round_trip(drawn, "msmarco", tmp_path_factory.mktemp("trip"))
    full = {id_: one_line(f"{title}. {text}" if title else text) for id_, title, text, _ in passages_of(before)}
    assert passages_of(after) == [(id_, "", text, {}) for id_, text in full.items()]
    assert {id_: text for id_, text, _ in queries_of(after)} == {id_: one_line(t) for id_, t, _ in queries_of(before)}
    assert judged_of(after) == judged_of(before)
    assert bool(lost.get("titles apart from texts")) == any(title for _, title, _, _ in passages_of(before))
    negatives = {f"{query}\t{passage}\ttriple" for _, query, passage, _ in drawn[3]}
    assert {row for rows in negatives_of(after).values() for row in rows} == negatives


@SMALL
@given(datasets())
@example(ONE)
def test_dpr_keeps_passages_answers_positives_and_negatives(tmp_path_factory, drawn):
    before, after, lost = round_trip(drawn, "dpr", tmp_path_factory.mktemp("trip"))
    assert [one[:3] for one in passages_of(after)] == [one[:3] for one in passages_of(before)]
    asked = {id_: (text, of.get("answers", [])) for id_, text, of in queries_of(before)}
    found = {id_: (text, of.get("answers", [])) for id_, text, of in queries_of(after)}
    negatives = {split: [row[1:] for row in drawn[3] if row[0] == split] for split in before.splits}
    for split in before.splits:
        for number, (query, judged) in enumerate(before.split(split).items()):
            theirs = f"{split}-{number}"
            assert found[theirs] == asked[query]
            assert after.split(split)[theirs] == {passage: 1 for passage, value in judged.items() if value > 0}
            mine = sorted("\t".join((theirs, *row[1:])) for row in negatives[split] if row[0] == query)
            assert mine == [row for row in negatives_of(after).get(split, []) if row.startswith(f"{theirs}\t")]
    assert lost["ids of queries"] == len(drawn[1])


@SMALL
@given(datasets(spans=True))
@example(ONE)
def test_squad_keeps_questions_spans_titles_and_texts(tmp_path_factory, drawn):
    place = tmp_path_factory.mktemp("trip")
    before, after, lost = round_trip(drawn, "squad", place)
    theirs = {id_: (title, text) for id_, title, text, _ in passages_of(after)}
    mine = {id_: (title.replace("_", " ").strip(), text) for id_, title, text, _ in passages_of(before)}
    assert set(theirs.values()) == set(mine.values())
    kept = {"answers", "answer_starts"}
    assert {id_: (text, of) for id_, text, of in queries_of(after)} == {
        id_: (text, {key: of[key] for key in kept}) for id_, text, of in queries_of(before)
    }
    for split in before.splits:
        for query, judged in before.split(split).items():
            first = next(passage for passage, value in judged.items() if value > 0)
            assert [theirs[passage] for passage in after.split(split)[query]] == [mine[first]]
    assert lost["ids of passages"] == len(drawn[0])


@SMALL
@given(datasets(ids=PLAIN_IDS))
def test_trec_keeps_topics_and_judgements(tmp_path_factory, drawn):
    place = tmp_path_factory.mktemp("trip")
    for number, query in enumerate(drawn[1]):
        said = {"description": query["text"][::-1], "narrative": "Narrative: <title> x </narr>"}
        query["metadata"] = said if number else {}
    before = written(place / "data", drawn)
    made = convert_dataset(before, "trec", place / "files")
    after = back(made.path, place / "back", place / "data" / "corpus.jsonl")
    assert made.meta["files"] == convert_dataset(after, "trec", place / "again").meta["files"]
    assert passages_of(after) == passages_of(before)
    assert judged_of(after) == judged_of(before)
    found = {id_: (text, of) for id_, text, of in queries_of(after)}
    for id_, text, of in queries_of(before):
        assert found[id_] == (one_line(text).strip(), {key: one_line(value).strip() for key, value in of.items()})


@pytest.mark.parametrize("to", ["msmarco", "trec"])
@pytest.mark.parametrize("id_", ["a b", "a\u00a0b", "a\0", "\ufeffa"])
def test_ids_that_no_trec_file_can_hold_are_refused(to, id_, tmp_path):
    drawn = ([{"_id": id_, "title": "", "text": "x", "metadata": {}}], [{"_id": "q", "text": "x", "metadata": {}}])
    dataset = written(tmp_path / "data", (*drawn, {"test": [("q", id_, 1)]}, []))
    with pytest.raises(InputError, match="cannot go into a TREC file"):
        convert_dataset(dataset, to, tmp_path / "files")
    assert not (tmp_path / "files").exists()


def test_white_space_around_ids_is_counted(tmp_path):
    drawn = ([{"_id": " p", "title": "", "text": "x", "metadata": {}}], [{"_id": "q ", "text": "x", "metadata": {}}])
    dataset = written(tmp_path / "data", (*drawn, {"test": [("q ", " p", 1)]}, []))
    made = convert_dataset(dataset, "csv", tmp_path / "files")
    assert made.meta["lost"] == {"white space around ids": 2}
    assert judged_of(back(made.path, tmp_path / "back")) == {"test": {"q": {"p": 1}}}


def test_questions_without_judgements_come_back_from_dprs_files(tmp_path):
    drawn = (
        [{"_id": "p", "title": "", "text": "x", "metadata": {}}],
        [{"_id": id_, "text": f"{id_}?", "metadata": {"answers": ["a", "b\n"]}} for id_ in ("q", "r", "s")],
    )
    dataset = written(tmp_path / "data", (*drawn, {"test": [("q", "p", 1)]}, []))
    after = back(convert_dataset(dataset, "dpr", tmp_path / "files").path, tmp_path / "back")
    assert sorted(queries_of(after)) == [
        ("test-0", "q?", {"answers": ["a", "b\n"]}),
        ("unjudged-0", "r?", {"answers": ["a", "b\n"]}),
        ("unjudged-1", "s?", {"answers": ["a", "b\n"]}),
    ]


@pytest.mark.parametrize("starts", [[-1], [2], ["0"]])
def test_spans_that_lie_nowhere_are_refused(starts, tmp_path):
    drawn = (
        [{"_id": "p", "title": "", "text": "x", "metadata": {}}],
        [{"_id": "q", "text": "?", "metadata": {"answers": ["x"], "answer_starts": starts}}],
    )
    dataset = written(tmp_path / "data", (*drawn, {"test": [("q", "p", 1)]}, []))
    with pytest.raises(GnnRetrievalError, match=r"'q' has answer_starts .* inside its passage 'p' of 1 char"):
        convert_dataset(dataset, "squad", tmp_path / "files")
