"""Files of every format into a dataset directory."""

import json
import re
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from click.testing import CliRunner

from gnnretrieval.cli import cli
from gnnretrieval.data import Dataset
from gnnretrieval.data.importing import import_dataset
from gnnretrieval.data.sources import source_of
from gnnretrieval.errors import ArtifactError, InputError
from tests.data.formats.published import PARAGRAPHS, published


def sources(*texts) -> list:
    return [one for text in texts for one in source_of(text)]


def imported(directory: Path, *formats: str, **options):
    files = [published(format_, directory) for format_ in formats]
    return import_dataset(sources(*files), directory / "out", **options)


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_ms_marco(tmp_path):
    # Given in any order: judgements are read last.
    made = imported(tmp_path, "trec-qrels", "msmarco-id-triples", "msmarco-queries", "msmarco-collection")
    dataset = Dataset.open(made.path)
    assert dataset.passage_ids == ["0", "1", "7"]
    assert dataset.split("dev") == {"121352": {"7": 1}, "634306": {"1": 1}}
    assert dataset.split("train") == {"121352": {"7": 1}, "634306": {"1": 1}}
    assert (
        made.path / "negatives" / "train.tsv"
    ).read_text() == "121352\t0\ttriple\n121352\t1\ttriple\n634306\t7\ttriple\n"
    assert made.meta["counts"]["left_out"]["repeated_judgements"] == 1
    assert made.meta["counts"]["judgements"] == {"dev": 2, "train": 2}


def test_dpr_with_its_passages_and_without(tmp_path):
    made = imported(tmp_path, "dpr-training", "dpr-qa", "dpr-passages")
    dataset = Dataset.open(made.path)
    assert dataset.passage_ids == ["1", "2", "3", "18768923", "2145653", "8923"]
    texts = {passage.id: passage.text for passage in dataset.passages()}
    assert texts["1"].startswith("Aaron Aaron (")  # the file of passages is what counts
    assert texts["3"] == 'a line\nbreak and a "quote"'
    assert dataset.split("dev") == {"dev-0": {"18768923": 1}, "dev-1": {"1": 1}}
    assert [query.id for query in dataset.queries()] == ["test-0", "test-1", "dev-0", "dev-1"]
    lines = [json.loads(line) for line in (made.path / "queries.jsonl").read_text().splitlines()]
    assert lines[2]["metadata"] == {"answers": ["seven"]}


def test_squad(tmp_path):
    dataset = Dataset.open(imported(tmp_path, "squad").path)
    assert dataset.split("dev") == {"56be4db0acb8001400a502ec": {PARAGRAPHS[0]: 1}}
    assert len(dataset.query_ids) == 2  # the question without an answer is unjudged


def test_one_title_in_two_files_keeps_every_paragraph_and_question(tmp_path):
    def article(context: str, id_: str) -> str:
        question = {"id": id_, "question": f"{id_}?", "answers": [{"text": context[:3], "answer_start": 0}]}
        return json.dumps({"data": [{"title": "T", "paragraphs": [{"context": context, "qas": [question]}]}]})

    texts_of = {"train": "one", "dev": "two"}
    files = [write(tmp_path / f"{split}-v1.1.json", article(text, split)) for split, text in texts_of.items()]
    dataset = Dataset.open(import_dataset(sources(*files), tmp_path / "out").path)
    texts = {passage.id: passage.text for passage in dataset.passages()}
    assert [texts[next(iter(dataset.split(split)[split]))] for split in ("train", "dev")] == ["one", "two"]


def test_a_passage_that_comes_again_with_another_text_is_refused(tmp_path):
    contexts = [{"title": "", "text": text, "passage_id": "1"} for text in ("one", "two")]
    records = [{"question": f"{n}?", "positive_ctxs": [context]} for n, context in enumerate(contexts)]
    path = write(tmp_path / "nq-train.json", json.dumps(records))
    with pytest.raises(InputError, match="passage '1' is repeated with another text"):
        import_dataset(sources(path), tmp_path / "out")


def test_a_beir_directory_comes_back_as_it_was(tiny_dataset, tmp_path):
    made = import_dataset(sources(tiny_dataset), tmp_path / "out")
    for name in ("corpus.jsonl", "queries.jsonl", "qrels/train.tsv", "qrels/dev.tsv", "qrels/test.tsv"):
        assert (made.path / name).read_bytes() == (tiny_dataset / name).read_bytes()
    assert Dataset.open(made.path).hash == Dataset.open(tiny_dataset).hash


def test_tables_with_columns_of_other_names(tmp_path):
    docs = write(tmp_path / "docs.csv", "key,prose,colour\nd1,one,red\nd2,two,\n")
    asked = write(tmp_path / "questions.csv", "key,prose\nq1,what?\n")
    clicks = write(tmp_path / "clicks.train.csv", "qid,pid,label\nq1,d1,1\n")
    with pytest.raises(InputError, match="columns key, prose, colour do not identify the table"):
        sources(docs)
    given = sources(f"passages={docs}", f"queries={asked}", clicks)
    made = import_dataset(given, tmp_path / "out", columns={"id": "key", "text": "prose"})
    assert Dataset.open(made.path).passage_ids == ["d1", "d2"]
    assert Dataset.open(made.path).split("train") == {"q1": {"d1": 1}}
    with pytest.raises(InputError, match="a table has no field 'body'"):
        import_dataset(given, tmp_path / "other", columns={"body": "prose"})
    usual = write(tmp_path / "usual.csv", "qid,question\nq1,what?\n")
    mixed = sources(f"passages={docs}", f"queries={usual}", clicks)
    with pytest.raises(InputError, match=r"wanted one called prose\. Present: .* --column queries\.text=NAME"):
        import_dataset(mixed, tmp_path / "mixed", columns={"id": "key", "text": "prose", "queries.id": "qid"})
    names = {"passages.id": "key", "passages.text": "prose"}
    assert Dataset.open(import_dataset(mixed, tmp_path / "mixed", columns=names).path).query_ids == ["q1"]


def test_csv_files_of_spreadsheets_and_of_pandas(tmp_path):
    semicolons = write(tmp_path / "docs.csv", "id;text\nd1;one\n")
    with pytest.raises(InputError, match="separated by semicolons: save it with commas"):
        sources(semicolons)
    docs, asked = (
        write(tmp_path / "d.csv", 'id,text,title\nd1,"one, and more",\n'),
        write(tmp_path / "q.csv", "qid,question\nq1,what?\n"),
    )
    clicks = write(tmp_path / "clicks.train.csv", "qid,pid,label\nq1,d1,1.0\n")
    made = import_dataset(sources(docs, asked, clicks), tmp_path / "out")
    assert Dataset.open(made.path).split("train") == {"q1": {"d1": 1}}


def test_dates_and_decimal_numbers_of_parquet_become_text_and_other_values_are_named(tmp_path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    asked = write(tmp_path / "q.csv", "qid,question\nq1,what?\n")
    columns = {"id": [1], "text": ["one"], "when": [datetime(2024, 5, 1, 12)], "days": [[date(2024, 5, 1)]]}
    docs = tmp_path / "d.parquet"
    parquet.write_table(pyarrow.table({**columns, "price": [Decimal("1.50")]}), docs)
    made = import_dataset(sources(docs, asked), tmp_path / "out")
    (line,) = (made.path / "corpus.jsonl").read_text().splitlines()
    assert json.loads(line)["metadata"] == {"when": "2024-05-01T12:00:00", "days": ["2024-05-01"], "price": "1.50"}
    parquet.write_table(pyarrow.table({**columns, "page": [b"<html>"]}), docs)
    with pytest.raises(InputError, match=r"d\.parquet:1: metadata 'page' of '1', b'<html>', cannot be written as JSON"):
        import_dataset(sources(docs, asked), tmp_path / "other")


def test_a_row_without_an_id_is_called_by_its_kind(tmp_path):
    docs = write(tmp_path / "d.csv", "id,text\n1,one\n,two\n")
    with pytest.raises(InputError, match=r"d\.csv:3: this passage has an empty id"):
        import_dataset(sources(docs), tmp_path / "out")


def test_the_case_of_a_file_s_ending_does_not_matter(tmp_path):
    docs, asked = (
        write(tmp_path / "DOCS.CSV", "id,text\nd1,one\n"),
        write(tmp_path / "Q.TSV", "qid\tquestion\nq\twhat?\n"),
    )
    clicks = write(tmp_path / "train.Csv", "qid,pid,label\nq,d1,1\n")
    assert Dataset.open(import_dataset(sources(docs, asked, clicks), tmp_path / "out").path).splits == ["train"]


def test_the_format_and_the_split_can_be_said(tmp_path):
    odd = write(tmp_path / "judged", "q1 0 d1 1\n")
    with pytest.raises(InputError, match=r"does not name a split.*write trec-qrels@SPLIT="):
        sources(odd)
    assert sources(f"@test={odd}")[0][1:] == ("trec-qrels", "test")
    assert sources(f"trec-qrels@mine={odd}")[0].split == "mine"
    with pytest.raises(InputError, match=r"no format 'trec-qrel'. Did you mean 'trec-qrels'\?"):
        sources(f"trec-qrel@test={odd}")
    with pytest.raises(InputError, match=r"split '\.\./up'"):
        sources(f"trec-qrels@../up={odd}")
    with pytest.raises(InputError, match="no such file"):
        sources(tmp_path / "nothing.tsv")


def test_of_a_directory_what_is_recognised_is_taken_and_what_has_no_split_is_named(tmp_path, said):
    published("msmarco-collection", tmp_path)
    published("msmarco-queries", tmp_path, zipped=True)
    published("trec-qrels", tmp_path)
    write(tmp_path / "README.md", "# Read me\n")
    assert [one.format for one in sources(tmp_path)] == ["msmarco-collection", "trec-qrels", "msmarco-queries"]
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match="no file in this directory"):
        sources(tmp_path / "none")
    write(tmp_path / "qrels.hard.tsv", "1\t0\t1\t1\n")
    write(tmp_path / "meta.json", "{}\n")
    assert len(sources(tmp_path)) == 3
    (line,) = said
    assert re.search(r"qrels\.hard\.tsv: left out, .* does not name a split .* write trec-qrels@SPLIT=.* too", line)
    with pytest.raises(InputError, match="'@test' goes with one file, and this is a directory: name its files"):
        sources(f"@test={tmp_path}")  # the files' own names decided, and nothing was said


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"collection.tsv": "1\ta\n1\tb\n"}, r"collection.tsv:2: passage id '1' is repeated"),
        ({"queries.tsv": "1\ta\n2\tb\n1\tc\n"}, r"queries.tsv:3: query '1' is repeated with another text"),
        ({"queries.tsv": "1\t \n"}, r"queries.tsv:1: query '1' has an empty text"),
        ({"qrels.dev.tsv": "1\t0\t9\t1\n"}, r"qrels.dev.tsv:1: there is no passage '9'.*--skip-unknown"),
        ({"qrels.dev.tsv": "9\t0\t1\t1\n"}, r"qrels.dev.tsv:1: there is no query '9'"),
        ({"qrels.dev.tsv": "1\t0\t1\t1\n1\t0\t1\t0\n"}, r"qrels.dev.tsv:2: .* are judged 0 here, and 1 before"),
    ],
)
def test_what_contradicts_itself_is_refused(files, said, tmp_path):
    whole = {"collection.tsv": "1\ta\n", "queries.tsv": "1\tq\n", "qrels.dev.tsv": "1\t0\t1\t1\n", **files}
    paths = [write(tmp_path / name, text) for name, text in whole.items()]
    with pytest.raises(InputError, match=said):
        import_dataset(sources(*paths), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_judgement_says_how_relevant_a_passage_is_that_a_training_file_only_implies(tmp_path):
    training = [
        {"question": "?", "positive_ctxs": [{"text": "a", "passage_id": "1"}, {"text": "b", "passage_id": "2"}]}
    ]
    files = [
        write(tmp_path / "nq-train.json", json.dumps(training)),
        write(tmp_path / "qrels.train.tsv", "train-0\t0\t2\t3\n"),
        write(tmp_path / "qidpidtriples.train.tsv", "train-0\t2\t1\n"),
    ]
    dataset = Dataset.open(import_dataset(sources(*files), tmp_path / "out").path)
    assert dataset.split("train") == {"train-0": {"1": 1, "2": 3}}
    write(files[1], "train-0\t0\t2\t0\n")
    with pytest.raises(InputError, match=r"qrels.train.tsv:1: .* are judged 0 here, and 1 before"):
        import_dataset(sources(*files), tmp_path / "contradiction")


@pytest.mark.parametrize(
    ("name", "text", "format_"),
    [
        ("collection.tsv", "17\tworld war 2\n", "msmarco-collection"),
        ("queries.tsv", "17\tworld war 2\n", "msmarco-queries"),
        ("collection.tsv", "{1\ta text\n", "msmarco-collection"),
        ("qidpidtriples.train.tsv", "q1\tp1\tp2\n", "msmarco-id-triples"),
        ("triples.train.small.tsv", "what\tone\t2\n", "msmarco-triples"),
        ("qrels.train.tsv", "17\t0\t3\t1\n", "trec-qrels"),
    ],
)
def test_what_looks_like_another_format_is_not_taken_for_it(name, text, format_, tmp_path):
    assert source_of(f"@train={write(tmp_path / name, text)}")[0].format == format_


def test_what_is_left_out_is_counted_and_said(tmp_path, said):
    write(tmp_path / "corpus.jsonl", '{"_id": "a", "text": "x"}\n{"_id": "b", "text": " "}\n')
    write(tmp_path / "queries.jsonl", '{"_id": "q", "text": "x?"}\n')
    (tmp_path / "qrels").mkdir()
    write(tmp_path / "qrels" / "test.tsv", "q\ta\t1\nq\tb\t1\nq\tc\t1\nother\ta\t1\n")
    made = import_dataset(sources(tmp_path), tmp_path / "out", skip_unknown=True)
    assert Dataset.open(made.path).split("test") == {"q": {"a": 1}}
    assert made.meta["counts"]["passages"] == 1
    assert "left out: passages with neither title nor text (1)" in said
    assert "left out: judgements and negatives of unknown queries or passages (2)" in said


def test_a_dataset_needs_passages_and_queries(tmp_path, said):
    with pytest.raises(InputError, match=r"none of these files has queries \(collection.tsv\)"):
        imported(tmp_path, "msmarco-collection")
    imported(tmp_path, "msmarco-collection", "msmarco-queries")
    assert "no judgements: add qrels before you build a graph from this dataset" in said


def test_it_is_made_once_and_again_when_a_source_changes(tmp_path, said):
    formats = ("msmarco-collection", "msmarco-queries", "trec-qrels")
    first = imported(tmp_path, *formats)
    assert imported(tmp_path, *formats).hash == first.hash
    assert "already made" in said[-1]
    with (tmp_path / "collection.tsv").open("a") as file:
        file.write("8\tmore\n")
    files = [tmp_path / "collection.tsv", tmp_path / "queries.train.tsv", tmp_path / "qrels.dev.small.tsv"]
    with pytest.raises(ArtifactError, match=r"collection\.tsv changed"):
        import_dataset(sources(*files), tmp_path / "out")
    assert import_dataset(sources(*files), tmp_path / "out", overwrite=True).meta["counts"]["passages"] == 4


def test_of_files_with_one_name_in_two_folders_none_may_change_unseen(tmp_path):
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        (folder / "qrels").mkdir(parents=True)
        write(folder / "corpus.jsonl", json.dumps({"_id": f"{folder.name}-p", "title": "", "text": "a"}) + "\n")
        write(folder / "queries.jsonl", json.dumps({"_id": f"{folder.name}-q", "text": "b"}) + "\n")
        write(folder / "qrels" / "train.tsv", f"{folder.name}-q\t{folder.name}-p\t1\n")
    made = import_dataset(sources(*folders), tmp_path / "out")
    assert made.meta["counts"]["passages"] == 2
    write(folders[0] / "corpus.jsonl", json.dumps({"_id": "one-p", "title": "", "text": "changed"}) + "\n")
    with pytest.raises(ArtifactError, match=r"corpus\.jsonl changed"):
        import_dataset(sources(*folders), tmp_path / "out")


AWKWARD = [
    "tab\there",
    "line\nbreak",
    "\r\n",
    'quote "',
    "\u202eright to left",
    "👩\u200d🔬",
    "nul\0",
    "\ufeffbom",
    "\u2028",
    "x" * 10**6,
]


@pytest.mark.parametrize("text", AWKWARD, ids=range(len(AWKWARD)))
def test_awkward_text_stays_as_it_is(text, tmp_path):
    record = {"_id": "a", "title": "", "text": f"a {text} b"}
    write(tmp_path / "corpus.jsonl", json.dumps(record) + "\n")
    write(tmp_path / "queries.jsonl", json.dumps({"_id": "q", "text": f"a {text} b"}, ensure_ascii=False) + "\r\n")
    dataset_dir = import_dataset(sources(tmp_path), tmp_path / "out").path
    first = json.loads((dataset_dir / "corpus.jsonl").read_bytes())
    assert first["text"] == record["text"]
    assert json.loads((dataset_dir / "queries.jsonl").read_bytes())["text"] == f"a {text} b"


def test_the_command(tmp_path):
    files = [str(published(format_, tmp_path)) for format_ in ("msmarco-collection", "msmarco-queries", "trec-qrels")]
    result = CliRunner().invoke(cli, ["data", "import", *files, "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert "3 passages, 2 queries, 2 judgements of dev" in result.output
    listed = CliRunner().invoke(cli, ["data", "import", "--formats"])
    assert "dpr-passages" in listed.output
    wrong = CliRunner().invoke(cli, ["data", "import", files[0], "--column", "text", "--out", str(tmp_path / "other")])
    assert wrong.exit_code == 2
    twice = ["--column", "text=a", "--column", "text=b", "--out", str(tmp_path / "other")]
    assert "'text' is given twice" in CliRunner().invoke(cli, ["data", "import", files[0], *twice]).output
