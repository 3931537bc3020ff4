"""Ops that are fused into a convolution, a linear layer or a sum."""

import dataclasses

import pytest
import torch
from torch import nn

from targets.ttnn.programs import compiled_for, functions_in, program_of, random
from torchport.targets.ttnn.ops import RULES


@pytest.mark.parametrize("activation", [nn.ReLU(), nn.SiLU(), nn.ReLU6()])
def test_a_batch_norm_and_an_activation_are_part_of_the_convolution(activation):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(4, 8, 3, bias=False), nn.BatchNorm2d(8), activation).eval()
    model[1].running_mean.normal_()
    model[1].running_var.uniform_(0.5, 2)
    nn.init.normal_(model[1].weight)
    x = random(1, 4, 8, 8)
    compiled = compiled_for(model, x, dtype="float32")
    assert functions_in(program_of(compiled)) == ["conv2d"]
    torch.testing.assert_close(compiled(x), model(x).detach(), rtol=1e-4, atol=1e-4)


def test_an_activation_is_part_of_the_linear_layer_and_of_the_sum():
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU()).eval()
    x = random(2, 8)
    compiled = compiled_for(lambda x: (model(x) + x).relu(), x, dtype="float32")
    assert functions_in(program_of(compiled)) == ["linear", "add"]
    torch.testing.assert_close(compiled(x), (model(x) + x).relu().detach(), rtol=1e-4, atol=1e-4)


def test_what_is_needed_by_itself_is_not_hidden():
    layer = nn.Linear(8, 8)

    def both(x):
        y = layer(x)
        return y.relu(), y + 1

    x = random(2, 8)
    compiled = compiled_for(both, x, dtype="float32")
    assert "relu" in functions_in(program_of(compiled))
    for ours, theirs in zip(compiled(x), both(x), strict=True):
        torch.testing.assert_close(ours, theirs.detach(), rtol=1e-4, atol=1e-4)


def test_gelu_stays_apart_since_along_with_others_it_is_approximated():
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU()).eval()
    assert functions_in(program_of(compiled_for(model, random(2, 8)))) == ["linear", "gelu", "typecast"]


@pytest.mark.parametrize("activation", [nn.ReLU(), nn.SiLU()])
def test_a_lowering_that_drops_an_activation_is_refused(activation, monkeypatch):
    def lower(lowering, node, given):
        return lowering.call("add", lowering.get(given["self"]), lowering.get(given["other"]))

    forgetful = dataclasses.replace(RULES["aten.add.Tensor"], lower=lower)
    monkeypatch.setitem(RULES, "aten.add.Tensor", forgetful)
    x, y = random(2, 8), random(8, 8)[:2]
    compiled = compiled_for(lambda x, y: activation(x + y), x, y, dtype="float32")
    torch.testing.assert_close(compiled(x, y), activation(x + y))
    assert any("which is fused into it" in row.detail for row in compiled.coverage.stayed)
