"""Pre-training on passages: masked language modelling, RetroMAE, Condenser and coCondenser."""

import shutil

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from transformers import AutoTokenizer, DistilBertConfig, DistilBertForMaskedLM

from gnnretrieval.data import Dataset
from gnnretrieval.encoders.checkpoint import find_checkpoint
from gnnretrieval.encoders.dual_encoder import DualEncoder
from gnnretrieval.encoders.learned_from import read_learned_from
from gnnretrieval.encoders.loading import has_language_model_head
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.errors import GnnRetrievalError, InputError
from gnnretrieval.training.encoder.inspection import inspection, inspection_lines, open_trained
from gnnretrieval.training.encoder.pretrain_heads import CondenserHead, EnhancedDecoder
from gnnretrieval.training.encoder.pretrain_task import PretrainTask, PretrainTower, pretrain_loss
from gnnretrieval.training.encoder.settings import DualEncoderTrainSettings, PretrainSettings
from gnnretrieval.training.encoder.train_encoder import train_dual_encoder
from gnnretrieval.training.encoder.train_pretrained import pretrain

CPU = torch.device("cpu")
SETTINGS = PretrainSettings(
    epochs=3, batch_size=16, learning_rate=3e-3, max_tokens=32, dropout=0.0, precision="float32", dev_queries=8
)
TEXTS = ["kobe sefi lumi dada bada gogo", "dada bada kobe", "lumi"]


@pytest.fixture(scope="module", params=["mlm", "retromae", "condenser", "cocondenser"])
def tower(request, tiny_checkpoint):
    torch.manual_seed(0)
    checkpoint = find_checkpoint(str(tiny_checkpoint.with_name("tiny-bert-bert")))
    return PretrainTower(checkpoint, CPU, SETTINGS.model_copy(update={"objective": request.param}))


def test_the_encoder_predicts_the_masked_share_of_a_text_and_never_special_tokens(tower):
    items = tower.items([" ".join(["kobe"] * 25)] * 40, 32)
    rows = tower.rows(items).detach()
    assert 0.25 < float(rows[:, 1].sum()) / sum(len(item.ids) - 2 for item in items) < 0.35
    (item,) = tower.items(["lumi"], 32)
    assert float(tower.rows([item]).detach()[0, 1]) in range(1, len(item.ids) - 1)  # at least one, and no special token


def test_a_row_holds_the_loss_of_the_masked_tokens(tower):
    (item,) = tower.items(["kobe sefi lumi dada"], 32)
    torch.manual_seed(5)
    row = tower.rows([item]).detach()[0]
    torch.manual_seed(5)
    ids, places = torch.tensor([item.ids]), torch.zeros(1, len(item.ids), dtype=torch.bool)
    draw = torch.rand(1, len(item.ids))
    draw[0, [0, -1]] = 2.0
    places = (draw < 0.3) | (draw == draw.min())
    kind, anything = torch.rand(ids.shape), torch.randint(len(tower.tokenizer), ids.shape)
    masked = torch.where(places & (kind < 0.8), tower.tokenizer.mask_token_id, ids)
    masked = torch.where(places & (kind >= 0.9), anything, masked)
    with torch.no_grad():
        logits = tower.model(input_ids=masked, attention_mask=torch.ones_like(ids)).logits
    expected = F.cross_entropy(logits[places], ids[places], reduction="sum")
    torch.testing.assert_close(row[0], expected)
    assert float(row[1]) == int(places.sum())


def test_padding_changes_no_vector_that_the_decoder_reads(tower):
    states = torch.randn(2, 5, 4)
    there = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]])
    alone = tower._vectors(states[1:, :2], there[1:, :2])
    torch.testing.assert_close(tower._vectors(states, there)[1:], alone)


def test_a_token_is_decoded_from_the_vector_and_what_it_sees_alone():
    torch.manual_seed(0)
    decoder = EnhancedDecoder(8, 2, 6).eval()
    vectors, embedded = torch.randn(1, 8), torch.randn(1, 4, 8)
    hidden = torch.eye(4, dtype=torch.bool)[None].clone()
    hidden[0, 0, 2] = True
    before = decoder(vectors, embedded, hidden)
    embedded[0, 2] += 1  # token 2 is hidden from itself and from token 0
    after = decoder(vectors, embedded, hidden)
    same = (before == after).all(-1)[0]
    assert same.tolist() == [True, False, True, False]
    assert not torch.equal(decoder(vectors + 1, embedded, hidden)[0, 0], after[0, 0])


def test_the_decoder_rebuilds_every_token_of_the_text(tiny_checkpoint):
    checkpoint = find_checkpoint(str(tiny_checkpoint.with_name("tiny-bert-bert")))
    tower = PretrainTower(checkpoint, CPU, SETTINGS)
    items = tower.items(TEXTS, 32)
    rows = tower.rows(items)
    assert rows[:, 4].tolist() == [len(item.ids) - 2 for item in items]
    pretrain_loss(rows).backward()
    assert all(parameter.grad is not None for parameter in tower.module["decoder"].parameters())


def test_the_loss_is_a_mean_over_predicted_tokens_of_encoder_and_decoder():
    rows = torch.tensor([[2.0, 1, 0, 3, 2], [4, 2, 1, 9, 4]])
    assert float(pretrain_loss(rows)) == pytest.approx(6 / 3 + 12 / 6)
    assert float(pretrain_loss(torch.tensor([[2.0, 1, 0, 0, 0]]))) == 2.0


def pretraining(tiny_checkpoint, objective, **settings):
    checkpoint = find_checkpoint(str(tiny_checkpoint.with_name("tiny-bert-bert")))
    chosen = SETTINGS.model_copy(update={"objective": objective, **settings})
    torch.manual_seed(0)
    return PretrainTask(TEXTS, TEXTS, PretrainTower(checkpoint, CPU, chosen), chosen)


def test_condensers_head_predicts_the_same_tokens_from_early_states_and_the_vector_of_the_last_layer(tiny_checkpoint):
    task = pretraining(tiny_checkpoint, "condenser")
    tower, layers = task.tower, task.tower.model.base_model.encoder.layer
    rows = tower.rows(task.items)
    assert torch.equal(rows[:, 3 + 1], rows[:, 1])
    given = []
    hooks = [
        layers[len(layers) // 2 - 1].register_forward_hook(lambda _, __, out: given.append(out)),
        tower.module["decoder"].register_forward_pre_hook(lambda _, read: given.extend(read)),
    ]
    tower.rows(task.items)
    early, vectors, states, present = given
    torch.testing.assert_close(states, early[0] if isinstance(early, tuple) else early)
    assert vectors.shape == (3, tower.model.config.hidden_size)
    assert present.sum(1).tolist() == [len(item.ids) for item in task.items]
    for hook in hooks:
        hook.remove()
    pretrain_loss(rows).backward()
    assert all(parameter.grad is not None for parameter in tower.module.parameters() if parameter.requires_grad)


def test_condensers_head_reads_the_vector_in_place_of_the_first_token_and_no_padding():
    torch.manual_seed(0)
    head = CondenserHead(8, 2)
    vectors, early, present = torch.randn(1, 8), torch.randn(1, 4, 8), torch.tensor([[True, True, True, False]])
    before = head(vectors, early, present)
    early[0, 0] += 1
    early[0, 3] += 1
    torch.testing.assert_close(head(vectors, early, present)[:, :3], before[:, :3])
    assert not torch.allclose(head(vectors + 1, early, present)[:, :3], before[:, :3])
    first, second = (layer.linear1.weight for layer in head.layers)
    assert not torch.equal(first, second)  # both start at random


def test_spans_are_disjoint_parts_of_a_text_and_change_by_epoch(tiny_checkpoint):
    task = pretraining(tiny_checkpoint, "cocondenser", max_tokens=8, batch_size=3)
    whole = {item.ids[1:-1] for item in task.items}
    assert max(map(len, whole)) > 6  # longer than one span may be
    cuts = set()
    for epoch in range(20):
        items = task.batch(epoch, 0).items
        assert len(items) == 2 * len(TEXTS)
        for one, two in zip(items[::2], items[1::2], strict=True):
            first, second = one.ids[1:-1], two.ids[1:-1]
            assert (one.ids[0], one.ids[-1]) == (two.ids[0], two.ids[-1]) == (task.dev[0].ids[0], task.dev[0].ids[-1])
            pairs = {(text[:cut][:6], text[cut:][:6]) for text in whole for cut in range(1, len(text))}
            assert (first, second) in pairs
            cuts.add((len(first), len(second)))
    assert len(cuts) > 3
    assert max(len(item.ids) for item in task.dev) == 8


def test_a_text_of_one_token_is_its_own_other_span_and_an_empty_one_trains(tiny_checkpoint):
    task = pretraining(tiny_checkpoint, "cocondenser")
    task.items = task.tower.items(["lumi"], 32)[:1] + task.tower.items([""], 32)
    one = task.tower.tokenizer.convert_tokens_to_ids("lumi")
    task.items[0] = task.items[0]._replace(ids=(task.items[0].ids[0], one, task.items[0].ids[-1]))
    items = task.batch(0, 0).items
    assert items[::2] == items[1::2]
    assert torch.isfinite(pretrain_loss(task.tower.rows(items)))


def test_the_other_span_of_a_text_is_found_among_all_spans_of_the_batch():
    vectors = torch.tensor([[1.0, 0], [2.0, 0], [0, 3.0], [0, 1.0]])  # two texts of two spans
    rows = torch.cat([torch.zeros(4, 5), vectors], dim=1)
    expected = []
    for one, other in ((0, 1), (1, 0), (2, 3), (3, 2)):
        scores = torch.stack([vectors[one] @ vectors[row] for row in range(4) if row != one])
        expected.append(torch.logsumexp(scores, 0) - vectors[one] @ vectors[other])
    assert float(pretrain_loss(rows)) == pytest.approx(float(torch.stack(expected).mean()))


def test_dev_masks_the_same_tokens_every_time_and_leaves_the_generator_alone(tower):
    task = PretrainTask(TEXTS, TEXTS, tower, SETTINGS)
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    with torch.no_grad():
        assert task.measure({}) == task.measure({})
    assert torch.rand(1) == expected


def test_pretraining_predicts_more_tokens_and_opens_as_an_encoder_and_as_a_language_model(
    tiny_checkpoint, tiny_dataset, tmp_path
):
    encoder = EncoderSettings(checkpoint=str(tiny_checkpoint), precision="float32", max_tokens=32)
    settings = SETTINGS.model_copy(update={"epochs": 8})
    made = pretrain(Dataset.open(tiny_dataset), encoder, settings, tmp_path / "made")
    best = made.meta["dev"]["best"]
    assert best["step"] > 0
    assert has_language_model_head(find_checkpoint(str(made.path / "passage")))
    opened = DualEncoder(EncoderSettings(checkpoint=str(made.path), precision="float32"))
    assert opened.settings.max_tokens == 32
    assert np.abs(opened.encode(TEXTS, "passage") - DualEncoder(encoder).encode(TEXTS, "passage")).max() > 1e-3


def test_what_its_start_learned_from_is_kept(tiny_checkpoint, tiny_dataset, tmp_path):
    dataset, encoder = Dataset.open(tiny_dataset), EncoderSettings(checkpoint=str(tiny_checkpoint), max_tokens=32)
    settings = DualEncoderTrainSettings(shared=True, epochs=1, hard_negatives=0, precision="float32")
    dpr = train_dual_encoder(dataset, [], encoder, settings, tmp_path / "dpr")
    start = EncoderSettings(checkpoint=str(dpr.path), precision="float32")
    made = pretrain(dataset, start, SETTINGS.model_copy(update={"epochs": 1}), tmp_path / "made")
    assert read_learned_from(made.path) == read_learned_from(dpr.path) != frozenset()


def test_a_head_of_an_unknown_kind_is_refused(tiny_checkpoint, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(tiny_checkpoint.with_name("tiny-bert-bert"))
    config = DistilBertConfig(vocab_size=len(tokenizer), dim=16, n_layers=1, n_heads=2, hidden_dim=16)
    DistilBertForMaskedLM(config).save_pretrained(tmp_path / "distil")
    tokenizer.save_pretrained(tmp_path / "distil")
    with pytest.raises(
        InputError, match="DistilBertForMaskedLM: pre-training here knows the heads of BERT and RoBERTa"
    ):
        PretrainTower(find_checkpoint(str(tmp_path / "distil")), CPU, SETTINGS)


def test_a_corpus_of_one_passage_is_refused(tiny_checkpoint, tmp_path, tiny_dataset):
    place = tmp_path / "one"
    shutil.copytree(tiny_dataset, place)
    corpus = place / "corpus.jsonl"
    corpus.write_text(corpus.read_text().splitlines()[0] + "\n")
    for split in ("dev", "test"):
        (place / "qrels" / f"{split}.tsv").unlink()
    (place / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\ntrain-00\tp00\t1\n")
    encoder = EncoderSettings(checkpoint=str(tiny_checkpoint), precision="float32")
    with pytest.raises(GnnRetrievalError, match="at least two passages"):
        pretrain(Dataset.open(place), encoder, SETTINGS, tmp_path / "made")


def test_its_inspection_says_what_it_read_and_predicted(tiny_checkpoint, tiny_dataset, tmp_path):
    encoder = EncoderSettings(checkpoint=str(tiny_checkpoint), precision="float32", max_tokens=32)
    made = pretrain(Dataset.open(tiny_dataset), encoder, SETTINGS.model_copy(update={"epochs": 1}), tmp_path / "made")
    lines = inspection_lines(inspection(open_trained(made.path)))
    assert lines[1] == "trained on tiny: 36 passages"
    assert lines[3] == "dev:  step   predicted"


def test_another_prompt_makes_it_again(tiny_checkpoint, tiny_dataset, tmp_path, said):
    encoder = EncoderSettings(checkpoint=str(tiny_checkpoint), precision="float32", max_tokens=32)
    settings, dataset = SETTINGS.model_copy(update={"epochs": 1}), Dataset.open(tiny_dataset)
    for one, reused in ((encoder, False), (encoder, True), (encoder.model_copy(update={"query_prompt": "q: "}), False)):
        said.clear()
        made = pretrain(dataset, one, settings, tmp_path / "made", overwrite=True)
        assert any("reused" in line for line in said) == reused
        assert made.meta["encoder"]["query_prompt"] == one.query_prompt
