"""A removed passage is in no answer of a retriever, takes no rank, and leaves its place to the next."""

import shutil

import numpy as np
import pytest

from gnnretrieval import Retriever
from gnnretrieval.data import Dataset
from gnnretrieval.encoders.reader import Reader
from gnnretrieval.encoders.settings import ReaderSettings
from gnnretrieval.errors import InputError
from gnnretrieval.index import open_index
from gnnretrieval.index.baseline import Baseline
from gnnretrieval.index.comparison import EncoderComparison
from gnnretrieval.index.hybrid import RankingSettings
from gnnretrieval.index.updating import remove_passages
from gnnretrieval.index.what_if import Change

GONE = "p01"


@pytest.fixture(scope="module")
def questions(tiny_dataset):
    return [query.text for query in Dataset.open(tiny_dataset).queries_of("test")]


@pytest.fixture(scope="module")
def shortened(tiny_run, tmp_path_factory):
    """A copy of the run without one passage, which questions find and the graph knows."""
    place = tmp_path_factory.mktemp("shortened") / "run"
    shutil.copytree(tiny_run, place)
    remove_passages(place / "index", [GONE])
    return place


@pytest.fixture(scope="module")
def before(tiny_run):
    return Retriever.open(tiny_run)


@pytest.fixture(scope="module")
def after(shortened):
    return Retriever.open(shortened)


def everything(retriever, questions, checkpoint, tiny_reader):
    """What each of a retriever's methods answers, by the method's name; every passage it can give is asked for."""
    numbered, vectors = dict(enumerate(questions)), retriever.encode(questions)
    joined = [
        Retriever(retriever.index, ranking=RankingSettings(**ranking))
        for ranking in (
            {"hybrid": True},
            {"rerank": str(checkpoint), "pair_tokens": 64},
            {"hybrid": True, "fuse": "weighted"},
        )
    ]
    ids = [id_ for id_ in retriever.index.texts.passage_ids() if id_ != GONE]
    # so high a weight that the answer is of the first passage, which is each passage once
    reader = Reader(ReaderSettings(reader=str(tiny_reader), precision="float32", passages=2, weight=1e6))
    texts = retriever.index.texts.passages()
    found = {
        "answer": [retriever.answer(passage.text, reader) for passage in texts],
        "search": [retriever.search(question, 50) for question in questions],
        "search_all": [retriever.search_all(questions, 50, system) for system in (None, "dual-encoder")],
        "search_vectors": retriever.search_vectors(vectors, 50),
        "run": [one.run({str(key): text for key, text in numbered.items()}, 50) for one in (retriever, *joined)],
        "joined": [one.search_all(questions, 50) for one in joined],
        "compare": retriever.compare(questions[0], 50),
        "compare_all": retriever.compare_all(questions, 50),
        "explain": [retriever.explain(id_, 50) for id_ in ids],
        "why": retriever.why(questions[0], retriever.search(questions[0], 50), 50),
        "what_if": [retriever.what_if(question, Change(ids[0]), 50) for question in questions],
        "passage": [retriever.passage(id_) for id_ in ids],
        "query": [retriever.query(f"train-{number:02d}") for number in range(60)],
    }
    of_queries = [retriever.neighborhood(f"train-{number:02d}", True, most=50) for number in range(60)]
    found["neighborhood"] = [*of_queries, *(retriever.neighborhood(id_, most=50) for id_ in ids)]
    return found


def test_no_method_of_a_retriever_gives_a_removed_passage(before, after, questions, tiny_cross_encoder, tiny_reader):
    text = before.passage(GONE).text
    with_it, without = (everything(one, questions, tiny_cross_encoder, tiny_reader) for one in (before, after))
    methods = {name for name, value in vars(Retriever).items() if callable(value) and not name.startswith("_")}
    assert methods - {"encode", "warm_up", "asked_all"} == without.keys() - {"joined"}
    for name, answer in with_it.items():
        its_own = {"explain", "why", "query", "passage"}  # of questions alone, or not asked for it
        assert name in its_own or GONE in repr(answer), name
        assert GONE not in repr(without[name]), name
        assert text not in repr(without[name]), name


@pytest.mark.parametrize(
    "ask", [lambda it: it.passage(GONE), lambda it: it.explain(GONE), lambda it: it.neighborhood(GONE)]
)
def test_asked_for_by_its_id_it_is_not_there(after, ask):
    with pytest.raises(InputError, match=f"no passage .*'{GONE}'"):
        ask(after)


@pytest.mark.parametrize("system", ["gnn-encoder", "dual-encoder"])
def test_the_ranking_is_the_one_before_without_it_and_as_long(before, after, questions, system):
    for whole, short in zip(*(one.search_all(questions, 10, system) for one in (before, after)), strict=True):
        assert len(short) == 10
        assert [hit.id for hit in short][:9] == [hit.id for hit in whole if hit.id != GONE][:9]
        assert [hit.rank for hit in short] == [*range(1, 11)]


def test_it_takes_no_rank_in_a_comparison_or_an_explanation(after, questions):
    for question, comparison in zip(questions, after.compare_all(questions, 39), strict=True):
        ranks = {one.hit.id: one.hit.rank for one in comparison.dual_encoder}
        assert sorted(ranks.values()) == [*range(1, 40)]
        assert [one.elsewhere for one in comparison.gnn_encoder] == [
            ranks[one.hit.id] for one in comparison.gnn_encoder
        ]
        hits = [one.hit for one in comparison.gnn_encoder]
        assert [why.rank_before for why in after.why(question, hits)] == [ranks[hit.id] for hit in hits]


@pytest.mark.parametrize("beside", ["index-dual-encoder", "nothing"])
def test_the_dual_encoder_alone_passes_over_it_by_its_index_and_by_the_features(shortened, after, questions, beside):
    baseline = Baseline.of(after.graph, shortened / beside, after.index.removed)
    assert baseline.is_indexed == (beside == "index-dual-encoder")
    rows, _ = baseline.search(after.encode(questions), 39)
    assert after.index.removed[0] not in rows
    assert (rows >= 0).all()


def test_an_index_that_lacks_more_than_was_removed_is_not_asked(shortened, after, tmp_path):
    other = shutil.copytree(shortened / "index-dual-encoder", tmp_path / "other")
    remove_passages(other, ["p02"])
    assert not Baseline.of(after.graph, other, after.index.removed).is_indexed
    remove_passages(other, [GONE])
    assert Baseline.of(after.graph, other, np.array([1, 2])).is_indexed


def test_neighbours_that_are_shown_are_as_many_as_were_asked_for(before, after):
    found = [before.neighborhood(f"train-{number:02d}", True, most=5) for number in range(60)]
    (whole, *_) = [one for one in found if GONE in [edge["id"] for edge in one["neighbors"][:4]]]
    shown = after.neighborhood(whole["node"]["id"], True, most=4)
    others = [edge["id"] for edge in whole["neighbors"] if edge["id"] != GONE]
    assert sorted(edge["id"] for edge in shown["neighbors"]) == sorted(others)
    assert (whole["node"]["edges"], shown["node"]["edges"]) == (5, 4)


def test_removing_what_was_removed_before_does_nothing(shortened, said):
    said.clear()
    assert remove_passages(shortened / "index", [GONE]).hash == open_index(shortened / "index").hash
    assert said == [f"{shortened / 'index'}: removed before, nothing to do"]


def test_an_index_that_lost_every_passage_answers_nothing(tiny_run, tmp_path, questions):
    place = shutil.copytree(tiny_run, tmp_path / "run")
    remove_passages(place / "index", open_index(place / "index").texts.passage_ids())
    for ranking in (None, RankingSettings(hybrid=True)):
        emptied = Retriever.open(place, ranking=ranking)
        assert emptied.search(questions[0]) == []
        assert emptied.run({"q": questions[0]}) == {"q": []}
    assert emptied.compare(questions[0]) == EncoderComparison([], [], 0)
