"""serve --explore: some searches swap neighbours, and say so."""

import pytest
from click.testing import CliRunner
from fastapi.testclient import TestClient
from pydantic import ValidationError

from gnnretrieval.cli import cli
from gnnretrieval.serve import ServeSettings, create_app


@pytest.fixture
def asked(retriever):
    """Answers of twenty searches by a server that explores this share of them."""

    def ask(share):
        with TestClient(create_app(retriever, ServeSettings(explore=share))) as client:
            return [client.post("/search", json={"question": "zu zu", "k": 8}).json() for _ in range(20)]

    return ask


def test_without_it_every_answer_is_the_ranking(asked, retriever):
    expected = [hit.id for hit in retriever.search("zu zu", 8)]
    for answer in asked(0.0):
        assert not answer["explored"]
        assert [hit["id"] for hit in answer["hits"]] == expected


def test_with_it_neighbours_change_places_and_ranks_are_those_shown(asked, retriever):
    expected = [hit.id for hit in retriever.search("zu zu", 8)]
    shown = set()
    for answer in asked(1.0):
        assert answer["explored"]
        ids = [hit["id"] for hit in answer["hits"]]
        assert sorted(ids) == sorted(expected)
        assert all(abs(ids.index(id_) - rank) <= 1 for rank, id_ in enumerate(expected))
        assert [hit["rank"] for hit in answer["hits"]] == [*range(1, 9)]
        shown.add(tuple(ids))
    assert len(shown) > 2


def test_a_share_is_from_zero_to_one():
    with pytest.raises(ValidationError):
        ServeSettings(explore=1.5)
    answer = CliRunner().invoke(cli, ["serve", "index", "--explore", "1.5"])
    assert answer.exit_code == 2
    assert "--explore" in answer.output
