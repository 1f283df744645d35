import json

import numpy as np
import pytest
from pydantic import ValidationError

from gnnretrieval.data.runs.trec import rank_rows
from gnnretrieval.encoders.bm25 import BM25
from gnnretrieval.encoders.cross_encoder import CrossEncoder
from gnnretrieval.encoders.settings import CrossEncoderSettings
from gnnretrieval.errors import ArtifactError, InputError
from gnnretrieval.index import build_index
from gnnretrieval.index.fuse import fuse
from gnnretrieval.index.hybrid import PIPELINES, Ranker, RankingSettings
from gnnretrieval.index.lexical import LexicalSetting, label_questions, lexical_index, neighbour_questions
from gnnretrieval.index.search import bm25_run, index_run
from gnnretrieval.index.updating import remove_passages


@pytest.fixture(scope="module")
def asked(tiny_features, tmp_path_factory):
    """An index of the tiny corpus, its test questions by id, and their vectors."""
    index = build_index(tiny_features, tmp_path_factory.mktemp("made") / "index")
    texts = {query.id: query.text for query in index.texts.queries() if query.id.startswith("test")}
    return index, texts, tiny_features.queries[tiny_features.rows_of(texts)]


def lexical(index):
    return BM25([passage.full_text for passage in index.texts.passages()])


def test_without_bm25_and_cross_encoder_it_is_the_index(asked):
    index, texts, vectors = asked
    assert Ranker(index, RankingSettings()).run(texts, vectors, 7) == index_run(index, list(texts), vectors, 7)


@pytest.mark.parametrize("how", [{}, {"fuse": "weighted", "weights": (0.7, 0.3)}])
def test_hybrid_is_the_fusion_of_both_rankings(asked, how):
    index, texts, vectors = asked
    found = Ranker(index, RankingSettings(hybrid=True, candidates=20, **how)).run(texts, vectors, 10)
    both = [
        index_run(index, list(texts), vectors, 20),
        bm25_run(lexical(index), texts, index.texts.passage_ids(), 20),
    ]
    assert found == fuse(both, how.get("fuse", "rrf"), weights=how.get("weights"), depth=10)


def test_bm25_reads_the_training_questions_of_the_passages_that_are_left(
    tiny_graph, tiny_dataset, tiny_features, tmp_path
):
    index = build_index(tiny_features, tmp_path / "index")
    ids = index.texts.passage_ids()
    index = remove_passages(index.path, ids[:2])
    setting = LexicalSetting(repeats=2, neighbour_weight=0.5, k1=1.2, b=0.5)
    ranker = Ranker(index, RankingSettings(hybrid=True, weights=(0.0, 1.0), lexical=setting), graph=tiny_graph)
    questions, neighbours = label_questions(tiny_graph), neighbour_questions(tiny_graph)
    texts = [passage.full_text for passage in index.texts.passages()]
    assert len(texts) == len(ids) - 2
    moved = [{row - 2: of[row] for row in of if row >= 2} for of in (questions, neighbours)]
    expected = lexical_index(lambda: texts, len(texts), moved[0], setting, moved[1])
    asked = {query.id: query.text for query in index.texts.queries() if query.id.startswith("test")}
    vectors = tiny_features.queries[tiny_features.rows_of(asked)]
    found, wanted = ranker.run(asked, vectors, 5), bm25_run(expected, asked, ids[2:], 5)
    assert [[one.passage_id for one in found[query]] for query in asked] == [
        [one.passage_id for one in wanted[query]] for query in asked
    ]
    alone = bm25_run(BM25(texts), asked, ids[2:], 5)
    assert alone != wanted


def test_settings_of_a_run_are_what_its_comparison_names(tmp_path):
    with pytest.raises(ArtifactError, match="no such file"):
        RankingSettings.of_run(tmp_path)
    (tmp_path / PIPELINES).write_text('{"provenance": {}}', encoding="utf-8")
    with pytest.raises(ArtifactError, match="names no pipeline"):
        RankingSettings.of_run(tmp_path)
    settings = RankingSettings(hybrid=True, fuse="weighted", weights=(0.4, 0.6), lexical=LexicalSetting(repeats=3))
    (tmp_path / PIPELINES).write_text(
        json.dumps({"provenance": {"pipeline": settings.model_dump(mode="json")}}), encoding="utf-8"
    )
    assert RankingSettings.of_run(tmp_path) == RankingSettings.of_run(tmp_path / "index") == settings
    assert settings.suffix == "+bm25+questions"
    (tmp_path / PIPELINES).write_text('{"provenance": {"pipeline": {"hybrid": 3}}}', encoding="utf-8")
    with pytest.raises(InputError, match="hybrid"):
        RankingSettings.of_run(tmp_path)


def test_the_cross_encoder_orders_the_first_and_the_others_follow(asked, tiny_cross_encoder):
    index, texts, vectors = asked
    settings = RankingSettings(rerank=str(tiny_cross_encoder), rerank_depth=6, pair_tokens=64)
    found = Ranker(index, settings).run(texts, vectors, 10)
    plain = index_run(index, list(texts), vectors, 10)
    reader = CrossEncoder(CrossEncoderSettings(checkpoint=str(tiny_cross_encoder), max_tokens=64))
    passages = {passage.id: passage for passage in index.texts.passages()}
    for query, ranking in found.items():
        first = [passages[one.passage_id] for one in plain[query][:6]]
        pairs = np.stack([np.zeros(6, dtype=np.int64), np.arange(6)], axis=1)
        made = reader.encode_pairs([texts[query]], [passage.full_text for passage in first], pairs)
        (best,) = rank_rows(np.arange(6)[None], made.probabilities[None], [passage.id for passage in first])
        assert ranking[:6] == best
        assert [one.passage_id for one in ranking[6:]] == [one.passage_id for one in plain[query][6:]]
        assert all(one.score < 0 for one in ranking[6:])


def test_more_is_read_again_than_asked_for(asked, tiny_cross_encoder):
    index, texts, vectors = asked
    settings = RankingSettings(rerank=str(tiny_cross_encoder), rerank_depth=40, pair_tokens=64, hybrid=True)
    ranker = Ranker(index, settings)
    assert ranker.run(texts, vectors, 3) == {
        query: ranking[:3] for query, ranking in ranker.run(texts, vectors, 40).items()
    }


def test_bm25_does_not_bring_back_what_was_removed(asked, tiny_features, tmp_path):
    index, texts, vectors = asked
    place = build_index(tiny_features, tmp_path / "index").path
    before = Ranker(index, RankingSettings(hybrid=True)).run(texts, vectors, 40)
    gone = {ranking[0].passage_id for ranking in before.values()}
    after = Ranker(remove_passages(place, sorted(gone)), RankingSettings(hybrid=True)).run(texts, vectors, 40)
    assert not gone & {one.passage_id for ranking in after.values() for one in ranking}
    assert all(len(ranking) == 40 - len(gone) for ranking in after.values())


def test_a_weight_too_many_is_said(asked):
    index, texts, vectors = asked
    with pytest.raises(InputError, match="3 weights for 2 runs"):
        Ranker(index, RankingSettings(hybrid=True, weights=(1.0, 1.0, 1.0))).run(texts, vectors, 5)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"adaptive": "gar"}, "adaptive has no effect without rerank"),
        ({"weights": (0.3, 0.7)}, "weights has no effect without hybrid"),
        ({"lexical": LexicalSetting(1), "rerank": "some"}, "lexical has no effect without hybrid"),
        ({"neighbors": 4, "rerank": "some"}, "neighbors has no effect without adaptive"),
    ],
)
def test_a_setting_without_an_effect_is_refused(values, message):
    with pytest.raises(InputError, match=message):
        RankingSettings.parse(values)
    with pytest.raises(ValidationError, match=message):
        RankingSettings(**values)
    RankingSettings.parse(RankingSettings().model_dump(mode="json"))  # what runs record names every setting
