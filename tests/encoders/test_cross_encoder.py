import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from gnnretrieval.data import Dataset
from gnnretrieval.encoders.cross_encoder import CrossEncoder
from gnnretrieval.encoders.settings import CrossEncoderSettings
from gnnretrieval.errors import GnnRetrievalError, InputError


@pytest.fixture(scope="module")
def first(tiny_dataset) -> list[str]:
    return [query.text for query in Dataset.open(tiny_dataset).queries()][:12]


@pytest.fixture(scope="module")
def second(tiny_dataset) -> list[str]:
    """Of 1 to 40 words, and an empty one."""
    words = " ".join(passage.full_text for passage in Dataset.open(tiny_dataset).passages()).split()
    return [" ".join(words[start : start + 1 + start % 40]) for start in range(0, 150, 13)] + [""]


@pytest.fixture(scope="module")
def pairs(first, second) -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.stack([rng.integers(len(first), size=40), rng.integers(len(second), size=40)], axis=1)


def write_classifier(directory: Path, encoder: Path, labels: int, kind: str = "bert") -> Path:
    """A random classifier with ``tiny_checkpoint``'s tokenizer: of BERT's, RoBERTa's or DistilBERT's layers."""
    from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

    torch.manual_seed(labels)
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    if kind == "distilbert":
        sizes = {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64}
    config = AutoConfig.for_model(
        kind,
        vocab_size=len(tokenizer),
        max_position_embeddings=80,
        type_vocab_size=2,
        num_labels=labels,
        pad_token_id=tokenizer.pad_token_id,
        initializer_range=0.2,
        **sizes,
    )
    AutoModelForSequenceClassification.from_config(config).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


@pytest.fixture(scope="module")
def checkpoint(tiny_checkpoint, tmp_path_factory) -> Path:
    return write_classifier(tmp_path_factory.mktemp("cross") / "model", tiny_checkpoint, 1)


def cross_encoder_of(checkpoint: Path, **settings) -> CrossEncoder:
    given = {"precision": "float32", "max_tokens": 48, **settings}
    return CrossEncoder(CrossEncoderSettings(checkpoint=str(checkpoint), **given))


def expected_of(checkpoint: Path, first, second, pairs, max_tokens: int = 48) -> tuple[np.ndarray, torch.Tensor]:
    """``[CLS]`` and logits of each pair by itself, by transformers."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    model = AutoModelForSequenceClassification.from_pretrained(checkpoint).eval()
    vectors, logits = [], []
    for query, passage in pairs:
        given = ([first[query]], [second[passage]])  # as a batch: a single empty text counts as none
        tokens = tokenizer(*given, truncation=True, max_length=max_tokens, return_tensors="pt")
        with torch.no_grad():
            vectors.append(model.base_model(**tokens).last_hidden_state[0, 0].numpy())
            logits.append(model(**tokens).logits[0])
    return np.stack(vectors), torch.stack(logits)


@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert"])
def test_vectors_and_probabilities_are_the_models_own(kind, tiny_checkpoint, first, second, pairs, tmp_path):
    checkpoint = write_classifier(tmp_path / "model", tiny_checkpoint, 1, kind)
    found = cross_encoder_of(checkpoint).encode_pairs(first, second, pairs)
    vectors, logits = expected_of(checkpoint, first, second, pairs)
    assert found.vectors.dtype == found.probabilities.dtype == np.float32
    np.testing.assert_allclose(found.vectors, vectors, atol=1e-5)
    np.testing.assert_allclose(found.probabilities, logits[:, 0].sigmoid().numpy(), atol=1e-5)
    assert found.probabilities.std() > 0.01


def test_they_are_sentence_transformers_probabilities(checkpoint, first, second, pairs):
    from sentence_transformers import CrossEncoder as Theirs

    theirs = Theirs(str(checkpoint), device="cpu", processor_kwargs={"model_max_length": 48})
    expected = theirs.predict([(first[query], second[passage]) for query, passage in pairs])
    found = cross_encoder_of(checkpoint).encode_pairs(first, second, pairs)
    np.testing.assert_allclose(found.probabilities, expected, atol=1e-5)


def test_of_two_labels_the_probability_is_the_seconds(tiny_checkpoint, first, second, pairs, tmp_path):
    checkpoint = write_classifier(tmp_path / "model", tiny_checkpoint, 2)
    found = cross_encoder_of(checkpoint).encode_pairs(first, second, pairs)
    _, logits = expected_of(checkpoint, first, second, pairs)
    np.testing.assert_allclose(found.probabilities, logits.softmax(-1)[:, 1].numpy(), atol=1e-5)


@pytest.mark.parametrize("max_tokens", [8, 13, 20, 48])
def test_tokens_are_those_of_the_tokenizer(checkpoint, first, second, max_tokens):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    encoder = cross_encoder_of(checkpoint, max_tokens=max_tokens)
    texts = encoder._tokens.split(first, second)
    every = np.array([(query, passage) for query in range(len(first)) for passage in range(len(second))])
    lengths = texts.lengths(every)
    for (query, passage), length in zip(every, lengths, strict=True):
        expected = tokenizer([first[query]], [second[passage]], truncation=True, max_length=max_tokens)
        joined = texts.join(query, passage)
        assert joined.ids.tolist() == expected["input_ids"][0]
        assert joined.types.tolist() == expected["token_type_ids"][0]
        assert len(joined.ids) == length


def test_a_text_is_split_to_tokens_once_however_many_pairs_it_is_in(checkpoint, first, second, pairs, monkeypatch):
    encoder = cross_encoder_of(checkpoint)
    asked = []

    class Counting:
        def encode_batch(self, texts, **kwargs):
            asked.extend(texts)
            return splitter.encode_batch(texts, **kwargs)

    splitter = encoder._tokens.splitter
    monkeypatch.setattr(encoder._tokens, "splitter", Counting())
    encoder.encode_pairs(first, second, np.concatenate([pairs, pairs]))
    assert sorted(asked) == sorted(first + second)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_pair_is_the_same_bytes_whatever_pairs_are_beside_it(checkpoint, first, second, pairs, precision):
    encoder = cross_encoder_of(checkpoint, precision=precision)
    together = encoder.encode_pairs(first, second, pairs)
    for row in (0, 7, 39):
        alone = encoder.encode_pairs(first, second, pairs[row : row + 1])
        assert np.array_equal(alone.vectors[0], together.vectors[row])
        assert alone.probabilities[0] == together.probabilities[row]
    small = cross_encoder_of(checkpoint, precision=precision, token_budget=100)
    turned = small.encode_pairs(first, second, pairs[::-1])
    assert np.array_equal(turned.vectors[::-1], together.vectors)
    assert np.array_equal(turned.probabilities[::-1], together.probabilities)


def test_bfloat16_is_near_float32(checkpoint, first, second, pairs):
    full = cross_encoder_of(checkpoint).encode_pairs(first, second, pairs)
    reduced = cross_encoder_of(checkpoint, precision="bfloat16").encode_pairs(first, second, pairs)
    lengths = np.linalg.norm(full.vectors, axis=1) * np.linalg.norm(reduced.vectors, axis=1)
    assert ((full.vectors * reduced.vectors).sum(1) / lengths).min() > 0.999
    np.testing.assert_allclose(reduced.probabilities, full.probabilities, atol=0.05)


def test_no_pairs_give_no_vectors_of_the_right_width(checkpoint):
    encoder = cross_encoder_of(checkpoint)
    found = encoder.encode_pairs([], [], np.empty((0, 2), dtype=np.int64))
    assert (found.vectors.shape, found.probabilities.shape) == ((0, 32), (0,))
    assert encoder.dimension == 32
    assert encoder.hash == encoder.checkpoint.hash


@pytest.mark.parametrize("pair", [(12, 0), (0, 13), (-1, 0)])
def test_a_row_that_is_not_there_is_an_error_in_a_sentence(checkpoint, first, second, pair):
    with pytest.raises(GnnRetrievalError, match="outside of 12 first and 13 second texts"):
        cross_encoder_of(checkpoint).encode_pairs(first, second, np.array([pair]))


def test_weights_that_give_no_finite_score_are_refused(tiny_checkpoint, first, second, pairs, tmp_path):
    from safetensors.torch import load_file, save_file

    directory = write_classifier(tmp_path / "model", tiny_checkpoint, 1)
    weights = load_file(directory / "model.safetensors")
    weights["classifier.bias"][:] = torch.nan
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    damaged = cross_encoder_of(directory)
    with pytest.raises(InputError, match="its scores are not finite"):
        damaged.encode_pairs(first, second, pairs)


def test_a_checkpoint_without_a_classifier_is_refused(tiny_checkpoint):
    with pytest.raises(InputError, match=r"no cross-encoder's checkpoint: it has no weights for classifier"):
        cross_encoder_of(tiny_checkpoint)


def test_a_classifier_of_three_labels_is_refused(tiny_checkpoint, tmp_path):
    write_classifier(tmp_path / "model", tiny_checkpoint, 3)
    with pytest.raises(InputError, match="one label or two, and this checkpoint has 3"):
        cross_encoder_of(tmp_path / "model")


def test_pairs_longer_than_the_checkpoints_positions_are_refused(checkpoint):
    with pytest.raises(InputError, match=r"positions for 80 tokens, and a pair's max_tokens \(pair_tokens\) is 81"):
        cross_encoder_of(checkpoint, max_tokens=81)


def test_a_tokenizer_of_more_tokens_than_the_weights_is_refused(tiny_cross_encoder, tmp_path):
    from transformers import AutoTokenizer

    directory = shutil.copytree(tiny_cross_encoder, tmp_path / "checkpoint")
    tokenizer = AutoTokenizer.from_pretrained(directory)
    tokenizer.add_tokens(["another"])
    tokenizer.save_pretrained(directory)
    with pytest.raises(InputError, match="another vocabulary"):
        CrossEncoder(CrossEncoderSettings(checkpoint=str(directory)))


@pytest.mark.parametrize("heads", [-1, 3])
def test_heads_that_cannot_be_are_a_sentence(heads, tiny_cross_encoder, tmp_path):
    directory = shutil.copytree(tiny_cross_encoder, tmp_path / "checkpoint")
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, "num_attention_heads": heads}))
    with pytest.raises(InputError, match="this checkpoint cannot be loaded"):
        CrossEncoder(CrossEncoderSettings(checkpoint=str(directory)))
