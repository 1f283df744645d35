"""Round trips: out into another format and back."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnretrieval.cli import cli
from gnnretrieval.data import Dataset
from gnnretrieval.data.beir import read_passages, read_queries
from gnnretrieval.data.converting import convert_dataset
from gnnretrieval.data.importing import import_dataset
from gnnretrieval.data.sources import source_of
from gnnretrieval.errors import ArtifactError, GnnRetrievalError
from tests.data.formats.published import published

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30).filter(lambda text: text.strip())
PLAIN = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\t\n\r"), min_size=1, max_size=30)
PLAIN = PLAIN.filter(lambda text: text.strip() and not text.startswith("\ufeff"))


def dataset_of(place: Path, passages: list[tuple[str, str]], queries: list[str]) -> Dataset:
    (place / "qrels").mkdir(parents=True)
    lines = [{"_id": f"d{n}", "title": title, "text": text} for n, (title, text) in enumerate(passages)]
    asked = [{"_id": f"q{n}", "text": text} for n, text in enumerate(queries)]
    for name, records in (("corpus", lines), ("queries", asked)):
        (place / f"{name}.jsonl").write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in records))
    judged = "".join(f"q{n}\td{n % len(passages)}\t{(n + 1) % 3}\n" for n in range(len(queries)))
    (place / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")
    return Dataset.open(place)


def back(directory: Path, out: Path, *names: str) -> Dataset:
    files = [directory / name for name in names] or [file for file in directory.iterdir() if file.name != "meta.json"]
    return Dataset.open(import_dataset([one for file in files for one in source_of(file)], out).path)


def contents(dataset: Dataset) -> tuple:
    return (
        list(read_passages(dataset.path / "corpus.jsonl")),
        list(read_queries(dataset.path / "queries.jsonl")),
        {split: dataset.split(split) for split in dataset.splits},
    )


@pytest.mark.parametrize("to", ["tsv", "csv", "parquet", "beir"])
@settings(max_examples=12, deadline=None)
@given(
    passages=st.lists(st.tuples(st.just("") | TEXT, TEXT), min_size=1, max_size=4),
    queries=st.lists(TEXT, min_size=1, max_size=4),
)
def test_tables_and_beir_come_back_whatever_the_text(to, passages, queries, tmp_path_factory):
    place = tmp_path_factory.mktemp("trip")
    before = dataset_of(place / "data", [(title.strip(), text) for title, text in passages], queries)
    made = convert_dataset(before, to, place / "files")
    after = back(made.path, place / "back") if to != "beir" else Dataset.open(made.path)
    assert contents(after) == contents(before)
    assert made.meta["lost"] == {}


@settings(max_examples=12, deadline=None)
@given(texts=st.lists(PLAIN, min_size=1, max_size=4), queries=st.lists(PLAIN, min_size=1, max_size=4))
def test_ms_marco_comes_back_where_texts_are_one_line(texts, queries, tmp_path_factory):
    place = tmp_path_factory.mktemp("trip")
    before = dataset_of(place / "data", [("", text) for text in texts], queries)
    made = convert_dataset(before, "msmarco", place / "files")
    assert contents(back(made.path, place / "back")) == contents(before)
    assert made.meta["lost"] == {}
    again = convert_dataset(Dataset.open(place / "back"), "msmarco", place / "again")
    assert again.meta["files"] == made.meta["files"]  # the same bytes


def test_what_ms_marco_cannot_hold_is_counted(tmp_path, said):
    before = dataset_of(tmp_path / "data", [("Title", "two\nlines"), ("", "one\ttab")], ["a\rb"])
    made = convert_dataset(before, "msmarco", tmp_path / "files")
    assert (made.path / "collection.tsv").read_text() == "d0\tTitle. two lines\nd1\tone tab\n"
    assert made.meta["lost"] == {"titles apart from texts": 1, "tabs and line breaks in texts (spaces now)": 3}
    assert "msmarco cannot hold titles apart from texts: 1" in said


@settings(max_examples=12, deadline=None)
@given(
    passages=st.lists(st.tuples(st.just("") | TEXT, TEXT), min_size=1, max_size=4),
    queries=st.lists(TEXT, min_size=1, max_size=4),
)
def test_dpr_comes_back_but_for_the_ids_of_queries(passages, queries, tmp_path_factory):
    place = tmp_path_factory.mktemp("trip")
    before = dataset_of(place / "data", [(title.strip(), text) for title, text in passages], queries)
    made = convert_dataset(before, "dpr", place / "files")
    after = back(made.path, place / "back")
    assert contents(after)[0] == contents(before)[0]
    assert [query.text for query in after.queries()] == [query.text for query in before.queries()]
    relevant = [[p for p, value in judged.items() if value > 0] for judged in before.split("test").values()]
    if after.splits:
        found = {query: list(judged) for query, judged in after.split("test").items()}
        assert [found.get(f"test-{number}", []) for number in range(len(queries))] == relevant
    assert made.meta["lost"]["ids of queries"] == len(queries)


@pytest.mark.parametrize(
    ("formats", "to"),
    [
        (("msmarco-collection", "msmarco-queries", "trec-qrels", "msmarco-id-triples"), "msmarco"),
        (("dpr-passages", "dpr-training"), "dpr"),
    ],
)
def test_a_published_set_is_the_same_after_another_round(formats, to, tmp_path):
    files = [published(format_, tmp_path) for format_ in formats]
    first = import_dataset([one for file in files for one in source_of(file)], tmp_path / "first")
    out = convert_dataset(Dataset.open(first.path), to, tmp_path / "out")
    second = back(out.path, tmp_path / "second")
    assert contents(second) == contents(Dataset.open(first.path))
    for split in second.splits:
        name = f"negatives/{split}.tsv"
        if (first.path / name).is_file() and to == "dpr":
            assert (second.path / name).read_text() == (first.path / name).read_text()
    again = convert_dataset(second, to, tmp_path / "again")
    assert again.meta["files"] == out.meta["files"]


def test_squad_keeps_questions_and_spans(tmp_path):
    first = import_dataset(source_of(published("squad", tmp_path)), tmp_path / "first")
    out = convert_dataset(Dataset.open(first.path), "squad", tmp_path / "out")
    assert out.meta["lost"]["queries without a relevant passage"] == 1
    second = back(out.path, tmp_path / "second")
    before, after = contents(Dataset.open(first.path)), contents(second)
    assert after[0] == before[0]
    assert after[1] == before[1][:1]
    assert after[2] == before[2]
    plain = dataset_of(tmp_path / "plain", [("", "text")], ["what?", "who?"])
    with pytest.raises(GnnRetrievalError, match="'q0' has no answers with answer_starts"):
        convert_dataset(plain, "squad", tmp_path / "none")


def test_trecs_topics_and_qrels_come_back_with_their_documents(tmp_path):
    (tmp_path / "documents").mkdir()
    documents = tmp_path / "documents" / "corpus.jsonl"
    documents.write_text("".join(f'{{"_id": "FBIS3-{n}", "title": "", "text": "text"}}\n' for n in (10082, 10169)))
    judged = tmp_path / "qrels.test.txt"
    judged.write_text("301 0 FBIS3-10082 1\n301 0 FBIS3-10169 0\n302 0 FBIS3-10082 -1\n")
    given_files = [documents, published("trec-topics", tmp_path), judged]
    first = import_dataset([one for file in given_files for one in source_of(file)], tmp_path / "first")
    out = convert_dataset(Dataset.open(first.path), "trec", tmp_path / "out")
    assert (out.path / "qrels.test.txt").read_text() == judged.read_text()
    files = [documents, out.path / "topics.test.txt", out.path / "qrels.test.txt"]
    second = import_dataset([one for file in files for one in source_of(file)], tmp_path / "second")
    assert contents(Dataset.open(second.path)) == contents(Dataset.open(first.path))


def test_the_command(tiny_dataset, tmp_path):
    made = CliRunner().invoke(
        cli, ["data", "convert", str(tiny_dataset), "--to", "csv", "--out", str(tmp_path / "out")]
    )
    assert made.exit_code == 0, made.output
    assert "passages.csv, qrels.dev.csv, qrels.test.csv, qrels.train.csv, queries.csv" in made.output


@pytest.mark.parametrize(
    ("to", "lost"),
    [
        ("beir", {"negatives": 5}),
        ("tsv", {"negatives": 5}),
        ("trec", {"negatives": 5, "passages": 3}),
        ("dpr", {"negatives": 2, "kinds of negatives": 2, "ids of queries": 2, "judgements of 0": 1}),
        ("msmarco", {"negatives": 3, "kinds of negatives": 1}),
    ],
)
def test_negatives_that_a_format_cannot_hold_are_counted(to, lost, tmp_path):
    dataset = dataset_of(tmp_path / "data", [("", "one"), ("", "two"), ("", "three")], ["what", "who"])
    (tmp_path / "data" / "qrels" / "test.tsv").write_text("q0\td0\t1\nq1\td1\t0\n")
    folder = tmp_path / "data" / "negatives"
    folder.mkdir()
    (folder / "test.tsv").write_text("q0\td1\ttriple\nq0\td2\tcandidate\nq1\td2\tnegative\n")
    (folder / "train.tsv").write_text("q1\td0\ttriple\nq1\td2\ttriple\n")  # a split without judgements
    dataset = Dataset.open(dataset.path)
    assert convert_dataset(dataset, to, tmp_path / "files").meta["lost"] == lost


def test_files_of_other_negatives_are_not_reused(tmp_path):
    dataset = dataset_of(tmp_path / "data", [("", "one"), ("", "two")], ["what"])
    negatives = tmp_path / "data" / "negatives" / "test.tsv"
    negatives.parent.mkdir()
    negatives.write_text("q0\td1\tnegative\n")
    convert_dataset(dataset, "dpr", tmp_path / "files")
    negatives.write_text("q0\td1\thard_negative\n")
    with pytest.raises(ArtifactError, match="its negatives changed"):
        convert_dataset(Dataset.open(tmp_path / "data"), "dpr", tmp_path / "files")


@pytest.mark.parametrize("to", ["dpr", "msmarco"])
def test_negatives_that_a_filter_leaves_out_are_left_out_of_the_files_too(to, tmp_path):
    dataset_of(tmp_path / "data", [("", "one"), ("", "two"), ("", "three")], ["what"])
    languages = ("en", "de", "en")
    for name in ("corpus", "queries"):
        file = tmp_path / "data" / f"{name}.jsonl"
        lines = zip(map(json.loads, file.read_text().splitlines()), languages, strict=False)
        file.write_text("".join(json.dumps({**one, "metadata": {"lang": lang}}) + "\n" for one, lang in lines))
    (tmp_path / "data" / "negatives").mkdir()
    negatives = "".join(f"q0\t{passage}\thard_negative\n" for passage in ("d1", "d2"))
    (tmp_path / "data" / "negatives" / "test.tsv").write_text(negatives)
    made = convert_dataset(Dataset.open(tmp_path / "data", where={"lang": "en"}), to, tmp_path / "files")
    if to == "msmarco":
        assert (made.path / "qidpidtriples.test.tsv").read_text() == "q0\td0\td2\n"
    else:
        (question,) = json.loads((made.path / "biencoder-test.json").read_text())
        assert [passage["passage_id"] for passage in question["hard_negative_ctxs"]] == ["d2"]
