import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from transformers import BertConfig, BertModel, DistilBertConfig, DistilBertModel, RobertaConfig, RobertaModel

from gnnretrieval.encoders import packed_pass
from gnnretrieval.encoders.packed_linear import BLOCK_ROWS, PackedLinear, by_equal_blocks
from gnnretrieval.encoders.packed_pass import PackedPass, attention, can_pack

SIZES = {
    "vocab_size": 50,
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "intermediate_size": 80,
    "max_position_embeddings": 60,
    "initializer_range": 0.2,
    "type_vocab_size": 2,
}


def bert(**settings) -> BertModel:
    torch.manual_seed(0)
    return BertModel(BertConfig(**SIZES, **settings)).eval()


def roberta() -> RobertaModel:
    torch.manual_seed(0)
    return RobertaModel(RobertaConfig(**SIZES, pad_token_id=1)).eval()


@pytest.fixture
def ids() -> list[np.ndarray]:
    """Of 30 to 1 tokens, several of equal length; token 1 is RoBERTa's padding."""
    rng = np.random.default_rng(0)
    return [rng.integers(1, 50, size=length) for length in (30, 30, 30, 17, 9, 9, 1)]


@pytest.fixture
def types(ids) -> list[np.ndarray]:
    return [(np.arange(len(sequence)) > 3).astype(np.int64) for sequence in ids]


def rows_of(states: list[torch.Tensor]) -> list[torch.Tensor]:
    return [sequence for run in states for sequence in run]


@pytest.mark.parametrize("make", [bert, roberta])
def test_hidden_states_are_those_of_the_model(make, ids, types):
    model = make()
    found = PackedPass(model, torch.float32)(ids, types)
    assert [run.shape for run in found] == [(3, 30, 48), (1, 17, 48), (2, 9, 48), (1, 1, 48)]
    firsts = PackedPass(model, torch.float32, first_only=True)(ids, types)
    assert [run.shape for run in firsts] == [(3, 1, 48), (1, 1, 48), (2, 1, 48), (1, 1, 48)]
    for state, first, sequence, kinds in zip(rows_of(found), rows_of(firsts), ids, types, strict=True):
        with torch.no_grad():
            expected = model(torch.from_numpy(sequence)[None], token_type_ids=torch.from_numpy(kinds)[None])[0][0]
        torch.testing.assert_close(state, expected, atol=2e-5, rtol=1e-5)
        torch.testing.assert_close(first, expected[:1], atol=2e-5, rtol=1e-5)


def test_token_types_are_0_where_not_given(ids):
    packed = PackedPass(bert(), torch.float32)
    zeros = [np.zeros_like(sequence) for sequence in ids]
    for found, expected in zip(packed(ids), packed(ids, zeros), strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("first_only", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_sequences_states_are_the_same_bytes_alone_and_in_any_batch(ids, dtype, threads, first_only):
    packed = PackedPass(bert(), dtype, first_only=first_only)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        together = rows_of(packed(ids))
        for sequence, state in zip(ids, together, strict=True):
            assert torch.equal(packed([sequence])[0][0], state)
        many = [sequence for sequence in ids for _ in range(60)]
        for row, state in enumerate(rows_of(packed(many))):
            assert torch.equal(state, together[row // 60])
    finally:
        torch.set_num_threads(before)


def test_attention_in_parts_is_attention_at_once(ids, monkeypatch):
    packed = PackedPass(bert(), torch.bfloat16)
    whole = packed(ids)
    monkeypatch.setattr(packed_pass, "SCORES_AT_ONCE", 1)
    for found, expected in zip(packed(ids), whole, strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("length", [1, 7, 64])
def test_attention_in_bfloat16_is_near_float32s(length, monkeypatch):
    torch.manual_seed(0)
    parts = torch.randn(3, 2, 3, length, 16)
    expected = F.scaled_dot_product_attention(*parts)
    torch.testing.assert_close(attention(*parts), expected)
    torch.testing.assert_close(attention(*parts.bfloat16()).float(), expected, atol=0.03, rtol=0.03)
    monkeypatch.setattr(packed_pass, "LONGEST_EXPLICIT", 0)
    torch.testing.assert_close(attention(*parts.bfloat16()).float(), expected, atol=0.03, rtol=0.03)


def test_other_architectures_and_changed_layers_are_not_packed():
    assert can_pack(bert())
    assert can_pack(roberta())
    assert not can_pack(bert(is_decoder=True))
    assert not can_pack(DistilBertModel(DistilBertConfig(vocab_size=50, dim=32, n_layers=1, n_heads=2, hidden_dim=64)))
    changed = bert()
    changed.encoder.layer[1].attention.self.key = nn.Sequential(nn.Linear(48, 48))
    assert not can_pack(changed)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("packed", [True, False])
def test_a_packed_linear_layer_is_a_linear_layer(dtype, packed, monkeypatch):
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: packed)
    torch.manual_seed(0)
    layer, rows = nn.Linear(40, 72), torch.randn(33, 40, dtype=dtype)
    found = PackedLinear(layer.weight, layer.bias, dtype)(rows)
    assert found.dtype == dtype
    expected = F.linear(rows.float(), layer.weight.to(dtype).float(), layer.bias)
    torch.testing.assert_close(found, expected.to(dtype), atol=1e-6 if dtype == torch.float32 else 0.01, rtol=1e-5)


@pytest.mark.parametrize("count", [1, BLOCK_ROWS, BLOCK_ROWS + 1])
def test_blocks_have_one_shape_and_their_rows_are_given_back_in_order(count):
    rows, shapes = torch.arange(1.0, count + 1).unsqueeze(1), []

    def twice(block: torch.Tensor) -> torch.Tensor:
        shapes.append(tuple(block.shape))
        return 2 * block

    assert by_equal_blocks(twice, rows).tolist() == (2 * rows).tolist()
    assert set(shapes) == {(BLOCK_ROWS, 1)}
