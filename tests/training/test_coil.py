"""COIL: late interaction in which a question's token meets only the same token of a passage."""

import numpy as np
import pytest
import torch
from vocabularies import with_other_vocabulary

from gnnretrieval.data import Dataset
from gnnretrieval.encoders.dual_encoder import DualEncoder
from gnnretrieval.encoders.features import encode_dataset, open_features
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.encoders.token_index import TokenIndex
from gnnretrieval.errors import InputError
from gnnretrieval.index.late_search import late_run
from gnnretrieval.index.rerankers import MaxSimReranker
from gnnretrieval.losses import contrastive_loss
from gnnretrieval.mining.candidates import search
from gnnretrieval.mining.examples import Candidate, Example
from gnnretrieval.shards import Sharding
from gnnretrieval.training.encoder.dual_towers import Start, make_towers
from gnnretrieval.training.encoder.late_task import LateInteractionTask
from gnnretrieval.training.encoder.pair_data import Texts
from gnnretrieval.training.encoder.settings import DualEncoderTrainSettings
from gnnretrieval.training.encoder.train_encoder import train_dual_encoder

SETTINGS = DualEncoderTrainSettings(
    shared=True, epochs=1, batch_size=32, learning_rate=1e-3, dropout=0.0, precision="float32", hard_negatives=0
)
TEXTS = Texts({"q1": "bada gogo?", "q2": "kobe kobe"}, {"p1": "Bada dada.", "p2": "Kobe sefi, kobe."})
EXAMPLES = [
    Example("q1", (Candidate("p1", "label"),), ()),
    Example("q2", (Candidate("p2", "label"),), ()),
]


def settings_of(checkpoint, **more):
    common = {"late_interaction": 8, "token_match": "same", "max_tokens": 32, "query_max_tokens": 12}
    return EncoderSettings(checkpoint=str(checkpoint), precision="float32", **(common | more))


@pytest.fixture(scope="module")
def encoder(tiny_checkpoint, tiny_dataset, tmp_path_factory):
    place = tmp_path_factory.mktemp("coil") / "coil"
    return train_dual_encoder(Dataset.open(tiny_dataset), [], settings_of(tiny_checkpoint), SETTINGS, place)


@pytest.fixture(scope="module")
def features(encoder, tiny_dataset, tmp_path_factory):
    settings = EncoderSettings(checkpoint=str(encoder.path), precision="float32")
    return encode_dataset(Dataset.open(tiny_dataset), settings, tmp_path_factory.mktemp("coil") / "features")


def test_the_loss_compares_only_same_tokens_and_sep_has_no_vector(tiny_checkpoint):
    start = Start.of(settings_of(tiny_checkpoint))
    towers = make_towers(start, shared=True, device=torch.device("cpu"), seed=0, dropout=0.0)
    task = LateInteractionTask(EXAMPLES, TEXTS, towers, start.similarity, SETTINGS, None)
    batch = task.batch(0, 0)
    with torch.no_grad():
        rows = torch.cat([towers[item.tower].rows([item]) for item in batch.items])
    ids = [[item.ids[start] for start, _ in item.spans] for item in batch.items]
    separator = towers["query"].tokenizer.sep_token_id
    assert all(separator not in its and separator in item.ids for its, item in zip(ids, batch.items, strict=True))
    vectors = rows.split([len(its) for its in ids])
    scores = torch.zeros(2, 2)
    for query in range(2):
        for passage in range(2):
            there = ids[2 + passage]
            for vector, token in zip(vectors[query], ids[query], strict=True):
                products = [float(vector @ vectors[2 + passage][n]) for n, own in enumerate(there) if own == token]
                scores[query, passage] += max(products, default=0.0)
    relevant = torch.eye(2, dtype=torch.bool)
    torch.testing.assert_close(batch.loss(rows), contrastive_loss(scores, torch.arange(2), relevant))
    assert float(rows.norm(dim=1).std()) > 0.01  # lengths are weights of the tokens


def test_the_encoder_opens_as_it_was_trained(encoder):
    its = encoder.meta["encoder"]
    assert (its["late_interaction"], its["token_match"], its["similarity"], its["scale"]) == (8, "same", "dot", 1.0)
    made = DualEncoder(EncoderSettings(checkpoint=str(encoder.path), precision="float32"))
    tokens = made.encode_tokens(["kobe sefi, lumi.", "dada"], "passage")
    ids = made.late["passage"].tokenizer.tokens(["kobe sefi, lumi.", "dada"], "passage", 32)
    assert tokens.ids.tolist() == np.concatenate([text.ids[text.starts] for text in ids]).tolist()
    assert len(tokens.ids) == len(tokens.vectors) == tokens.counts.sum()


def test_queries_and_passages_need_one_vocabulary(encoder, tmp_path):
    passages = encoder.path / "passage"
    other = with_other_vocabulary(passages, tmp_path / "other")
    with pytest.raises(InputError, match=r"its vocabulary is not that of .*: give two encoders of one vocabulary"):
        DualEncoder(settings_of(passages, query_checkpoint=str(other)))


def test_a_run_over_inverted_lists_has_the_scores_of_the_reranker(features, tiny_dataset):
    dataset = Dataset.open(tiny_dataset)
    assert features.matches_same
    queries = dataset.query_ids[60:64]
    run = late_run(features, queries, 40)
    texts = {query.id: query.text for query in dataset.queries()}
    candidates = [[hit.passage_id for hit in run[query]][:10] for query in queries]
    again = MaxSimReranker(features).scores([texts[query] for query in queries], candidates)
    for query, scores in zip(queries, again, strict=True):
        assert scores == pytest.approx([hit.score for hit in run[query]][:10], abs=2e-2)
        assert len(run[query]) == 40
    row = dataset.query_ids.index(queries[0])
    whole = TokenIndex(features.tokens, features.token_ids, np.asarray(features.token_starts)).scores(
        features.query_tokens[row], features.query_token_ids[row]
    )
    assert run[queries[0]][0].score == pytest.approx(float(whole.max()))


def test_negatives_are_mined_by_the_scores_that_rank(features, tiny_dataset, tmp_path):
    dataset = Dataset.open(tiny_dataset)
    run = late_run(features, dataset.query_ids[60:63], 7)
    found = list(search(None, [60, 61, 62], 7, tmp_path, features, "cpu"))
    for ranking, (rows, scores) in zip(run.values(), found, strict=True):
        assert [dataset.passage_ids[row] for row in rows] == [hit.passage_id for hit in ranking]
        assert scores.tolist() == [hit.score for hit in ranking]


def test_an_interrupted_encoding_goes_on_with_the_same_ids(encoder, features, tiny_dataset, tmp_path, monkeypatch):
    settings = EncoderSettings(checkpoint=str(encoder.path), precision="float32", window=8)
    encode, calls = DualEncoder.encode_tokens, []

    def dies(self, texts, side):
        calls.append(side)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return encode(self, texts, side)

    monkeypatch.setattr(DualEncoder, "encode_tokens", dies)
    with pytest.raises(KeyboardInterrupt):
        encode_dataset(Dataset.open(tiny_dataset), settings, tmp_path / "features")
    again = open_features(encode_dataset(Dataset.open(tiny_dataset), settings, tmp_path / "features").path)
    np.testing.assert_array_equal(again.token_ids, features.token_ids)
    np.testing.assert_array_equal(again.query_token_ids, features.query_token_ids)
    np.testing.assert_array_equal(again.tokens, features.tokens)


def test_ids_of_tokens_in_shards_are_those_of_one_process_byte_for_byte(encoder, features, tiny_dataset, tmp_path):
    settings = EncoderSettings(checkpoint=str(encoder.path), precision="float32", window=16)
    dataset = Dataset.open(tiny_dataset)
    whole = encode_dataset(dataset, settings, tmp_path / "whole")
    made = encode_dataset(dataset, settings, tmp_path / "features", sharding=Sharding(shards=3))
    assert made.meta["files"] == whole.meta["files"]
    assert {"token_ids.npy", "query_token_ids.npy"} <= made.meta["files"].keys()


def test_storage_that_does_not_keep_lengths_is_refused_for_a_trained_encoder(encoder):
    with pytest.raises(InputError, match="int8 does not keep lengths"):
        DualEncoder(EncoderSettings(checkpoint=str(encoder.path), token_storage="int8"))


@pytest.mark.parametrize("wrong", [{"late_interaction": None}, {"similarity": "cosine"}, {"token_storage": "int8"}])
def test_settings_that_do_not_fit_are_refused(tiny_checkpoint, wrong):
    its = {"late_interaction": 8, "token_match": "same", "checkpoint": str(tiny_checkpoint)}
    with pytest.raises(InputError, match="token_match = same compares tokens by dot product"):
        EncoderSettings.parse(its | wrong)
