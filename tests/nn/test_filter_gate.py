import torch
from hypothesis import given
from hypothesis import strategies as st

from gnnretrieval.nn import FilterGate


def random_gate(seed: int, size: float = 1.0) -> FilterGate:
    gate = FilterGate(3)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in gate.parameters():
            parameter.copy_(size * torch.randn(parameter.shape, generator=generator))
    return gate


@given(seed=st.integers(0, 1000), size=st.sampled_from([0.1, 1.0, 1e4]))
def test_a_gate_is_between_0_and_1_and_never_turns_a_context_round(seed, size):
    gate = random_gate(seed, size)
    generator = torch.Generator().manual_seed(seed + 1)
    context, passages = torch.randn(5, 3, generator=generator), torch.randn(5, 3, generator=generator)
    values = gate.gate(context, passages)
    assert ((values >= 0) & (values <= 1)).all()
    gated = gate(context, passages)
    assert (gated.abs() <= context.abs()).all()
    assert (gated * context >= 0).all()


def test_every_gate_is_at_its_start_whatever_the_input():
    gate = FilterGate(3, start=0.3)
    context, passages = 100 * torch.randn(4, 3), torch.randn(4, 3)
    torch.testing.assert_close(gate.gate(context, passages), torch.full((4, 3), 0.3))
    torch.testing.assert_close(gate(context, passages), 0.3 * context)


def test_a_gate_by_hand_for_each_dimension():
    gate = FilterGate(2)
    with torch.no_grad():
        gate.lin.weight.copy_(torch.tensor([[1.0, 0.0, 2.0, 0.0], [0.0, 1.0, 0.0, -1.0]]))
        gate.lin.bias.copy_(torch.tensor([0.5, 0.0]))
    # logits: 1·0.5 + 2·(-1) + 0.5 = -1 and 2 - 2 = 0
    gated = gate(torch.tensor([[0.5, 2.0]]), torch.tensor([[-1.0, 2.0]]))
    torch.testing.assert_close(gated, torch.tensor([[0.5 * 0.26894142, 2.0 * 0.5]]))
