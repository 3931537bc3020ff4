"""Random weights: the same each time, and never all zero."""

import torch
from torch import nn

from torchport.zoo.random_weights import STANDARD_DEVIATION, fixed_seed, wake_zero_weights


def test_the_block_is_seeded_and_the_state_comes_back():
    torch.manual_seed(123)
    before = torch.get_rng_state()
    drawn = []
    for _ in range(2):
        with fixed_seed():
            drawn.append(torch.rand(4))
    assert torch.equal(*drawn)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_zero_matrix_is_reinitialized_and_a_zero_vector_is_kept():
    layer = nn.Linear(100, 100)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    wake_zero_weights(layer)
    assert abs(layer.weight.std().item() - STANDARD_DEVIATION) < 0.002
    assert not layer.bias.any()


def test_a_matrix_with_one_value_is_left_alone():
    layer = nn.Linear(4, 4, bias=False)
    with torch.no_grad():
        layer.weight.zero_()[3, 3] = 1.0
    wake_zero_weights(layer)
    assert layer.weight.sum().item() == 1.0


def test_weights_without_values_are_left_alone():
    layer = nn.Linear(4, 4, device="meta")
    wake_zero_weights(layer)
    assert layer.weight.is_meta
