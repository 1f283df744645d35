import pytest

pt = pytest.importorskip("pyterrier", reason="no python-terrier here: pip install '.[pyterrier]'")


@pytest.fixture
def topics(questions):
    import pandas as pd

    return pd.DataFrame({"qid": [*questions], "query": [*questions.values()], "topic": range(len(questions))})


def test_it_ranks_each_query_as_the_retriever_does(retriever, questions, topics):
    from gnnretrieval.integrations.pyterrier import PyTerrierRetriever

    for system in (None, "dual-encoder"):
        results = PyTerrierRetriever(retriever, k=4, system=system)(topics)
        pt.validate.result_frame(results)
        for id_, question in questions.items():
            rows, hits = results[results.qid == id_], retriever.search(question, 4, system)
            assert rows.docno.tolist() == [hit.id for hit in hits]
            assert rows.score.tolist() == [hit.score for hit in hits]
            assert rows["rank"].tolist() == [0, 1, 2, 3]
            assert set(rows.topic) == {[*questions].index(id_)}


def test_it_joins_pipelines_and_is_measured(retriever, topics, tiny_dataset):
    import pandas as pd

    from gnnretrieval.data import Dataset
    from gnnretrieval.integrations.pyterrier import PyTerrierRetriever

    judgements = Dataset.open(tiny_dataset).split("test")
    qrels = pd.DataFrame(
        [(query, passage, label) for query, labels in judgements.items() for passage, label in labels.items()],
        columns=["qid", "docno", "label"],
    )
    gnn = PyTerrierRetriever(retriever, k=10)
    dual = PyTerrierRetriever(retriever, k=10, system="dual-encoder")
    assert len((gnn % 2)(topics)) == 2 * len(topics)
    table = pt.Experiment([dual, gnn], topics, qrels, ["recip_rank"], names=["dual-encoder", "gnn-encoder"])
    assert table.recip_rank.between(0.01, 1).all()
    assert not pt.java.started()


def test_no_queries_give_no_documents(retriever, topics):
    from gnnretrieval.integrations.pyterrier import PyTerrierRetriever

    results = PyTerrierRetriever(retriever)(topics.head(0))
    assert len(results) == 0
    assert {"qid", "query", "docno", "score", "rank"} <= set(results.columns)
