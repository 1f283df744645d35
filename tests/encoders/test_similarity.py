import numpy as np
import pytest
import torch

from gnnretrieval.encoders import Similarity
from gnnretrieval.errors import InputError

VECTORS = [[3.0, 4.0], [0.0, 0.0], [-1.0, 0.0]]


def test_cosine_brings_vectors_to_length_1_and_leaves_zero_at_zero():
    similarity = Similarity(normalize=True, scale=20.0)
    expected = [[0.6, 0.8], [0.0, 0.0], [-1.0, 0.0]]
    torch.testing.assert_close(similarity.prepare(torch.tensor(VECTORS)), torch.tensor(expected))
    np.testing.assert_allclose(similarity.prepare_array(np.array(VECTORS)), expected, rtol=1e-6)


def test_dot_product_leaves_vectors_as_they_are():
    similarity = Similarity(normalize=False, scale=1.0)
    assert similarity.prepare(torch.tensor(VECTORS)).tolist() == VECTORS
    assert similarity.prepare_array(np.array(VECTORS)).tolist() == VECTORS


@pytest.mark.parametrize(("scale", "lengths", "expected"), [(1.0, (1, 1), 20), (1.0, (9, 9), 81), (3.0, (1, 2), 6)])
def test_short_vectors_of_a_dot_product_get_the_cosines_scale_unless_they_have_their_own(scale, lengths, expected):
    assert Similarity(normalize=False, scale=scale).scale_of_mean(*lengths) == expected


@pytest.mark.parametrize("normalize", [True, False])
def test_vectors_are_prepared_in_float32(normalize):
    similarity = Similarity(normalize=normalize, scale=1.0)
    values = np.random.default_rng(0).normal(size=(20, 64)).astype(np.float16)
    assert similarity.prepare(torch.from_numpy(values)).dtype == torch.float32
    assert similarity.prepare(torch.from_numpy(values).bfloat16()).dtype == torch.float32
    assert similarity.prepare_array(values).dtype == np.float32
    np.testing.assert_allclose(
        similarity.prepare(torch.from_numpy(values)).numpy(), similarity.prepare_array(values), rtol=1e-5, atol=1e-7
    )


def test_what_an_artifact_recorded_is_read_back_and_a_damaged_record_refused():
    similarity = Similarity(normalize=True, scale=12.5)
    assert Similarity.parse(similarity.model_dump()) == similarity
    with pytest.raises(InputError, match=r"meta\.json: unknown key 'scal'\. Did you mean 'scale'"):
        Similarity.parse({"normalize": True, "scale": 1.0, "scal": 1}, "meta.json")
    with pytest.raises(InputError, match="scale"):
        Similarity.parse({"normalize": True}, "meta.json")


def test_one_question_is_prepared_to_the_same_bits_as_many():
    values = np.random.default_rng(0).standard_normal((200, 384)).astype(np.float16)
    cosine = Similarity(normalize=True, scale=1.0)
    together = cosine.prepare_array(values)
    assert np.array_equal(np.concatenate([cosine.prepare_array(row[None]) for row in values]), together)
    assert np.array_equal(np.stack([cosine.prepare_array(row) for row in values]), together)
    assert not cosine.prepare_array(np.zeros((1, 4))).any()
