import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from gnnretrieval.cli import cli
from gnnretrieval.data import Dataset
from gnnretrieval.data.beir import read_passages
from gnnretrieval.data.sentences import (
    SentencePassages,
    is_of_sentences,
    make_sentence_dataset,
    passages_of_sentences,
)
from gnnretrieval.errors import InputError

PASSAGES = [
    {"_id": "a", "title": "Oil", "text": "It began in 1973. It ended in March. Both are so."},
    {"_id": "b", "title": "", "text": "No end mark"},
    {"_id": "c", "title": "A title alone", "text": ""},
]
QUERIES = [
    {"_id": "q1", "text": "When?", "metadata": {"answers": ["in march", " 1973 "], "domain": "oil"}},
    {"_id": "q2", "text": "What?", "metadata": {"answers": ["not there", ""]}},
    {"_id": "q3", "text": "Who?"},
]
JUDGED = [("q1", "a", 2), ("q1", "b", 0), ("q2", "a", 1), ("q3", "c", 1)]


def write(directory: Path, passages=PASSAGES, queries=QUERIES) -> Dataset:
    (directory / "qrels").mkdir(parents=True)
    for name, records in (("corpus", passages), ("queries", queries)):
        (directory / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    lines = "".join(f"{query}\t{passage}\t{score}\n" for query, passage, score in JUDGED)
    (directory / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + lines)
    return Dataset.open(directory)


@pytest.fixture
def dataset(tmp_path) -> Dataset:
    return write(tmp_path / "dataset")


def test_sentences_are_passages_that_know_where_they_are_from(dataset, tmp_path):
    made = make_sentence_dataset(dataset, tmp_path / "sentences")
    records = list(read_passages(tmp_path / "sentences" / "corpus.jsonl"))
    assert [(passage.id, passage.title, passage.text) for passage, _ in records] == [
        ("a#0", "Oil", "It began in 1973."),
        ("a#1", "Oil", "It ended in March."),
        ("a#2", "Oil", "Both are so."),
        ("b#0", "", "No end mark"),
        ("c#0", "A title alone", ""),
    ]
    assert [metadata for _, metadata in records[1:4]] == [
        {"passage": "a", "sentence": 1},
        {"passage": "a", "sentence": 2},
        {"passage": "b", "sentence": 0},
    ]
    assert made.meta["counts"] == {"passages": 5, "queries": 3, "test_judgements": 7}


def test_relevant_are_the_sentences_that_hold_an_answer_or_all_where_none_does(dataset, tmp_path, said):
    made = make_sentence_dataset(dataset, tmp_path / "sentences")
    opened = Dataset.open(tmp_path / "sentences")
    assert opened.split("test") == {
        "q1": {"a#0": 2, "a#1": 2, "b#0": 0},
        "q2": {"a#0": 1, "a#1": 1, "a#2": 1},
        "q3": {"c#0": 1},
    }
    assert made.meta["without_answer"] == 2
    assert "3 passages are 5 sentences, 1.7 each" in said
    assert "2 judged passages have no sentence with an answer: all their sentences are relevant" in said


def test_queries_keep_their_metadata(dataset, tmp_path):
    make_sentence_dataset(dataset, tmp_path / "sentences")
    assert Dataset.open(tmp_path / "sentences").query_ids == ["q1", "q2", "q3"]
    text = (tmp_path / "sentences" / "queries.jsonl").read_text()
    assert json.loads(text.splitlines()[0])["metadata"] == QUERIES[0]["metadata"]


def test_the_sentences_of_a_passage_come_back_as_a_group(dataset, tmp_path):
    make_sentence_dataset(dataset, tmp_path / "sentences")
    made = Dataset.open(tmp_path / "sentences")
    assert (is_of_sentences(made), is_of_sentences(dataset)) == (True, False)
    assert list(passages_of_sentences(made)) == [
        SentencePassages("Oil", ["It began in 1973.", "It ended in March.", "Both are so."]),
        SentencePassages("", ["No end mark"]),
        SentencePassages("A title alone", [""]),
    ]


def test_passages_that_are_no_sentences_are_groups_by_themselves(dataset):
    assert [group.texts for group in passages_of_sentences(dataset)] == [[p["text"]] for p in PASSAGES]


def test_made_twice_it_is_reused_and_the_bytes_are_equal(dataset, tmp_path, said):
    first = make_sentence_dataset(dataset, tmp_path / "one")
    make_sentence_dataset(dataset, tmp_path / "one")
    assert "already made" in said[-1]
    assert make_sentence_dataset(dataset, tmp_path / "two").hash == first.hash


def test_an_id_that_a_sentence_would_get_is_an_error(tmp_path):
    dataset = write(tmp_path / "dataset", [*PASSAGES, {"_id": "a#1", "text": "taken"}])
    with pytest.raises(InputError, match="sentence 1 of 'a' gets the id of passage 'a#1': rename"):
        make_sentence_dataset(dataset, tmp_path / "sentences")


@pytest.mark.parametrize("answers", ["1973", [1973], {"text": "1973"}])
def test_answers_that_are_no_list_of_strings_are_an_error(tmp_path, answers):
    queries = [{"_id": "q1", "text": "When?", "metadata": {"answers": answers}}, *QUERIES[1:]]
    with pytest.raises(InputError, match=r"queries\.jsonl: query 'q1' has answers .* wanted a list of strings"):
        make_sentence_dataset(write(tmp_path / "dataset", queries=queries), tmp_path / "sentences")


def test_the_command_says_what_was_made(dataset, tmp_path):
    found = CliRunner().invoke(cli, ["data", "sentences", str(dataset.path), "--out", str(tmp_path / "sentences")])
    assert found.exit_code == 0, found.output
    assert "5 passages, 3 queries, 7 test judgements" in found.output
