import threading
import time

import pytest

pytest.importorskip("langchain_core", reason="no langchain-core here: pip install '.[langchain]'")


def test_it_gives_the_retriever_s_passages_as_documents(retriever, questions):
    from gnnretrieval.integrations.langchain import LangChainRetriever

    question = next(iter(questions.values()))
    for system in (None, "dual-encoder"):
        documents = LangChainRetriever(retriever=retriever, k=3, system=system).invoke(question)
        hits = retriever.search(question, 3, system)
        assert [(one.id, one.page_content, one.metadata["score"]) for one in documents] == [
            (hit.id, hit.text, hit.score) for hit in hits
        ]
        assert [one.metadata["rank"] for one in documents] == [1, 2, 3]


def test_it_is_a_runnable_that_chains_and_batches(retriever, questions):
    from gnnretrieval.integrations.langchain import LangChainRetriever

    chain = LangChainRetriever(retriever=retriever, k=2) | (lambda documents: [one.id for one in documents])
    asked = list(questions.values())[:3]
    expected = [[hit.id for hit in hits] for hits in retriever.search_all(asked, 2)]
    assert chain.batch(asked, config={"max_concurrency": 1}) == expected


def test_questions_asked_in_threads_are_answered_one_after_another(retriever, monkeypatch):
    from langchain_core.runnables import RunnableParallel

    from gnnretrieval.integrations.langchain import LangChainRetriever

    inside, together, search = threading.Semaphore(), [], retriever.search

    def slow_search(*asked):
        if not inside.acquire(blocking=False):
            together.append(asked)
            return []
        time.sleep(0.02)
        found = search(*asked)
        inside.release()
        return found

    monkeypatch.setattr(retriever, "search", slow_search)
    gnn, dual = (LangChainRetriever(retriever=retriever, k=2, system=system) for system in (None, "dual-encoder"))
    RunnableParallel(gnn=gnn, dual=dual).batch(["one", "two", "three"])
    assert not together
