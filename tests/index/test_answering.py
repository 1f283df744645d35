import numpy as np
import pytest

from gnnretrieval import Retriever
from gnnretrieval.data import Dataset
from gnnretrieval.data.records import Passage, ScoredPassage
from gnnretrieval.encoders.reader import NOTHING, Reader, Reading, log_probabilities
from gnnretrieval.encoders.settings import ReaderSettings
from gnnretrieval.errors import ArtifactError, InputError
from gnnretrieval.index.answering import ReadPassages, read_passages

PASSAGES = [Passage(f"p{number}", "", f"answer {number} here") for number in range(3)]
# The last passage has the most probable span, by 2 in logits.
READINGS = [Reading(7, 8, logit, 4.0, 4.0) for logit in (1.0, 2.0, 3.0)]


@pytest.fixture(scope="module")
def reader(tiny_reader):
    return Reader(ReaderSettings(reader=str(tiny_reader), precision="float32", max_tokens=48, passages=3))


@pytest.fixture(scope="module")
def retriever(tiny_run):
    return Retriever.open(tiny_run)


def test_without_weight_the_most_probable_span_is_the_answer():
    found = ReadPassages(PASSAGES, [9.0, 8.0, 7.0], READINGS).answer(0.0)
    assert found[:5] == ("2", "p2", 3, 7, 8)
    assert found.score == pytest.approx(log_probabilities(READINGS)[2])
    assert found.probability == pytest.approx(np.exp(3.0 - 2 * (4.0 + np.log(3))))


@pytest.mark.parametrize(("weight", "expected"), [(1.9, "2"), (2.1, "0")])
def test_the_weighted_retrieval_score_is_scaled_over_the_passages(weight, expected):
    for scores in ([9.0, 7.0, 5.0], [0.9, 0.7, 0.5]):  # 1, ½ and 0 after scaling
        assert ReadPassages(PASSAGES, scores, READINGS).answer(weight).answer == expected


def test_of_equal_spans_that_of_the_first_passage_is_taken():
    assert ReadPassages(PASSAGES, [1.0, 1.0, 1.0], [READINGS[0]] * 3).answer(1.0).passage == "p0"


def test_a_passage_without_text_never_answers():
    assert ReadPassages(PASSAGES[:2], [9.0, 1.0], [NOTHING, READINGS[0]]).answer(99.0).passage == "p1"
    assert ReadPassages(PASSAGES[:1], [9.0], [NOTHING]).answer(1.0) is None


def test_a_run_is_read_to_the_reader_s_depth_in_its_order(reader, answered_dataset):
    dataset = Dataset.open(answered_dataset)
    texts = {passage.id: passage for passage in dataset.passages()}
    run = {"q": [ScoredPassage(f"p{row:02d}", 1.0 + row) for row in range(6)]}
    (read,) = read_passages(reader, dataset, {"q": "ruga?", "other": "tasu?"}, run).values()
    assert [passage.id for passage in read.passages] == ["p05", "p04", "p03"]
    assert read.readings == reader.read(["ruga?"] * 3, [texts[id_] for id_ in ("p05", "p04", "p03")])


def test_a_run_of_other_questions_or_passages_is_refused(reader, answered_dataset):
    dataset = Dataset.open(answered_dataset)
    with pytest.raises(InputError, match="this run has none of these questions"):
        read_passages(reader, dataset, {"q": "ruga?"}, {"other": [ScoredPassage("p01", 1.0)]})
    with pytest.raises(InputError, match="the run names passage 'p99', which is not in it"):
        read_passages(reader, dataset, {"q": "ruga?"}, {"q": [ScoredPassage("p99", 1.0)]})


def test_the_retriever_answers_from_its_best_passages(reader, retriever):
    question = retriever.query("train-00").text
    hits = retriever.search(question, 3)
    found = retriever.answer(question, reader)
    hit = hits[found.rank - 1]
    assert hit.id == found.passage
    assert found.answer == hit.text[found.start : found.end] != ""
    heavy = Reader(reader.settings.model_copy(update={"weight": 1e6}))
    assert retriever.answer(question, heavy).passage == hits[0].id


def test_an_index_without_texts_is_an_error(reader, retriever, monkeypatch):
    without = [hit._replace(title="", text="") for hit in retriever.search("ruga", 3)]
    monkeypatch.setattr(retriever, "search", lambda question, k: without)
    with pytest.raises(ArtifactError, match="none of the 3 retrieved passages has a text to find an answer in"):
        retriever.answer("ruga", reader)
