import numpy as np
import pytest
import torch

from gnnretrieval.data import Dataset
from gnnretrieval.encoders.checkpoint import find_checkpoint
from gnnretrieval.encoders.dual_encoder import DualEncoder
from gnnretrieval.encoders.sentence_tokens import SENT
from gnnretrieval.encoders.settings import EncoderSettings
from gnnretrieval.encoders.similarity import Similarity
from gnnretrieval.errors import InputError
from gnnretrieval.training.encoder.settings import DualEncoderTrainSettings
from gnnretrieval.training.encoder.towers import Item, TextTower
from gnnretrieval.training.encoder.train_encoder import train_dual_encoder
from gnnretrieval.training.weights import MasterWeights

DOT, COSINE = Similarity(normalize=False, scale=1.0), Similarity(normalize=True, scale=20.0)


def tower(checkpoint, similarity=DOT, **settings):
    return TextTower(find_checkpoint(str(checkpoint)), similarity, torch.device("cpu"), **settings)


def states_of(checkpoint, ids):
    from transformers import AutoModel

    model = AutoModel.from_pretrained(find_checkpoint(str(checkpoint)).directory).eval()
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids])).last_hidden_state[0]


def rows(encoder, items):
    encoder.module.eval()
    with torch.no_grad():
        return encoder.rows(items)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_tokens_are_pooled_as_asked_and_saved_so(tiny_checkpoint, tmp_path, pooling):
    from sentence_transformers import SentenceTransformer

    encoder = tower(tiny_checkpoint, pooling=pooling)
    (ids,) = encoder.tokens(["bada gogo kobe"])
    states = states_of(tiny_checkpoint, ids)
    expected = states[0] if pooling == "cls" else states.mean(0)
    torch.testing.assert_close(rows(encoder, [Item("passage", tuple(ids))])[0], expected, atol=1e-5, rtol=1e-5)
    encoder.save(tmp_path / "saved")
    saved = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    np.testing.assert_allclose(saved.encode("bada gogo kobe"), expected, atol=1e-5)
    assert saved.similarity_fn_name == "dot"


def test_padding_changes_nothing(tiny_checkpoint):
    encoder = tower(tiny_checkpoint, COSINE)
    ids = encoder.tokens(["bada", "bada gogo kobe lumi nari", "sefi tuva"])
    together = rows(encoder, [Item("passage", tuple(one)) for one in ids])
    alone = torch.cat([rows(encoder, [Item("passage", tuple(one))]) for one in ids])
    torch.testing.assert_close(together, alone, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(together.norm(dim=1), torch.ones(3))


def test_the_new_sentence_token_starts_as_the_mean_of_all_and_is_where_sentences_are_read(tiny_checkpoint):
    encoder = tower(tiny_checkpoint, sentences="token")
    number = encoder.tokenizer.convert_tokens_to_ids(SENT)
    table = encoder.module[0].auto_model.get_input_embeddings().weight
    assert number == len(table) - 1
    torch.testing.assert_close(table[number], table[:-1].mean(0))
    ids = (2, number, 7, 8, number, 9, 3)
    with torch.no_grad():
        states = encoder.module[0].auto_model(input_ids=torch.tensor([ids])).last_hidden_state[0]
    found = rows(encoder, [Item("passage", ids, (), ((1, 4), (4, 6)))])
    torch.testing.assert_close(found, states[[1, 4]], atol=1e-5, rtol=1e-5)


def test_a_sentence_read_by_its_mean_is_that_of_its_tokens(tiny_checkpoint):
    encoder = tower(tiny_checkpoint, sentences="mean")
    (ids,) = encoder.tokens(["bada gogo kobe lumi"])
    states = states_of(tiny_checkpoint, ids)
    found = rows(encoder, [Item("passage", tuple(ids), (), ((1, 3), (3, 5)))])
    torch.testing.assert_close(found, torch.stack([states[1:3].mean(0), states[3:5].mean(0)]), atol=1e-5, rtol=1e-5)


def test_a_prompt_comes_before_every_text_of_its_side(tiny_checkpoint):
    encoder = tower(tiny_checkpoint, prompt="passage: ")
    assert encoder.tokens(["bada"]) == tower(tiny_checkpoint).tokens(["passage: bada"])
    asked = encoder.for_queries("query: ", 5)
    assert asked.tokens(["bada"])[0] == [*tower(tiny_checkpoint).tokens(["query: bada"])[0][:4], 3]
    assert asked.module is encoder.module


def test_dropout_is_what_is_asked_for(tiny_checkpoint):
    encoder = tower(tiny_checkpoint, dropout=0.25)
    found = {part.p for part in encoder.module.modules() if isinstance(part, torch.nn.Dropout)}
    assert found == {0.25}


def test_a_checkpoint_of_static_embeddings_cannot_be_trained(tmp_path):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "bada": 1}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=4)]).save(str(tmp_path / "static"))
    with pytest.raises(InputError, match="not a transformer: it cannot be trained"):
        tower(tmp_path / "static")


def test_bfloat16_copies_follow_their_float32_weights_and_hand_them_their_gradients(tiny_checkpoint):
    encoder = tower(tiny_checkpoint, COSINE)
    before = [parameter.detach().clone() for parameter in encoder.trained()]
    weights = MasterWeights([encoder], torch.bfloat16)
    assert {parameter.dtype for parameter in encoder.trained()} == {torch.bfloat16}
    assert all(torch.equal(one, other) for one, other in zip(weights.parameters, before, strict=True))
    item = Item("passage", tuple(encoder.tokens(["bada gogo"])[0]))
    for _ in range(2):  # two parts of a batch: gradients add up
        encoder.rows([item])[:, 0].sum().backward()
    assert all(parameter.grad is None for parameter in encoder.trained())
    exact = tower(tiny_checkpoint, COSINE)
    (2 * exact.rows([item])[:, 0].sum()).backward()
    found, expected = (
        torch.cat([parameter.grad.flatten() for parameter in parameters if parameter.grad is not None])
        for parameters in (list(weights.parameters), exact.trained())
    )
    assert found.dtype == torch.float32
    assert torch.nn.functional.cosine_similarity(found, expected, dim=0) > 0.98
    with torch.no_grad():
        for master in weights.parameters:
            master.add_(1.0)
    weights.publish()
    assert all(
        torch.equal(parameter, master.to(torch.bfloat16))
        for parameter, master in zip(encoder.trained(), weights.parameters, strict=True)
    )
    weights.to_float32()
    assert all(
        parameter.dtype == torch.float32 and torch.equal(parameter, master)
        for parameter, master in zip(encoder.trained(), weights.parameters, strict=True)
    )


def test_a_checkpoints_own_prompts_are_trained_with_and_saved(tiny_dataset, tiny_checkpoint, tmp_path):
    from sentence_transformers import SentenceTransformer

    prompted = SentenceTransformer(str(tiny_checkpoint), device="cpu")
    prompted.prompts = {"query": "bada ", "document": "gogo "}
    prompted.save(str(tmp_path / "prompted"))
    encoder = tower(tmp_path / "prompted", COSINE)
    assert (encoder.prompt, encoder.for_queries(None, 9).prompt) == ("gogo ", "bada ")
    settings = DualEncoderTrainSettings(shared=True, epochs=1, batch_size=30, hard_negatives=0, precision="float32")
    given = EncoderSettings(checkpoint=str(tmp_path / "prompted"))
    made = train_dual_encoder(Dataset.open(tiny_dataset), [], given, settings, tmp_path / "out")
    assert (made.meta["encoder"]["query_prompt"], made.meta["encoder"]["passage_prompt"]) == ("bada ", "gogo ")
    saved = SentenceTransformer(str(made.path / "passage"), device="cpu")
    assert saved.prompts["query"] == "bada "
    ours = DualEncoder(EncoderSettings(checkpoint=str(made.path), precision="float32"))
    np.testing.assert_allclose(ours.encode(["kobe"], "query")[0], saved.encode_query("kobe"), atol=2e-6)
    np.testing.assert_allclose(ours.encode(["kobe"], "passage")[0], saved.encode_document("kobe"), atol=2e-6)


def test_what_is_compared_by_cosine_is_saved_normalised(tiny_checkpoint, tmp_path):
    from sentence_transformers import SentenceTransformer

    bare = tiny_checkpoint.with_name("tiny-bert-bert")  # of transformers: no modules of sentence-transformers
    tower(bare, COSINE).save(tmp_path / "saved")
    vector = SentenceTransformer(str(tmp_path / "saved"), device="cpu").encode("bada gogo")
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-6)


def test_sentences_are_read_at_their_places_whatever_side_a_tokenizer_pads(tiny_checkpoint):
    encoder = tower(tiny_checkpoint, sentences="mean")
    items = [Item("passage", tuple(ids), (), ((1, 3),)) for ids in encoder.tokens(["bada gogo", "bada gogo kobe lumi"])]
    expected = rows(encoder, items)
    encoder.tokenizer.padding_side = "left"
    torch.testing.assert_close(rows(encoder, items), expected)


def test_layers_after_the_pooling_train_in_float32_beside_a_bfloat16_transformer(tiny_checkpoint, tmp_path):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Dense, Pooling, Transformer

    transformer = Transformer(str(tiny_checkpoint.with_name("tiny-bert-bert")))
    modules = [transformer, Pooling(32, pooling_mode="mean"), Dense(32, 8)]
    SentenceTransformer(modules=modules, device="cpu").save(str(tmp_path / "dense"))
    encoder = tower(tmp_path / "dense", COSINE)
    weights = MasterWeights([encoder], torch.bfloat16)
    encoder.rows([Item("passage", tuple(encoder.tokens(["bada"])[0]))]).sum().backward()
    assert encoder.width == 8
    assert encoder.module[2].linear.weight.dtype == torch.float32
    assert all(parameter.grad is not None for parameter in weights.parameters[-2:])
    with pytest.raises(InputError, match="layers after its pooling, which vectors of sentences would skip"):
        tower(tmp_path / "dense", COSINE, sentences="mean")


@pytest.mark.parametrize("name", ["max_tokens", "query_max_tokens"])
@pytest.mark.parametrize(("width", "least"), [(None, 3), (8, 4)])
def test_a_maximum_length_without_room_for_a_text_is_refused_before_training(
    name, width, least, tiny_dataset, tiny_checkpoint, tmp_path
):
    encoder = EncoderSettings(checkpoint=str(tiny_checkpoint), late_interaction=width, **{name: least - 1})
    settings = DualEncoderTrainSettings(epochs=1, hard_negatives=0)
    with pytest.raises(InputError, match=f" {name} is {least - 1}: give at least {least}, for a token of the text"):
        train_dual_encoder(Dataset.open(tiny_dataset), [], encoder, settings, tmp_path / "encoder")
