"""Statistics stay in float32 in programs that are otherwise in bfloat16."""

from __future__ import annotations

import copy
import statistics

import pytest
import torch
from torch import nn

from targets.ttnn.programs import assert_accepted, compiled_for, functions_in, program_of, store

# In bfloat16, the mean of 256 and 258 is 256.
ROWS = torch.tensor([256.0, 258.0]).repeat(4, 16)


def dtypes_of(compiled, function):
    """Return the dtypes of a function's results in a program."""
    return [call.tensors[0].dtype for call in program_of(compiled).calls if call.function == function]


def test_a_mean_is_not_rounded_before_it_is_subtracted():
    compiled = compiled_for(lambda x: x - x.mean(-1, keepdim=True), ROWS)
    assert torch.equal(compiled(ROWS), torch.tensor([-1.0, 1.0]).repeat(4, 16))
    assert dtypes_of(compiled, "sub") == ["bfloat16"]


def test_squares_are_not_rounded_before_their_mean():
    """The mean of 1 and 1.0078125² is rounded once, and then to 1.0078125."""
    rows = torch.tensor([1.0, 1.0078125]).repeat(4, 16)
    compiled = compiled_for(lambda x: x / (x * x).mean(-1, keepdim=True), rows)
    assert dtypes_of(compiled, "mul") == dtypes_of(compiled, "mean") == ["float32"]
    wanted = rows / ((1 + 1.0078125**2) / 2)
    assert torch.equal(compiled(rows), wanted.bfloat16().float())
    assert functions_in(program_of(compiled)).count("typecast") == 1  # of the result


def test_a_difference_is_not_rounded_before_it_is_scaled():
    """258 - 0.5 is 258 in bfloat16."""
    scale, mean = torch.full((4, 1), 0.125), torch.full((4, 1), 0.5)
    compiled = compiled_for(lambda x, mean, scale: (x - mean) * scale, ROWS, mean, scale)
    assert torch.equal(compiled(ROWS, mean, scale), ((ROWS - 0.5) / 8).bfloat16().float())
    assert dtypes_of(compiled, "sub") == ["float32"]


def test_terms_of_a_sum_that_cancel_are_not_rounded_before_it():
    scale = torch.full((4, 1), 1.01)

    def cancelling(x, scale):
        return x * scale - x

    compiled = compiled_for(cancelling, ROWS, scale)
    assert torch.equal(compiled(ROWS, scale), (ROWS * scale - ROWS).bfloat16().float())


def test_inputs_that_are_statistics_cross_in_float32():
    mean = torch.full((4, 1), 257.0)
    compiled = compiled_for(lambda x, mean: x - mean, ROWS, mean)
    assert torch.equal(compiled(ROWS, mean), ROWS - 257)
    assert [crossing.tensor.dtype for crossing in program_of(compiled).inputs] == ["bfloat16", "float32"]


def test_running_statistics_are_updated_in_float32():
    torch._dynamo.reset()
    norm = nn.BatchNorm1d(2, momentum=2**-9)
    compiled = torch.compile(norm, backend="torchport", options={"target": "ttnn", "cache": False})
    compiled(torch.tensor([[1.0, 2.0], [3.0, 4.0]]).repeat(8, 1)).sum().backward()
    torch.testing.assert_close(norm.running_mean, torch.tensor([2.0, 3.0]) * 2**-9)
    expected = 1 + (16 / 15 - 1) * 2**-9
    torch.testing.assert_close(norm.running_var, torch.full((2,), expected), rtol=1e-6, atol=0)


@pytest.mark.parametrize("function", [torch.add, torch.sub, torch.mul, torch.div])
def test_both_dtypes_meet_in_either_order(function):
    x, row = ROWS - 250, torch.full((4, 1), 1.00390625)  # which bfloat16 does not hold
    for operands in ((x, row), (row, x)):
        compiled = compiled_for(function, *operands)
        assert torch.equal(compiled(*operands), function(*operands).bfloat16().float())


def test_gates_and_products_stay_in_bfloat16():
    """What follows a product is no statistic: nothing of it is worth float32."""

    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate = nn.Conv2d(32, 32, 1)

        def forward(self, x):
            return x * torch.sigmoid(self.gate(x.mean((2, 3), keepdim=True))) + x

    x = torch.randn(1, 32, 8, 8)
    program = program_of(compiled_for(Gated(), x))
    kept = {crossing.name for crossing in program.outputs}
    assert {call.tensors[0].dtype for call in program.calls if call.results[0] not in kept} == {"bfloat16"}


class RootMeanSquare(nn.Module):
    """A norm as language models write it."""

    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


STACKS = {
    "batch": lambda: nn.Sequential(
        nn.Conv2d(3, 16, 1), nn.BatchNorm2d(16), nn.Conv2d(16, 48, 1), nn.BatchNorm2d(48), nn.ReLU()
    ),
    "root mean square": lambda: nn.Sequential(nn.Linear(32, 64), RootMeanSquare(64)),
    "layer": lambda: nn.Sequential(nn.Linear(32, 64), nn.LayerNorm(64), nn.Linear(64, 64), nn.LayerNorm(64)),
}


@pytest.mark.parametrize("stack", STACKS)
def test_gradients_of_norms_are_closer_than_those_of_eager_torch_in_bfloat16(stack):
    torch.manual_seed(0)
    torch._dynamo.reset()
    module = STACKS[stack]()
    x = torch.randn(2, 3, 32, 32)
    compiled = torch.compile(module, backend="torchport", options={"target": "ttnn", "cache": False})
    exact = gradients(copy.deepcopy(module).double(), None, x.double())
    half = gradients(copy.deepcopy(module).bfloat16(), None, x.bfloat16())
    ours = gradients(module, compiled, x)
    ratios = [rms(ours[name] - exact[name]) / rms(half[name] - exact[name]) for name in exact]
    assert statistics.median(ratios) < 0.75, ratios


def gradients(module, call, x):
    (module if call is None else call)(x).square().mean().backward()
    return {name: parameter.grad.double() for name, parameter in module.named_parameters()}


def rms(tensor):
    return float(tensor.square().mean().sqrt())


def test_the_library_takes_both_dtypes(tmp_path):
    """Every function that mixes dtypes, with the operands in either order, and whole norms."""
    x, row = torch.randn(2, 64, 64), torch.randn(2, 64, 1)

    def mixed(x, row):
        mean = x.mean(-1, keepdim=True)
        return x + row, row - x, x * mean, x / (row + 3), mean / x

    def normalised(x, weight, bias):
        mean = x.mean((0, 2, 3), keepdim=True)
        centred = x - mean
        scale = torch.rsqrt((centred * centred).mean((0, 2, 3), keepdim=True) + 1e-5)
        return centred * scale * weight + bias, mean, scale

    images, channels = torch.randn(2, 64, 8, 8), torch.randn(1, 64, 1, 1)
    folders = [
        store(compiled_for(mixed, x, row), tmp_path / "mixed"),
        store(compiled_for(normalised, images, channels, channels + 1), tmp_path / "norm"),
        store(compiled_for(RootMeanSquare(64), x), tmp_path / "rms"),
    ]
    assert_accepted(folders)
