import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gnnretrieval.data import Dataset
from gnnretrieval.encoders import DualEncoder, EncoderSettings
from gnnretrieval.encoders.batching import batches_by_tokens
from gnnretrieval.encoders.features import encode_dataset
from gnnretrieval.encoders.token_counts import EncoderTokens
from gnnretrieval.errors import GnnRetrievalError, InputError


@pytest.fixture(scope="module")
def texts(tiny_dataset) -> list[str]:
    """Of 3 to 60 words."""
    words = " ".join(passage.full_text for passage in Dataset.open(tiny_dataset).passages()).split()
    return [" ".join(words[start : start + 3 + start % 58]) for start in range(0, 300, 13)]


def encoder_of(checkpoint: Path, **settings) -> DualEncoder:
    return DualEncoder(EncoderSettings(checkpoint=str(checkpoint), **{"precision": "float32", **settings}))


@pytest.fixture(scope="module")
def encoder(tiny_checkpoint) -> DualEncoder:
    return encoder_of(tiny_checkpoint)


def test_it_equals_sentence_transformers(encoder, tiny_checkpoint, texts):
    from sentence_transformers import SentenceTransformer

    expected = SentenceTransformer(str(tiny_checkpoint), device="cpu").encode(texts)
    np.testing.assert_allclose(encoder.encode(texts, "passage"), expected, atol=1e-5)


def test_a_vector_does_not_depend_on_its_batch(encoder, tiny_checkpoint, texts):
    together = encoder.encode(texts, "passage")
    assert together.dtype == np.float32
    alone = np.concatenate([encoder.encode([text], "passage") for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-5)
    turned = encoder.encode(texts[::-1], "passage")[::-1]
    np.testing.assert_allclose(together, turned, atol=1e-5)
    small = encoder_of(tiny_checkpoint, token_budget=50).encode(texts, "passage")
    np.testing.assert_allclose(together, small, atol=1e-5)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_vector_is_the_same_bytes_whatever_texts_are_beside_it(tiny_checkpoint, texts, precision):
    encoder = encoder_of(tiny_checkpoint, precision=precision)
    together = encoder.encode(texts, "passage")
    alone = np.concatenate([encoder.encode([text], "passage") for text in texts])
    assert np.array_equal(together, alone)
    small = encoder_of(tiny_checkpoint, precision=precision, token_budget=50)
    turned = small.encode(texts[::-1] + texts[5:], "passage")[: len(texts)][::-1]
    assert np.array_equal(together, turned)


@pytest.mark.parametrize("mode", ["cls", "max", ("mean", "lasttoken")])
def test_every_way_of_pooling_is_sentence_transformers(tiny_checkpoint, texts, tmp_path, mode):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    base = SentenceTransformer(str(tiny_checkpoint), device="cpu")
    model = SentenceTransformer(modules=[base[0], Pooling(32, pooling_mode=mode)], device="cpu")
    model.save(str(tmp_path / "model"))
    found = encoder_of(tmp_path / "model", similarity="dot").encode(texts, "passage")
    np.testing.assert_allclose(found, model.encode(texts), atol=1e-5)


def test_an_architecture_that_is_not_packed_equals_sentence_transformers(tiny_checkpoint, texts, tmp_path):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import AutoTokenizer, DistilBertConfig, DistilBertModel

    tokenizer = AutoTokenizer.from_pretrained(tiny_checkpoint)
    torch.manual_seed(0)
    sizes = {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64, "max_position_embeddings": 64}
    DistilBertModel(DistilBertConfig(vocab_size=len(tokenizer), **sizes)).save_pretrained(tmp_path / "distilbert")
    tokenizer.save_pretrained(tmp_path / "distilbert")
    transformer = Transformer(str(tmp_path / "distilbert"), max_seq_length=64)
    model = SentenceTransformer(modules=[transformer, Pooling(32, pooling_mode="mean")], device="cpu")
    model.save(str(tmp_path / "model"))
    found = encoder_of(tmp_path / "model", similarity="dot").encode(texts, "passage")
    np.testing.assert_allclose(found, model.encode(texts), atol=1e-5)


def test_static_embeddings_are_sentence_transformers_in_either_precision(tiny_checkpoint, texts, tmp_path):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from transformers import AutoTokenizer

    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(tiny_checkpoint).backend_tokenizer
    model = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=24)], device="cpu")
    model.save(str(tmp_path / "model"))
    for precision in ("float32", "bfloat16"):
        found = encoder_of(tmp_path / "model", similarity="dot", precision=precision).encode(texts, "passage")
        np.testing.assert_allclose(found, model.encode(texts), atol=1e-6)


def test_padding_changes_nothing(encoder, texts):
    short = min(texts, key=len)
    with_long = encoder.encode([short, " ".join(texts)], "passage")[0]
    np.testing.assert_allclose(with_long, encoder.encode([short], "passage")[0], atol=1e-5)


def test_the_same_texts_give_the_same_bytes(encoder, texts):
    assert encoder.encode(texts, "query").tobytes() == encoder.encode(texts, "query").tobytes()


def test_cosine_vectors_have_length_1_and_dot_product_ones_their_own(tiny_checkpoint, texts, tmp_path):
    shutil.copytree(tiny_checkpoint, tmp_path / "model")
    modules = json.loads((tmp_path / "model" / "modules.json").read_text())
    (tmp_path / "model" / "modules.json").write_text(json.dumps(modules[:2]))  # without Normalize
    cosine = encoder_of(tmp_path / "model", similarity="cosine")
    dot = encoder_of(tmp_path / "model", similarity="dot")
    assert (cosine.similarity.normalize, cosine.similarity.scale) == (True, 20.0)
    assert (dot.similarity.normalize, dot.similarity.scale) == (False, 1.0)
    unit, own = cosine.encode(texts, "passage"), dot.encode(texts, "passage")
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1, rtol=1e-5)
    lengths = np.linalg.norm(own, axis=1, keepdims=True)
    assert lengths.std() > 1e-3
    np.testing.assert_allclose(unit, own / lengths, atol=1e-5)


def test_similarity_and_scale_are_the_checkpoints_where_none_is_set(tiny_checkpoint, tmp_path):
    shutil.copytree(tiny_checkpoint, tmp_path / "model")
    path = tmp_path / "model" / "config_sentence_transformers.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "similarity_fn_name": "dot"}))
    assert not encoder_of(tmp_path / "model").similarity.normalize
    assert encoder_of(tiny_checkpoint).similarity.normalize
    assert encoder_of(tiny_checkpoint, scale=7.5).similarity.scale == 7.5


def test_texts_are_cut_at_max_tokens(tiny_checkpoint, texts):
    encoder = encoder_of(tiny_checkpoint, max_tokens=6)  # [CLS], 4 words, [SEP]
    first = " ".join(" ".join(texts).replace(".", "").split()[:4])
    both = [f"{first} {texts[5]}", first]
    cut, whole = encoder.encode(both, "passage")
    np.testing.assert_allclose(cut, whole, atol=1e-5)
    assert not np.allclose(*encoder_of(tiny_checkpoint).encode(both, "passage"), atol=1e-3)


def test_texts_are_cut_at_the_checkpoints_limit_where_none_is_set(encoder, texts):
    words = " ".join(texts).split()
    first, second = (encoder.encode([" ".join(words[:count])], "passage") for count in (62, 150))
    np.testing.assert_allclose(first, second, atol=1e-5)


def test_a_roberta_has_no_position_for_its_padding_and_the_one_before(tiny_checkpoint, tmp_path):
    from transformers import AutoTokenizer, RobertaConfig, RobertaModel

    tokenizer = AutoTokenizer.from_pretrained(tiny_checkpoint)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    config = RobertaConfig(vocab_size=len(tokenizer), max_position_embeddings=42, pad_token_id=1, **sizes)
    RobertaModel(config).save_pretrained(tmp_path / "roberta")
    tokenizer.model_max_length = 10**30  # no limit: as some checkpoints of the hub
    tokenizer.save_pretrained(tmp_path / "roberta")
    encoder = encoder_of(tmp_path / "roberta")
    assert EncoderTokens(encoder.settings).limits == {"passage": 40, "query": 40}
    assert encoder.encode(["bada " * 50], "passage").shape == (1, 32)
    for wrong in ("max_tokens", "query_max_tokens"):
        with pytest.raises(InputError, match=f"has positions for 40 tokens, and {wrong} is 41"):
            encoder_of(tmp_path / "roberta", **{wrong: 41})


@pytest.mark.parametrize("name", ["max_tokens", "query_max_tokens"])
def test_a_limit_that_leaves_no_token_of_the_text_is_refused(name, tiny_checkpoint):
    """Of 1, the tokenizer cut nothing; of 2, all texts had one vector."""
    for few in (1, 2):
        with pytest.raises(InputError, match=f"{name} is {few}: give at least 3, for a token of the text"):
            encoder_of(tiny_checkpoint, **{name: few})
        with pytest.raises(InputError, match=f"{name} is {few}: give at least 3"):
            EncoderTokens(EncoderSettings(checkpoint=str(tiny_checkpoint), **{name: few}))
    encoder_of(tiny_checkpoint, **{name: 3})


def test_with_late_interaction_the_least_limit_has_a_marker_too(tiny_late_encoder):
    for name in ("max_tokens", "query_max_tokens"):
        with pytest.raises(InputError, match=f"{name} is 3: give at least 4"):
            encoder_of(tiny_late_encoder.path, **{name: 3})


def test_more_tokens_than_the_checkpoint_has_positions_are_an_error_in_a_sentence(tiny_checkpoint, texts):
    with pytest.raises(GnnRetrievalError, match="64"):
        encoder_of(tiny_checkpoint, max_tokens=500).encode([" ".join(texts)], "passage")


@pytest.mark.parametrize("side", ["query", "passage"])
def test_no_texts_give_no_vectors_of_the_right_width(encoder, side):
    vectors = encoder.encode([], side)
    assert (vectors.shape, vectors.dtype) == ((0, 32), np.float32)


def test_an_empty_text_has_a_vector(encoder):
    assert np.isfinite(encoder.encode(["", "a"], "passage")).all()


@pytest.fixture(scope="module")
def other_checkpoint(tiny_checkpoint, tmp_path_factory) -> Path:
    """The same shape with other weights."""
    from safetensors.torch import load_file, save_file

    directory = tmp_path_factory.mktemp("other") / "model"
    shutil.copytree(tiny_checkpoint, directory)
    weights = load_file(directory / "model.safetensors")
    name = "encoder.layer.1.output.dense.weight"
    weights[name] = weights[name].flip(0) * 20
    save_file(weights, directory / "model.safetensors", {"format": "pt"})
    return directory


def test_queries_and_passages_share_weights_unless_queries_have_their_own(
    encoder, tiny_checkpoint, other_checkpoint, texts
):
    assert np.array_equal(encoder.encode(texts, "query"), encoder.encode(texts, "passage"))
    two = encoder_of(tiny_checkpoint, query_checkpoint=str(other_checkpoint))
    np.testing.assert_allclose(two.encode(texts, "passage"), encoder.encode(texts, "passage"), atol=1e-6)
    expected = encoder_of(other_checkpoint).encode(texts, "query")
    np.testing.assert_allclose(two.encode(texts, "query"), expected, atol=1e-6)
    assert not np.allclose(expected, encoder.encode(texts, "query"), atol=1e-2)


def test_a_query_encoder_of_another_width_is_refused(tiny_checkpoint, tmp_path):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Dense

    wide = SentenceTransformer(str(tiny_checkpoint), device="cpu")
    narrow = SentenceTransformer(modules=[wide[0], wide[1], Dense(32, 16)], device="cpu")
    narrow.save(str(tmp_path / "narrow"))
    with pytest.raises(GnnRetrievalError, match=r"16.*32|32.*16"):
        encoder_of(tiny_checkpoint, query_checkpoint=str(tmp_path / "narrow"))


def test_a_checkpoint_with_a_dense_layer_encodes_in_either_precision(tiny_checkpoint, texts, tmp_path):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Dense

    wide = SentenceTransformer(str(tiny_checkpoint), device="cpu")
    torch.manual_seed(0)
    narrow = SentenceTransformer(modules=[wide[0], wide[1], Dense(32, 16)], device="cpu")
    narrow.save(str(tmp_path / "narrow"))
    full = encoder_of(tmp_path / "narrow")
    assert full.dimension == 16
    reduced = encoder_of(tmp_path / "narrow", precision="bfloat16")
    cosines = (full.encode(texts, "passage") * reduced.encode(texts, "passage")).sum(1)
    assert cosines.min() > 0.99


def test_prompts_of_the_checkpoint_go_before_the_texts(tiny_checkpoint, encoder, texts, tmp_path):
    shutil.copytree(tiny_checkpoint, tmp_path / "model")
    path = tmp_path / "model" / "config_sentence_transformers.json"
    prompts = {"query": f"{texts[3]} ", "document": ""}
    path.write_text(json.dumps({**json.loads(path.read_text()), "prompts": prompts}))
    prompted = encoder_of(tmp_path / "model")
    np.testing.assert_allclose(
        prompted.encode(["a b"], "query"), encoder.encode([f"{texts[3]} a b"], "query"), atol=1e-6
    )
    np.testing.assert_allclose(prompted.encode(["a b"], "passage"), encoder.encode(["a b"], "passage"), atol=1e-6)


def test_a_prompt_that_is_no_text_is_refused(tiny_checkpoint, tmp_path):
    shutil.copytree(tiny_checkpoint, tmp_path / "model")
    path = tmp_path / "model" / "config_sentence_transformers.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "prompts": {"query": {"a": 1}}}))
    with pytest.raises(GnnRetrievalError, match="prompt for a query is"):
        encoder_of(tmp_path / "model").encode(["a"], "query")


def test_bfloat16_is_near_float32_and_comes_out_as_float32(tiny_checkpoint, encoder, texts):
    reduced = encoder_of(tiny_checkpoint, precision="bfloat16")
    assert reduced.dtype == torch.bfloat16
    vectors = reduced.encode(texts, "passage")
    assert vectors.dtype == np.float32
    assert (vectors * encoder.encode(texts, "passage")).sum(1).min() > 0.999
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)


def test_damaged_weights_are_an_error_in_a_sentence(tiny_checkpoint, tmp_path):
    shutil.copytree(tiny_checkpoint, tmp_path / "model")
    weights = tmp_path / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    with pytest.raises(InputError, match="model: this checkpoint cannot be loaded") as caught:
        encoder_of(tmp_path / "model")
    assert "\n" not in str(caught.value)


@given(lengths=st.lists(st.integers(0, 40), max_size=30), budget=st.integers(1, 100))
def test_batches_hold_every_text_once_within_the_budget_of_padded_tokens(lengths, budget):
    batches = batches_by_tokens(np.array(lengths, dtype=np.int64), budget)
    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    for batch in batches:
        longest = max(lengths[row] for row in batch)
        assert len(batch) == 1 or len(batch) * longest <= budget
    in_order = [lengths[row] for batch in batches for row in batch]
    assert in_order == sorted(lengths, reverse=True)


def test_a_given_prompt_is_put_before_the_text(tiny_settings):
    prompted = DualEncoder(tiny_settings.model_copy(update={"query_prompt": "query: ", "passage_prompt": "passage: "}))
    plain = DualEncoder(tiny_settings)
    text = "bada kilo mona pire tuzo"
    np.testing.assert_allclose(prompted.encode([text], "query"), plain.encode([f"query: {text}"], "query"), atol=1e-6)
    np.testing.assert_allclose(
        prompted.encode([text], "passage"), plain.encode([f"passage: {text}"], "passage"), atol=1e-6
    )


@pytest.mark.parametrize(
    ("file", "entry", "value"),
    [
        ("1_Pooling", "embedding_dimension", []),
        ("1_Pooling", "embedding_dimension", 10**12),
        ("2_Normalize", "module_output_name", {}),
    ],
)
def test_settings_of_modules_that_cannot_be_are_a_sentence(file, entry, value, tiny_checkpoint, tmp_path):
    directory = shutil.copytree(tiny_checkpoint, tmp_path / "checkpoint")
    if not (directory / file / "config.json").is_file():
        pytest.skip("sentence-transformers before 6.0 gives this module no settings")
    config = json.loads((directory / file / "config.json").read_text())
    (directory / file / "config.json").write_text(json.dumps({**config, entry: value}))
    with pytest.raises(InputError, match="this checkpoint cannot be loaded"):
        DualEncoder(EncoderSettings(checkpoint=str(directory)))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("device", ["cuda", "gpu"])
def test_a_device_that_is_not_here_is_no_damage_of_the_checkpoint(tiny_dataset, tiny_settings, device, tmp_path):
    for encode in (
        lambda: DualEncoder(tiny_settings, device),
        lambda: encode_dataset(Dataset.open(tiny_dataset), tiny_settings, tmp_path / "features", device=device),
    ):
        with pytest.raises(InputError, match=f"^device '{device}' cannot be used: "):
            encode()
