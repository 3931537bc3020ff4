"""The bytes that ops read and write, compared with hand calculation."""

import pytest
import torch
from torch import nn

import torchport

FLOAT = 4


@pytest.mark.parametrize(
    ("function", "read", "written"),
    [
        (lambda x: x + 1, 6, 6),
        (lambda x: x + x, 12, 6),
        (lambda x: x.relu_(), 6, 6),
        (lambda x: x.view(3, 2).T, 0, 0),
        (lambda x: x.sum(), 6, 1),
        (lambda x: torch.cat([x, x]), 12, 12),
        (lambda x: torch.empty_like(x).fill_(1), 0, 6),
        (lambda x: x.clone().copy_(x), 12, 12),
    ],
)
def test_each_tensor_once(function, read, written):
    cost = torchport.analyze(function, (torch.ones(2, 3),)).cost
    assert (cost.bytes_read, cost.bytes_written) == (FLOAT * read, FLOAT * written)


def test_a_linear_layer_reads_its_weight_and_bias():
    cost = torchport.analyze(nn.Linear(8, 5), (torch.ones(2, 3, 8),)).cost
    assert cost.bytes_read == FLOAT * (2 * 3 * 8 + 8 * 5 + 5)
    assert cost.bytes_written == FLOAT * 2 * 3 * 5
    assert cost.arithmetic_intensity == 2 * 6 * 8 * 5 / (cost.bytes_read + cost.bytes_written)


def test_a_look_up_reads_what_it_looks_up():
    cost = torchport.analyze(nn.Embedding(1000, 8), (torch.zeros(3, dtype=torch.long),)).cost
    assert cost.bytes_read == 3 * 8 * FLOAT + 3 * 8  # three rows, three numbers of 8 bytes
    assert cost.bytes_written == 3 * 8 * FLOAT


def test_half_precision_moves_half():
    model = nn.Linear(8, 5).to(torch.bfloat16)
    cost = torchport.analyze(model, (torch.ones(3, 8, dtype=torch.bfloat16),)).cost
    assert cost.bytes_written == 2 * 3 * 5
    assert cost.parameter_bytes == 2 * 45
