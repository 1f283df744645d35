"""SPLADE: weights of terms, trained with their cost of search, and searched by inverted lists."""

import shutil

import numpy as np
import pytest
import torch
from sentence_transformers import SparseEncoder as TheirSparseEncoder
from vocabularies import with_other_vocabulary

from gnnretrieval.data import Dataset
from gnnretrieval.encoders import sparse_encoder
from gnnretrieval.encoders.dry_run import forecast_encoding
from gnnretrieval.encoders.dual_encoder import DualEncoder
from gnnretrieval.encoders.features import encode_shard
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.encoders.sparse_encoder import SparseEncoder, pooled_terms
from gnnretrieval.encoders.sparse_features import encode_sparse, open_sparse_features
from gnnretrieval.errors import ArtifactError, GnnRetrievalError, InputError
from gnnretrieval.index.sparse_search import sparse_run
from gnnretrieval.losses import contrastive_loss
from gnnretrieval.mining.examples import Candidate, Example
from gnnretrieval.shards import Shard, Sharding, forecast
from gnnretrieval.training.encoder.dual_towers import Start, make_towers
from gnnretrieval.training.encoder.inspection import inspection, inspection_lines, open_trained
from gnnretrieval.training.encoder.pair_data import Texts
from gnnretrieval.training.encoder.settings import DualEncoderTrainSettings
from gnnretrieval.training.encoder.sparse_task import SparseTask, center_towers, flops
from gnnretrieval.training.encoder.train_encoder import train_dual_encoder

SETTINGS = DualEncoderTrainSettings(
    shared=True, epochs=2, batch_size=32, learning_rate=1e-3, dropout=0.0, precision="float32", hard_negatives=0
)
TEXTS = ["kobe sefi, lumi.", "dada", "bada gogo kobe kobe?"]
CPU = torch.device("cpu")


def settings_of(checkpoint, **more):
    common = {"sparse": True, "max_tokens": 32, "query_max_tokens": 12, "precision": "float32"}
    return EncoderSettings(checkpoint=str(checkpoint), **(common | more))


@pytest.fixture(scope="module")
def trained(tiny_checkpoint, tiny_dataset, tmp_path_factory):
    place = tmp_path_factory.mktemp("splade") / "splade"
    return train_dual_encoder(Dataset.open(tiny_dataset), [], settings_of(tiny_checkpoint), SETTINGS, place)


@pytest.fixture(scope="module")
def features(trained, tiny_dataset, tmp_path_factory):
    settings = EncoderSettings(checkpoint=str(trained.path), precision="float32")
    return encode_sparse(Dataset.open(tiny_dataset), settings, tmp_path_factory.mktemp("splade") / "features")


@pytest.fixture
def towers(tiny_checkpoint):
    start = Start.of(settings_of(tiny_checkpoint))
    return make_towers(start, shared=True, device=CPU, seed=0, dropout=0.0)


def dense(made, width):
    rows = np.zeros((len(made.counts), width), dtype=np.float32)
    rows[np.repeat(np.arange(len(made.counts)), made.counts), made.terms] = made.weights
    return rows


def test_queries_and_passages_need_one_vocabulary(trained, tmp_path):
    passages = trained.path / "passage"
    other = with_other_vocabulary(passages, tmp_path / "other")
    with pytest.raises(InputError, match=r"its vocabulary is not that of .*: give two encoders of one vocabulary"):
        SparseEncoder(settings_of(passages, query_checkpoint=str(other)))


def test_a_row_is_the_largest_log_of_one_plus_a_logit_of_each_term(towers):
    tower = towers["passage"]
    items = tower.items("passage", TEXTS)
    with torch.no_grad():
        rows = tower.rows(items)
        for row, item in zip(rows, items, strict=True):
            features = {"input_ids": torch.tensor([item.ids]), "attention_mask": torch.ones(1, len(item.ids))}
            logits = tower.module[0](features)["token_embeddings"][0]  # (t, V)
            torch.testing.assert_close(row, torch.log1p(logits.relu()).amax(0))
    assert rows.shape[1] == tower.width == len(tower.tokenizer)
    assert 0 < float((rows == 0).float().mean()) < 1


def test_the_weights_are_those_of_sentence_transformers(trained):
    encoder = SparseEncoder(EncoderSettings(checkpoint=str(trained.path), precision="float32", token_budget=24))
    theirs = TheirSparseEncoder(str(trained.path / "passage"), device="cpu")
    made = encoder.encode(TEXTS, "passage")
    expected = theirs.encode_document(TEXTS, convert_to_sparse_tensor=False).numpy()
    np.testing.assert_allclose(dense(made, len(encoder.vocabulary)), expected, atol=1e-5)
    assert encoder.encode([], "query").counts.tolist() == []


def test_the_loss_is_that_of_ranking_and_the_cost_of_search_whose_weights_grow(towers, tiny_checkpoint):
    texts = Texts({"q1": "bada gogo?", "q2": "kobe kobe"}, {"p1": "Bada dada.", "p2": "Kobe sefi, kobe."})
    examples = [Example(f"q{n}", (Candidate(f"p{n}", "label"),), ()) for n in (1, 2)]
    settings = SETTINGS.model_copy(
        update={"epochs": 4, "query_flops": 0.5, "passage_flops": 0.25, "flops_warmup": 0.5, "batch_size": 2}
    )
    task = SparseTask(examples, texts, towers, Start.of(settings_of(tiny_checkpoint)).similarity, settings, None)
    for epoch, share in ((0, 0.25), (1, 1.0), (3, 1.0)):  # two of four steps warm up, by the square
        batch = task.batch(epoch, 0)
        with torch.no_grad():
            rows = torch.cat([towers[item.tower].rows([item]) for item in batch.items])
        names = [item.tower for item in batch.items]
        assert names == ["query"] * 2 + ["passage"] * 2
        ranking = contrastive_loss(rows[:2] @ rows[2:].T, torch.arange(2), torch.eye(2, dtype=torch.bool))
        costs = 0.5 * rows[:2].mean(0).square().sum() + 0.25 * rows[2:].mean(0).square().sum()
        torch.testing.assert_close(batch.loss(rows), ranking + share * costs)


def test_a_higher_cost_makes_search_cheaper(tiny_checkpoint):
    start, texts = Start.of(settings_of(tiny_checkpoint)), Texts({"q": "bada gogo?"}, {"p": "Bada dada."})
    cost = []
    for weight in (0.0, 1.0):
        settings = SETTINGS.model_copy(update={"query_flops": weight, "passage_flops": weight, "flops_warmup": 0.0})
        towers = make_towers(start, shared=True, device=CPU, seed=0, dropout=0.0)
        example = Example("q", (Candidate("p", "label"),), ())
        task = SparseTask([example], texts, towers, start.similarity, settings, None)
        optimizer = torch.optim.Adam(towers["passage"].trained(), 1e-3)
        for _ in range(20):
            batch = task.batch(0, 0)
            rows = torch.cat([towers[item.tower].rows([item]) for item in batch.items])
            optimizer.zero_grad()
            batch.loss(rows).backward()
            optimizer.step()
        cost.append(float(flops(rows.detach())))
    assert cost[1] < 0.8 * cost[0]


def test_training_in_bfloat16_with_tied_embeddings_gives_finite_weights(tiny_checkpoint, tiny_dataset, tmp_path):
    settings = SETTINGS.model_copy(update={"precision": "bfloat16", "epochs": 1})
    made = train_dual_encoder(Dataset.open(tiny_dataset), [], settings_of(tiny_checkpoint), settings, tmp_path / "b")
    encoder = SparseEncoder(EncoderSettings(checkpoint=str(made.path), precision="float32"))
    head = encoder._models["passage"][0].auto_model
    assert head.get_output_embeddings().weight is head.get_input_embeddings().weight
    assert np.isfinite(encoder.encode(TEXTS, "query").weights).all()


def test_the_run_is_the_product_of_the_stored_weights(features, tiny_dataset):
    dataset = Dataset.open(tiny_dataset)
    features = open_sparse_features(features.path)
    width = features.meta["terms"]

    def rows(starts, terms, weights):
        class Made:
            counts = np.diff(starts)

        Made.terms, Made.weights = terms, weights
        return dense(Made, width)

    scores = rows(*features.queries()) @ rows(*features.passages()).T
    ids = ["test-00", "train-07"]
    run = sparse_run(features, ids, 15)
    for id_ in ids:
        row = scores[dataset.query_ids.index(id_)]
        best = sorted(zip(-row, range(len(row)), strict=True))[:15]
        assert [hit.passage_id for hit in run[id_]] == [dataset.passage_ids[number] for _, number in best]
        assert [hit.score for hit in run[id_]] == pytest.approx([-score for score, _ in best], rel=1e-3)


def test_an_interrupted_encoding_goes_on(trained, features, tiny_dataset, tmp_path, monkeypatch):
    settings = EncoderSettings(checkpoint=str(trained.path), precision="float32", window=8)
    encode, calls = SparseEncoder.encode, []

    def dies(self, texts, side):
        calls.append(side)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return encode(self, texts, side)

    monkeypatch.setattr(SparseEncoder, "encode", dies)
    with pytest.raises(KeyboardInterrupt):
        encode_sparse(Dataset.open(tiny_dataset), settings, tmp_path / "features")
    again = encode_sparse(Dataset.open(tiny_dataset), settings, tmp_path / "features")
    assert calls.count("passage") == 6  # 5 windows, one of them twice
    for one, other in zip(again.passages(), features.passages(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-2)


@pytest.mark.parametrize("token_budget", [24, 4096])  # several batches, and one
def test_one_thread_encodes_a_batch_as_their_number_decides_its_bytes(trained, monkeypatch, token_budget):
    settings = EncoderSettings(checkpoint=str(trained.path), precision="float32", token_budget=token_budget)
    encoder, threads = SparseEncoder(settings), []

    def noted(*given, **more):
        threads.append(torch.get_num_threads())
        return pooled_terms(*given, **more)

    monkeypatch.setattr(sparse_encoder, "pooled_terms", noted)
    torch.set_num_threads(2)
    try:
        encoder.encode(TEXTS, "passage")
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert threads == [1] * (1 if token_budget == 4096 else 3)


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_weights_in_shards_are_those_of_one_process_byte_for_byte(trained, tiny_dataset, tmp_path, shards):
    dataset = Dataset.open(tiny_dataset)
    settings = EncoderSettings(checkpoint=str(trained.path), precision="float32", window=16)
    whole = encode_sparse(dataset, settings, tmp_path / "whole")
    out = tmp_path / "features"
    for number in range(1, shards):  # the first is run when they are joined
        files = encode_shard(dataset, settings, out, Shard(number, shards))
        assert files[0].name == f"passages-{number + 1:05d}-of-{shards:05d}.npy"
    made = encode_sparse(dataset, settings, out, sharding=Sharding(shards=shards))
    assert made.meta["files"] == whole.meta["files"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["features", "whole"]  # nothing is left beside it


def test_a_dry_run_knows_the_bytes_of_the_weights(trained, features, tiny_dataset, monkeypatch):
    monkeypatch.setattr(forecast, "SECONDS", 0.0)  # the first measurement is long enough
    settings = EncoderSettings(checkpoint=str(trained.path), precision="float32")
    its = forecast_encoding(Dataset.open(tiny_dataset), settings, Sharding(shards=2))
    of_weights = 6 * features.meta["num_passage_terms"]
    assert its.stages[0].shard_bytes == pytest.approx(of_weights, rel=0.2)
    assert its.result_bytes > of_weights * (1 + 8 / 6) * 0.8


def test_a_shard_whose_weights_do_not_fit_its_terms_is_refused(trained, tiny_dataset, tmp_path):
    dataset = Dataset.open(tiny_dataset)
    settings = EncoderSettings(checkpoint=str(trained.path), precision="float32", window=16)
    file = encode_shard(dataset, settings, tmp_path / "features", Shard(0, 2))[0]
    np.save(file, np.load(file)[1:])
    with pytest.raises(ArtifactError, match=r"passages-00001-of-00002\.npy: this array is damaged"):
        encode_sparse(dataset, settings, tmp_path / "features", sharding=Sharding(shards=2))


def test_what_does_not_fit_is_a_sentence(trained, tiny_checkpoint, tiny_dataset, features, tmp_path):
    dataset = Dataset.open(tiny_dataset)
    with pytest.raises(GnnRetrievalError, match="and a vector per text is needed here"):
        DualEncoder(EncoderSettings(checkpoint=str(trained.path)))
    with pytest.raises(InputError, match="no head for masked language modelling"):
        encode_sparse(dataset, settings_of(tiny_checkpoint), tmp_path / "a")
    with pytest.raises(InputError, match="makes vectors, not weights of terms"):
        encode_sparse(dataset, EncoderSettings(checkpoint=str(tiny_checkpoint)), tmp_path / "a")
    with pytest.raises(ArtifactError, match="no features of query"):
        sparse_run(features, ["nobody"], 5)
    with pytest.raises(GnnRetrievalError, match="does not train with refresh_every"):
        train_dual_encoder(
            dataset,
            [],
            settings_of(tiny_checkpoint),
            SETTINGS.model_copy(update={"refresh_every": 1, "hard_negatives": 1}),
            tmp_path / "c",
        )


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"similarity": "cosine"}, "compares terms by dot product"),
        ({"late_interaction": 8}, "weights of terms, not of tokens"),
        ({"sentences": "mean"}, "weights of terms, not of tokens"),
        ({"api": {"endpoint": "https://a.example"}}, "needs a checkpoint"),
        ({"sparse": False, "own_terms": True}, "own_terms are those of a sparse encoder"),
    ],
)
def test_settings_that_do_not_fit_are_refused(tiny_checkpoint, wrong, says):
    with pytest.raises(InputError, match=says):
        EncoderSettings.parse({"sparse": True, "checkpoint": str(tiny_checkpoint)} | wrong)


def test_a_damaged_list_is_a_sentence(features, tmp_path, tiny_dataset):
    place = tmp_path / "features"
    shutil.copytree(features.path, place)
    file = place / "indices.csc.index.npy"
    np.save(file, np.load(file) + 1000)
    with pytest.raises(ArtifactError, match="and there are 40"):
        sparse_run(open_sparse_features(place), ["test-00"], 5)


def test_a_head_of_many_terms_is_shifted_to_the_terms_that_tell_texts_apart(tiny_checkpoint):
    start = Start.of(settings_of(tiny_checkpoint))
    towers = make_towers(start, shared=True, device=CPU, seed=0, dropout=0.0)
    tower, texts = towers["passage"], ["kobe sefi.", "dada bada", "bada gogo kobe", "lumi"]

    def logits():
        with torch.no_grad():
            return torch.cat(
                [tower.module[0](tower.padded([item]))["token_embeddings"].amax(1) for item in tower.items("", texts)]
            )

    before = logits()
    assert tower.center(texts, 1000, 4096) is None  # they have fewer terms
    center_towers(towers, texts, SETTINGS.model_copy(update={"start_terms": 5}))
    after = logits()
    assert int((after > 0).sum()) == 5 * 4 - 1  # the last of the kept ones is at 0
    change = after - before
    torch.testing.assert_close(change, change[:1].expand_as(change), atol=1e-4, rtol=0)  # a bias
    relative = before - before.mean(0)
    assert set(after.flatten().topk(19).indices.tolist()) == set(relative.flatten().topk(19).indices.tolist())
    center_towers(towers, texts, SETTINGS.model_copy(update={"start_terms": 5}))
    torch.testing.assert_close(logits(), after)  # it is sparse now


def test_the_gradient_of_the_active_terms_is_that_of_all_logits(tiny_checkpoint):
    gradients = []
    for whole in (False, True):
        towers = make_towers(Start.of(settings_of(tiny_checkpoint)), shared=True, device=CPU, seed=0, dropout=0.0)
        tower = towers["passage"]
        center_towers(towers, TEXTS, SETTINGS.model_copy(update={"start_terms": 20}))
        features = tower.padded(tower.items("", TEXTS))
        rows = pooled_terms(tower.module, features) if whole else tower.pooled(features, [])
        torch.manual_seed(1)
        (rows * torch.randn_like(rows)).sum().backward()
        gradients.append({name: p.grad for name, p in tower.module.named_parameters() if p.grad is not None})
        weights = rows.detach()
    assert gradients[0].keys() == gradients[1].keys()
    assert int((weights > 0).sum()) in range(40, 61)
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][name], atol=1e-4, rtol=1e-3)


def test_own_terms_are_those_of_the_text_with_the_weights_that_they_had(tiny_checkpoint):
    rows = {}
    for own in (False, True):
        start = Start.of(settings_of(tiny_checkpoint, own_terms=own))
        tower = make_towers(start, shared=True, device=CPU, seed=0, dropout=0.0)["passage"]
        items = tower.items("", TEXTS)
        with torch.no_grad():
            without_gradient = tower.rows(items)
        rows[own] = tower.rows(items).detach()
        torch.testing.assert_close(rows[own], without_gradient)
    special = set(tower.tokenizer.all_special_ids)
    for row, whole, item in zip(rows[True], rows[False], items, strict=True):
        terms = sorted(set(item.ids) - special)
        assert set(row.nonzero()[:, 0].tolist()) <= set(terms)
        torch.testing.assert_close(row[terms], whole[terms])


def test_own_terms_start_with_a_weight_for_nine_in_ten(tiny_checkpoint):
    texts = ["kobe sefi lumi.", "dada bada gogo", "bada gogo kobe", "lumi zu"]
    towers = make_towers(
        Start.of(settings_of(tiny_checkpoint, own_terms=True)), shared=True, device=CPU, seed=0, dropout=0.0
    )
    tower = towers["passage"]
    center_towers(towers, texts, SETTINGS)
    items = tower.items("", texts)
    with torch.no_grad():
        there = (tower.rows(items) > 0).sum(1)
    terms = sum(len(set(item.ids) - set(tower.tokenizer.all_special_ids)) for item in items)
    assert int(there.sum()) == pytest.approx(0.9 * terms, abs=1.5)


def test_an_encoder_of_own_terms_opens_as_it_was_trained(tiny_checkpoint, tiny_dataset, tmp_path):
    encoder, dataset = settings_of(tiny_checkpoint, own_terms=True), Dataset.open(tiny_dataset)
    made = train_dual_encoder(dataset, [], encoder, SETTINGS.model_copy(update={"epochs": 1}), tmp_path / "made")
    opened = SparseEncoder(EncoderSettings(checkpoint=str(made.path), precision="float32"))
    assert opened.settings.own_terms
    assert " terms, dot × 1, shared weights" in inspection_lines(inspection(open_trained(made.path)))[3]
    weights = opened.encode(TEXTS, "passage")
    tokenizer = opened._models["passage"].tokenizer
    for terms, text in zip(np.split(weights.terms, np.cumsum(weights.counts)[:-1]), TEXTS, strict=True):
        assert set(terms.tolist()) <= set(tokenizer(text)["input_ids"])


@pytest.mark.parametrize("damaged", ["{", "[1]", "7"])
def test_damaged_modules_are_a_sentence(trained, damaged, tmp_path):
    place = tmp_path / "splade"
    shutil.copytree(trained.path / "passage", place)
    (place / "modules.json").write_text(damaged)
    with pytest.raises(InputError):
        make_towers(Start.of(settings_of(place)), shared=True, device=CPU, seed=0)


def test_a_trained_splade_is_not_shifted(trained):
    towers = make_towers(
        Start.of(EncoderSettings(checkpoint=str(trained.path), precision="float32")), shared=True, device=CPU, seed=0
    )
    assert towers["passage"].center(TEXTS, 1, 4096) is None
