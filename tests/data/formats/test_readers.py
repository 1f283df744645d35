"""Every format, from a file laid out as its publisher's."""

import ast
import json
import random
from pathlib import Path

import pytest

from gnnretrieval.data.formats.parsed import Negative
from gnnretrieval.data.formats.recognise import FORMATS, recognise, split_of
from gnnretrieval.data.formats.table import Table
from gnnretrieval.data.records import Passage, Qrel, Query
from gnnretrieval.data.runs.trec import read_run
from gnnretrieval.errors import GnnRetrievalError, InputError
from tests.data.formats.published import (
    FILES,
    GRADED_QRELS,
    OLD_TOPICS,
    PARAGRAPHS,
    SQUAD,
    SQUAD_1,
    TREC_RUN,
    TRIVIA_QA,
    published,
)


def read(format_: str, path: Path, split: str = "dev") -> list:
    return list(FORMATS[format_].read(path, split))


def records(format_: str, directory: Path, kind: type) -> list:
    return [found.record for found in read(format_, published(format_, directory)) if isinstance(found.record, kind)]


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("format_", sorted(FILES))
def test_a_published_file_is_recognised_and_reads_the_same_zipped(format_, zipped, tmp_path):
    path = published(format_, tmp_path, zipped)
    assert recognise(path) == format_
    plain = tmp_path / "plain"
    plain.mkdir()
    assert read(format_, path) == read(format_, published(format_, plain))


def test_every_format_has_a_published_file():
    assert FILES.keys() == FORMATS.keys()


def test_ms_marcos_quotes_are_text(tmp_path):
    passages = records("msmarco-collection", tmp_path, Passage)
    assert [passage.id for passage in passages] == ["0", "1", "7"]
    assert passages[1].text.startswith('The "Manhattan Project" and')
    assert passages[2].text == "À tab-free passage: 東京, \u200fעברית, 👩\u200d🔬"


def test_ms_marcos_queries_qrels_and_candidates(tmp_path):
    assert records("msmarco-queries", tmp_path, Query)[0] == Query("121352", "define extreme")
    assert records("trec-qrels", tmp_path, Qrel) == [Qrel("121352", "7", 1), Qrel("634306", "1", 1)]
    assert records("msmarco-top1000", tmp_path, Negative)[1] == Negative("121352", "7", "candidate")


def test_ms_marcos_triples_of_ids_and_of_texts(tmp_path):
    assert records("msmarco-id-triples", tmp_path, Qrel)[2] == Qrel("634306", "1", 1)
    assert records("msmarco-id-triples", tmp_path, Negative)[1] == Negative("121352", "1", "triple")
    positives = {record.passage_id for record in records("msmarco-triples", tmp_path, Qrel)}
    passages = {record.id: record.text for record in records("msmarco-triples", tmp_path, Passage)}
    assert [passages[id_] for id_ in positives] == ["We don’t know a lot"]
    assert len(passages) == 3


def test_dprs_passages_are_quoted_as_csv(tmp_path):
    assert records("dpr-passages", tmp_path, Passage) == [
        Passage("1", "Aaron", 'Aaron Aaron ( or ; "Ahärôn") is a prophet, high priest, and the brother of Moses.'),
        Passage("2", "Aaron", "God at Sinai granted Aaron the priesthood for himself"),
        Passage("3", 'A "title"', 'a line\nbreak and a "quote"'),
    ]


def test_dprs_training_questions_keep_positives_negatives_and_answers(tmp_path):
    found = read("dpr-training", published("dpr-training", tmp_path))
    questions = [(one.record, one.metadata) for one in found if isinstance(one.record, Query)]
    assert questions[0] == (Query("dev-0", "big little lies season 2 how many episodes"), {"answers": ["seven"]})
    assert [one.record for one in found if isinstance(one.record, Qrel)] == [
        Qrel("dev-0", "18768923", 1),
        Qrel("dev-1", "1", 1),
    ]
    assert [one.record for one in found if isinstance(one.record, Negative)] == [
        Negative("dev-0", "2145653", "negative"),
        Negative("dev-0", "8923", "hard_negative"),
        Negative("dev-1", "2145653", "hard_negative"),
    ]
    assert found[0].line == 2
    assert found[-1].line > 30


def test_dprs_answers_are_a_list_in_python(tmp_path):
    found = read("dpr-qa", published("dpr-qa", tmp_path), "test")
    assert [one.record.id for one in found] == ["test-0", "test-1"]
    assert found[0].metadata == {"answers": ["Wilhelm Conrad Röntgen"]}
    assert found[1].metadata["answers"][0] == "May 18 , 2018"


def test_squads_spans_are_where_they_say(tmp_path):
    found = read("squad", published("squad", tmp_path))
    passages = [one.record for one in found if isinstance(one.record, Passage)]
    assert [(passage.id, passage.title) for passage in passages] == [
        (PARAGRAPHS[0], "Super Bowl 50"),
        (PARAGRAPHS[1], "Super Bowl 50"),
    ]
    asked = [one for one in found if isinstance(one.record, Query)]
    for answer, start in zip(asked[0].metadata["answers"], asked[0].metadata["answer_starts"], strict=True):
        assert passages[0].text[start : start + len(answer)] == answer
    assert asked[1].metadata == {"is_impossible": True}
    assert [one.record for one in found if isinstance(one.record, Qrel)] == [
        Qrel("56be4db0acb8001400a502ec", PARAGRAPHS[0], 1)
    ]


def test_trecs_topics_with_tags_that_close_and_that_do_not(tmp_path):
    found = read("trec-topics", published("trec-topics", tmp_path))
    assert [one.record for one in found] == [
        Query("301", "International Organized Crime"),
        Query("302", "Poliomyelitis and Post-Polio"),
    ]
    assert found[0].metadata["description"].endswith("and, if possible, collaborating organizations.")
    assert found[0].metadata["narrative"].startswith("A relevant document")
    assert [one.line for one in found] == [2, 16]


def test_a_tag_of_trecs_topics_may_close_on_a_line_of_its_own(tmp_path):
    path = tmp_path / "topics.txt"
    path.write_text("<top>\n<num>\n1\n</num>\n<title>\ntwo\nlines\n</title>\n<desc> a </b>\nc\n</desc>\n</top>\n")
    (found,) = read("trec-topics", path)
    assert found.record == Query("1", "two lines")
    assert found.metadata == {"description": "a </b> c"}


def test_trecs_first_topics(tmp_path):
    path = tmp_path / "topics.51-100"
    path.write_text(OLD_TOPICS)
    assert recognise(path) == "trec-topics"
    (found,) = read("trec-topics", path)
    assert found.record == Query("090", "Data on Proven Reserves of Oil & Natural Gas Producers")
    assert found.metadata == {
        "description": "Document provides totals or verifiable changes in proven reserve figures.",
        "narrative": "A relevant document will contain figures.",
    }


def test_graded_judgements_a_run_and_another_qa_file(tmp_path):
    path = tmp_path / "2019qrels-pass.test.txt"
    path.write_text(GRADED_QRELS)
    assert recognise(path) == "trec-qrels"
    assert [one.record.relevance for one in read("trec-qrels", path)] == [0, 2, 3]
    path = tmp_path / "input.STANDARD"
    path.write_text(TREC_RUN)
    assert [passage.passage_id for passage in read_run(path)["301"]] == ["FBIS3-10082", "FR940202-2-00150"]
    path = tmp_path / "trivia-test.qa.csv"
    path.write_text(TRIVIA_QA)
    assert recognise(path) == "dpr-qa"
    assert [(one.record.text, one.metadata["answers"]) for one in read("dpr-qa", path, "test")] == [
        ("Who was the man behind The Chipmunks?", ["David Seville"]),
        ('Who wrote "Hamlet"?', ["Shakespeare", "William Shakespeare's pen"]),
    ]


def test_squad_1_has_no_impossible_questions(tmp_path):
    path = tmp_path / "train-v1.1.json"
    path.write_text(json.dumps(SQUAD_1))
    assert recognise(path) == "squad"
    passage, question, judged = read("squad", path, "train")
    assert passage.record.title == "Beyonc%C3%A9"
    assert question.record == Query("56be85543aeaaa14008c9063", "When did Beyoncé rise?")
    (start,), (answer,) = question.metadata["answer_starts"], question.metadata["answers"]
    assert passage.record.text[start : start + len(answer)] == answer
    assert judged.record == Qrel("56be85543aeaaa14008c9063", passage.record.id, 1)


def test_judgements_below_zero_are_kept(tmp_path):
    path = tmp_path / "qrels.test.txt"
    path.write_text("301 0 FBIS3-10082 1\n301 0 FBIS3-10169 -2\n")
    assert [one.record.relevance for one in read(recognise(path), path)] == [1, -2]


def test_a_tables_other_columns_are_metadata(tmp_path):
    found = read("passages", published("passages", tmp_path))
    assert [one.record for one in found] == [Passage("d1", "First", "one, two"), Passage("d2", "", "three\nfour")]
    assert [one.metadata for one in found] == [{"year": "1999"}, {"year": "2001"}]
    assert [one.line for one in found] == [2, 3]
    questions = read("queries", published("queries", tmp_path))
    assert [one.metadata for one in questions] == [{"kind": "easy", "answers": ["two"]}, {}]


def test_a_tables_columns_can_be_named(tmp_path):
    path = tmp_path / "things.tsv"
    path.write_text("key\tprose\tid\n1\tone\tx\n")
    found = list(Table("passages", {"id": "KEY", "text": "prose"})(path, ""))
    assert found[0].record == Passage("1", "", "one")
    assert found[0].metadata == {"id": "x"}
    with pytest.raises(
        InputError, match=r"no column of the passages is their text.*key, prose, id.*--column passages.text=NAME"
    ):
        list(Table("passages")(path, ""))


def test_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "train.parquet"
    table = pyarrow.table({"query_id": [1, 2], "question": ["what?", "how?"], "answers": [["a", "b"], []]})
    parquet.write_table(table, path)
    assert recognise(path) == "queries"
    found = read("queries", path)
    assert [(one.record, one.metadata, one.line) for one in found] == [
        (Query("1", "what?"), {"answers": ["a", "b"]}, 1),
        (Query("2", "how?"), {"answers": []}, 2),
    ]
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InputError, match="damaged"):
        read("queries", path)


def test_dprs_columns_are_in_its_order(tmp_path):
    path = tmp_path / "psgs_w100.tsv"
    path.write_text("id\ttitle\ttext\n1\ta\tb\n")
    with pytest.raises(InputError, match=r":1: found columns \['id', 'title', 'text'\], wanted id, text, title"):
        read("dpr-passages", path)
    assert recognise(path) == "passages"


@pytest.mark.parametrize("answers", [[1.5, 2.5], [[1, 2]], [True, False], [{"a": 1}, {"a": 2}]])
def test_answers_of_another_type_are_refused(answers, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "train.parquet"
    column = pyarrow.array(answers)
    names = [f"q{n}" for n in range(len(column))]
    parquet.write_table(pyarrow.table({"query_id": names, "question": names, "answers": column}), path)
    with pytest.raises(InputError, match="wanted a string or a list of strings"):
        read("queries", path)


def test_a_cell_of_answers_is_a_list_as_json_or_one_string(tmp_path):
    path = tmp_path / "questions.tsv"
    path.write_text('qid\tquestion\tanswers\n1\t?\t["a", "b"]\n2\t?\t[1]\n3\t?\t[sic\n')
    assert [one.metadata["answers"] for one in read("queries", path)] == [["a", "b"], ["[1]"], ["[sic"]]


def test_a_spans_start_lies_in_its_passage(tmp_path):
    file = json.loads(FILES["squad"][1])
    answer = file["data"][0]["paragraphs"][0]["qas"][0]["answers"][1]
    path = tmp_path / "dev-v2.0.json"
    for start in (-1, 1000):
        answer["answer_start"] = start
        path.write_text(json.dumps(file))
        where = r"data\[0\]\.paragraphs\[0\]\.qas\[0\]\.answers\[1\]\.answer_start"
        with pytest.raises(InputError, match=rf"found {start} at {where}, wanted an integer from 0 to"):
            read("squad", path)


def test_trecs_columns_are_separated_by_ascii_white_space_alone(tmp_path):
    path = tmp_path / "qrels.test.txt"
    path.write_text("301\t0  FBIS3\u00a010082 1 \r\n")
    assert read("trec-qrels", path)[0].record == Qrel("301", "FBIS3\u00a010082", 1)


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("queries.train.tsv", "train"),
        ("biencoder-nq-dev.json.gz", "dev"),
        ("nq-test.qa.csv", "test"),
        ("valid_qrels.txt", "dev"),
        ("train-v2.0.json", "train"),
        ("qrels.dl19-passage.txt", None),
        ("train-and-test.tsv", None),
        ("contest.tsv", None),
    ],
)
def test_a_split_is_a_word_of_the_name(name, split):
    assert split_of(Path(name)) == split


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "collection.tsv",
            "0\ttext\n1 text\n",
            r":2: found 1 column, wanted 2 separated by tabs.*Are they separated by",
        ),
        (
            "psgs_w100.tsv",
            'id\ttext\ttitle\n1\t"open\ttitle\n',
            r":2: this row cannot be read \(unexpected end of data\)",
        ),
        ("nq-test.qa.csv", "who\t[1, 2]\n", r":1: found answers '\[1, 2\]', wanted a list of strings"),
        ("nq-test.qa.csv", "who\t__import__('os')\n", r":1: found answers"),
        (
            "a-train.json",
            '[\n{"question": "q",\n "positive_ctxs": [{"text": 3}]}]',
            r":2: found text 3, wanted a string",
        ),
        (
            "a-train.json",
            '[\n{"question": "q", "positive_ctxs": []},\n{"question": nope}]',
            r":3: not JSON: Expecting value\.",
        ),
        (
            "a-train.json",
            '[\n{"question": "q", "positive_ctxs": []},\n{"quest',
            r":3: not JSON: Unterminated string.*Is the file cut off\?",
        ),
        ("a-train.json", '[{"question": "q", "positive_ctxs": []}] x', r":1: found 'x' after the end of the list"),
        ("a-train.json", '[{"question": "q", "positive_ctxs": []} {}]', r":1: found '{}\]', wanted a comma"),
        ("dev-v1.1.json", '{"data": [{"title": "t", "paragraphs": [{}]}]}', r"at data\[0\].paragraphs\[0\].context"),
        ("a-train.json", '[\n{"question": "q"}]', r":2: found keys \['question'\], wanted positive_ctxs among them"),
        ("a-train.json", '[\n{"question": "\\ud800", "positive_ctxs": []}]', r":2: half of a surrogate pair"),
        ("nq-test.qa.csv", "who\t['\\udfff']\n", r":1: half of a surrogate pair"),
        ("dev-v1.1.json", '{"data": [{"title": "\\ud800"}]}', r"half of a surrogate pair .* is in data\[0\]"),
        ("dev-v1.1.json", '{"data": [{"paragraphs": [{"context": "\\ud800"}]}]}', r"surrogate pair .* is in data\[0\]"),
        ("dev-v1.1.json", f'{{"data":\n{"7" * 5000}}}', r":2: not JSON: Exceeds the limit"),
        ("dev-v1.1.json", '{"data": {}}', r"found {} at data, wanted a list"),
        ("dev-v1.1.json", '{"data":\n[', r":2: not JSON"),
        ("topics.txt", "<top>\n<num> Number: 1\n<title> t\n", r":1: this <top> does not end"),
        (
            "topics.txt",
            "<top><num>1</num><title>a</title></top>\n",
            r":1: this line has other text beside <top> or </top>",
        ),
        ("topics.txt", "<top>\n<num>1\n<title>a</top>\n", r":3: this line has other text beside <top> or </top>"),
        ("topics.txt", "<top>\n<num> Number: 1\n</top>\n", r":1: this topic has no <title>"),
        (
            "topics.txt",
            "<top>\n<num> 1\n<title> a\n<num> 2\n<title> b\n</top>\n",
            r":4: the topic that begins on line 1 has a second <num> here: is a </top> missing\?",
        ),
        ("qrels.test.tsv", "q 0 d yes\n", r"no known format has lines of 1 column|wanted an integer"),
        ("qrels.test.tsv", "q 0 d 1\nq 0 d 1.5\n", r":2: found relevance '1.5', wanted an integer"),
        ("docs.csv", "id,text\n1,2,3\n", r":2: found 3 columns, the header has 2"),
        ("docs.csv", "id,text,id\n", r":1: two columns have one name"),
        ("docs.csv", "id,text,ID\n", r":1: two columns have one name: id, text, ID"),
        ("things.jsonl", '{"_id": "1", "text": "x"}\n', r"may be passages or queries: name the format"),
        ("empty.tsv", "\n", r"this file is empty"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(name, text, said, tmp_path):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InputError, match=said):
        read(recognise(path), path)


def mutated(data: bytes, rng: random.Random) -> bytes:
    """A file with something wrong with it, or not."""
    data = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        start, end = sorted(rng.randint(0, len(data)) for _ in range(2))
        kind = rng.randrange(7)
        if kind == 0:
            del data[start:]
        elif kind == 1:
            del data[start:end]
        elif kind == 2:
            data[start:start] = rng.choice(
                [b"\xff", b"\x00", b'"', b"\t", b"\n", b"\r\n", b"\xef\xbb\xbf", b"[", b"}", b"<top>"]
            )
        elif kind == 3:
            data[start:start] = bytes(data[start:end])
        elif kind == 4 and len(data) > 1:
            data[rng.randrange(len(data))] = rng.randrange(256)
        elif kind == 5:
            lines = bytes(data).split(b"\n")
            rng.shuffle(lines)
            data = bytearray(b"\n".join(lines))
        else:
            data[start:start] = rng.choice([b"null", b"1e999", b"{}", b"[]", b"true", b"-1", "é".encode("utf-16")])
    return bytes(data)


def test_recognising_a_damaged_file_never_fails_otherwise(tmp_path):
    rng = random.Random(0)
    for name, text in FILES.values():
        for _ in range(40):
            path = tmp_path / name
            path.write_bytes(mutated(text.encode(), rng))
            try:
                found = recognise(path)
            except GnnRetrievalError as error:
                found = str(error)
            assert found in FORMATS or str(path) in found


def test_the_published_files_are_what_their_text_says():
    assert ast.literal_eval(FILES["dpr-qa"][1].split("\t")[1].split("\n")[0]) == ["Wilhelm Conrad Röntgen"]
    assert json.loads(FILES["squad"][1]) == SQUAD
