import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from gnnretrieval.data import Dataset
from gnnretrieval.encoders import DualEncoder, EncoderSettings
from gnnretrieval.encoders.sentence_tokens import SENT
from gnnretrieval.errors import GnnRetrievalError, InputError


@pytest.fixture(scope="module")
def marked_checkpoint(tiny_checkpoint, tmp_path_factory) -> Path:
    """The tiny checkpoint with ``<sent>`` in its vocabulary."""
    return with_marker(tiny_checkpoint, tmp_path_factory.mktemp("marked") / "model")


def with_marker(checkpoint: Path, directory: Path) -> Path:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(checkpoint), device="cpu")
    model.tokenizer.add_special_tokens({"additional_special_tokens": [SENT]})
    torch.manual_seed(3)
    model[0].auto_model.resize_token_embeddings(len(model.tokenizer))
    model.save(str(directory))
    return directory


@pytest.fixture(scope="module")
def texts(tiny_dataset) -> list[str]:
    """Of one to five sentences, two of them longer than the checkpoint reads, one empty."""
    passages = [passage.full_text for passage in Dataset.open(tiny_dataset).passages()]
    joined = [" ".join(passages[start : start + 1 + start % 3]) for start in range(12)]
    return [*joined, " ".join(passages), " ".join(passages[20:30]), "", "a"]


def encoder_of(checkpoint: Path, **settings) -> DualEncoder:
    return DualEncoder(EncoderSettings(checkpoint=str(checkpoint), **{"precision": "float32", **settings}))


def plain_states(checkpoint: Path, ids: np.ndarray) -> torch.Tensor:
    """Last hidden states ``(t, d)`` by transformers alone."""
    from transformers import AutoModel

    model = AutoModel.from_pretrained(checkpoint).eval()
    with torch.no_grad():
        return model(torch.from_numpy(ids)[None]).last_hidden_state[0]


def unit(rows) -> np.ndarray:
    return torch.nn.functional.normalize(rows, dim=-1).numpy()


def test_a_sentences_vector_is_the_plain_forwards_at_its_marker(marked_checkpoint, texts):
    encoder = encoder_of(marked_checkpoint, sentences="token")
    made = encoder.encode_sentences(texts)
    marker = encoder.sentences.tokenizer.marker
    tokens = encoder.sentences.tokenizer.tokens(texts)
    expected = [
        unit(states[torch.from_numpy(passage.ids) == marker])
        for passage in tokens
        for states in [plain_states(marked_checkpoint, passage.ids)]
    ]
    assert made.counts.tolist() == [len(rows) for rows in expected]
    assert made.counts.max() > 3
    assert made.vectors.dtype == np.float32
    np.testing.assert_allclose(made.vectors, np.concatenate(expected), atol=1e-5)


def test_the_mean_over_a_sentences_tokens_is_of_the_whole_passages_states(tiny_checkpoint):
    encoder = encoder_of(tiny_checkpoint, sentences="mean")
    text = "A b. C d e! F"  # [CLS] a b . c d e ! f [SEP]
    ids = np.array(encoder.sentences.model.tokenizer(text)["input_ids"])
    states = plain_states(tiny_checkpoint, ids)
    expected = unit(torch.stack([states[1:4].mean(0), states[4:8].mean(0), states[8]]))
    np.testing.assert_allclose(encoder.encode_sentences([text]).vectors, expected, atol=1e-5)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("at", ["token", "mean"])
def test_a_sentences_vector_is_the_same_bytes_whatever_passages_are_beside_its_own(
    marked_checkpoint, texts, at, precision
):
    encoder = encoder_of(marked_checkpoint, sentences=at, precision=precision)
    together = encoder.encode_sentences(texts)
    alone = [encoder.encode_sentences([text]) for text in texts]
    assert np.array_equal(together.vectors, np.concatenate([one.vectors for one in alone]))
    assert together.counts.tolist() == [int(one.counts[0]) for one in alone]
    assert together.cut == sum(one.cut for one in alone) > 0
    small = encoder_of(marked_checkpoint, sentences=at, precision=precision, token_budget=70)
    assert np.array_equal(small.encode_sentences(texts).vectors, together.vectors)
    means = np.concatenate([encoder.encode([text], "passage") for text in texts])
    assert np.array_equal(encoder.encode(texts, "passage"), means)


@pytest.mark.parametrize("at", ["token", "mean"])
@pytest.mark.parametrize("side", ["right", "left"])
def test_the_padded_pass_gives_the_packed_ones_vectors(marked_checkpoint, texts, at, side):
    encoder = encoder_of(marked_checkpoint, sentences=at)
    packed = encoder.encode_sentences(texts)
    assert encoder.sentences.packed is not None
    encoder.sentences.packed = None
    encoder.sentences.model.tokenizer.padding_side = side
    padded = encoder.encode_sentences(texts)
    np.testing.assert_allclose(padded.vectors, packed.vectors, atol=1e-5)
    assert np.array_equal(padded.counts, packed.counts)


def test_a_passages_vector_is_the_mean_of_its_sentences_prepared_again(marked_checkpoint):
    encoder = encoder_of(marked_checkpoint, sentences="token")
    first, second = encoder.encode_sentences(["A b. C d e!"]).vectors
    mean = (first + second) / 2
    np.testing.assert_allclose(encoder.encode(["A b. C d e!"], "passage")[0], mean / np.linalg.norm(mean), atol=1e-6)


def test_queries_are_read_as_ever(marked_checkpoint, texts):
    by_sentence = encoder_of(marked_checkpoint, sentences="token")
    whole = encoder_of(marked_checkpoint)
    assert np.array_equal(by_sentence.encode(texts, "query"), whole.encode(texts, "query"))


def test_under_dot_product_sentences_keep_their_length_and_layers_after_pooling_apply(
    marked_checkpoint, texts, tmp_path
):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Dense

    base = SentenceTransformer(str(marked_checkpoint), device="cpu")
    torch.manual_seed(0)
    dense = Dense(32, 16)
    SentenceTransformer(modules=[base[0], base[1], dense], device="cpu").save(str(tmp_path / "model"))
    encoder = encoder_of(tmp_path / "model", sentences="token", similarity="dot")
    (tokens,) = encoder.sentences.tokenizer.tokens(["A b. C d e!"])
    states = plain_states(marked_checkpoint, tokens.ids)[torch.from_numpy(tokens.starts)]
    with torch.no_grad():
        expected = dense({"sentence_embedding": states})["sentence_embedding"].numpy()
    found = encoder.encode_sentences(["A b. C d e!"]).vectors
    assert found.shape == (2, 16)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_prompt_of_passages_goes_before_the_first_sentence(marked_checkpoint):
    prompted = encoder_of(marked_checkpoint, sentences="mean", passage_prompt="x y ")
    plain = encoder_of(marked_checkpoint, sentences="mean")
    made = prompted.encode_sentences(["A b. C d e!"])
    expected = plain.encode_sentences(["x y A b. C d e!"])
    np.testing.assert_allclose(made.vectors, expected.vectors, atol=1e-6)


def test_no_passages_have_no_sentences(marked_checkpoint):
    made = encoder_of(marked_checkpoint, sentences="token").encode_sentences([])
    assert (made.vectors.shape, made.counts.shape, made.cut) == ((0, 32), (0,), 0)


def test_sentences_are_cut_at_max_tokens(marked_checkpoint):
    text = "A b. C d e! F"
    cut = encoder_of(marked_checkpoint, sentences="token", max_tokens=9).encode_sentences([text])
    whole = encoder_of(marked_checkpoint, sentences="token").encode_sentences([text])
    assert (cut.counts.tolist(), cut.cut) == ([2], 1)
    assert (whole.counts.tolist(), whole.cut) == ([3], 0)


def test_a_vocabulary_without_the_marker_is_refused_by_the_checkpoints_name(tiny_checkpoint):
    with pytest.raises(InputError, match=r"tiny-bert: this checkpoint's vocabulary has no <sent>"):
        encoder_of(tiny_checkpoint, sentences="token")


def test_a_checkpoint_that_pools_in_several_ways_is_refused(tiny_checkpoint, tmp_path):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    base = SentenceTransformer(str(tiny_checkpoint), device="cpu")
    pooling = Pooling(32, pooling_mode=("mean", "cls"))
    SentenceTransformer(modules=[base[0], pooling], device="cpu").save(str(tmp_path / "model"))
    with pytest.raises(InputError, match="joins several poolings"):
        encoder_of(tmp_path / "model", sentences="mean")


def test_static_embeddings_have_no_sentences(tiny_checkpoint, tmp_path):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_checkpoint).backend_tokenizer
    model = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=24)], device="cpu")
    model.save(str(tmp_path / "model"))
    with pytest.raises(InputError, match="does not pool tokens' states"):
        encoder_of(tmp_path / "model", sentences="mean")


def test_sentences_of_an_encoder_of_whole_passages_are_an_error_that_says_what_to_give(tiny_checkpoint):
    with pytest.raises(GnnRetrievalError, match="sentences = token or mean"):
        encoder_of(tiny_checkpoint).encode_sentences(["a"])


def test_another_way_of_reading_is_a_sentence(tiny_checkpoint):
    with pytest.raises(InputError, match=r"sentences: .*'none', 'token' or 'mean' \(found 'words'\)"):
        EncoderSettings.parse({"checkpoint": str(tiny_checkpoint), "sentences": "words"})


def test_the_mean_reads_a_checkpoint_without_pooling_of_its_own(tiny_checkpoint, tmp_path):
    """A plain transformers checkpoint: sentence-transformers puts mean pooling after it."""
    shutil.copytree(tiny_checkpoint, tmp_path / "model")
    for name in ("modules.json", "config_sentence_transformers.json"):
        (tmp_path / "model" / name).unlink()
    assert json.loads((tmp_path / "model" / "config.json").read_text())["model_type"] == "bert"
    found = encoder_of(tmp_path / "model", sentences="mean").encode_sentences(["A b. C d e!"])
    expected = encoder_of(tiny_checkpoint, sentences="mean").encode_sentences(["A b. C d e!"])
    np.testing.assert_allclose(found.vectors, expected.vectors, atol=1e-6)
