import pytest

from gnnretrieval.data import Passage, Qrel, Query
from gnnretrieval.data.beir import write_passages, write_qrels, write_queries
from gnnretrieval.errors import GnnRetrievalError
from gnnretrieval.graph.inspection.overlap import overlap_figures


def dataset(root, queries, **splits):
    write_passages(root / "corpus.jsonl", ((Passage(f"p{row}", "", f"passage {row}"), {}) for row in range(8)))
    write_queries(root / "queries.jsonl", ((query, {}) for query in queries))
    for name, qrels in splits.items():
        write_qrels(root / "qrels" / f"{name}.tsv", qrels)
    return root


@pytest.fixture
def other_splits(tmp_path):
    (tmp_path / "data").mkdir()
    queries = [Query("q0", "query 0"), Query("t1", "QUERY 1?"), Query("t2", "new"), Query("t3", "unjudged as relevant")]
    test = [Qrel("t1", "p0", 1), Qrel("t2", "p5", 1), Qrel("t2", "p6", 2), Qrel("t3", "p7", 0), Qrel("q0", "p0", 1)]
    return dataset(tmp_path / "data", queries, train=[Qrel("q0", "p0", 1)], test=test)


def test_ids_texts_and_passages_that_a_split_shares_with_the_graph_are_counted(hand_made, other_splits):
    store = hand_made([[0, 1], [5, 1]], labels=[(0, 0), (1, 1)], dataset=other_splits)
    figures = overlap_figures(store)
    assert figures.dataset == str(other_splits)
    assert figures.as_json()["splits"] == {
        "test": {
            "queries": 3,
            "same_id": 1,
            "same_text": 2,  # q0 itself, and "QUERY 1?"
            "relevant_passages": 3,
            "share_with_training_questions": pytest.approx(1 / 3),
            "share_never_found": pytest.approx(1 / 3),
        }
    }


def test_queries_that_a_view_leaves_out_are_not_in_the_graph(hand_made, other_splits):
    store = hand_made([[0, 1], [5, 1]], labels=[(0, 0), (1, 1)], dataset=other_splits).view(queries=[1])
    test = overlap_figures(store).splits["test"]
    assert (test.same_id, test.same_text, test.share_with_training_questions) == (0, 1, 0)


def test_without_the_dataset_it_says_why_not(hand_made, tmp_path):
    assert "--data" in overlap_figures(hand_made([[0]], dataset=tmp_path / "gone")).why
    figures = overlap_figures(hand_made([[0]]))
    assert (figures.dataset, figures.splits) == (None, {})
    assert "does not say where its dataset lies" in figures.why


def test_a_directory_that_is_named_and_wrong_is_refused(hand_made, other_splits, tmp_path):
    store = hand_made([[0, 1]], labels=[(0, 0)])
    with pytest.raises(GnnRetrievalError, match="no judgements"):
        overlap_figures(store, tmp_path)
    write_qrels(other_splits / "qrels" / "test.tsv", [Qrel("t1", "elsewhere", 1)])
    with pytest.raises(GnnRetrievalError, match="another dataset"):
        overlap_figures(store, other_splits)


def test_only_what_a_filter_kept_is_compared(hand_made, tmp_path):
    passages = [(Passage(f"p{row}", "", "text"), {"domain": "a" if row < 4 else "b"}) for row in range(8)]
    write_passages(tmp_path / "corpus.jsonl", passages)
    queries = [(Query("q0", "zero"), {"domain": "a"}), (Query("t1", "one"), {"domain": "a"})]
    write_queries(tmp_path / "queries.jsonl", [*queries, (Query("t2", "two"), {"domain": "b"})])
    write_qrels(tmp_path / "qrels" / "train.tsv", [Qrel("q0", "p0", 1)])
    write_qrels(tmp_path / "qrels" / "test.tsv", [Qrel("t1", "p1", 1), Qrel("t2", "p5", 1)])
    store = hand_made([[0, 1]], dataset=tmp_path)
    store.meta["dataset"]["where"] = {"domain": "a"}
    test = overlap_figures(store).splits["test"]
    assert (test.queries, test.relevant_passages) == (1, 1)
