import pytest

pytest.importorskip("llama_index.core", reason="no llama-index-core here: pip install '.[llama-index]'")


def test_it_gives_the_retriever_s_passages_as_nodes(retriever, questions):
    from gnnretrieval.integrations.llama_index import LlamaIndexRetriever

    question = next(iter(questions.values()))
    for system in (None, "dual-encoder"):
        nodes = LlamaIndexRetriever(retriever, k=3, system=system).retrieve(question)
        hits = retriever.search(question, 3, system)
        assert [(one.node_id, one.text, one.score) for one in nodes] == [(hit.id, hit.text, hit.score) for hit in hits]
        assert [one.metadata["title"] for one in nodes] == [hit.title for hit in hits]
