"""Snippets are disabled where they are slower or wrong; results stay the same."""

import numpy
import pytest
import torch
from torch import nn

import torchport
from targets.graphs import island_of
from torchport.quantization import AccuracyBudget
from torchport.targets.openvino import arm_reductions, fused_kernels
from torchport.targets.openvino.build import _convert
from torchport.targets.openvino.library import openvino

X = torch.rand(1, 3, 16, 16)


def converted(module):
    with torch.no_grad():
        return _convert(island_of(module.eval(), X))


@pytest.mark.parametrize(
    ("module", "found"),
    [
        (nn.Sequential(nn.Conv2d(3, 8, 3), nn.SiLU()), True),
        (nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.SiLU()), True),
        (nn.Sequential(nn.Conv2d(3, 6, 3, groups=3), nn.SiLU()), True),
        (nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()), False),
        (nn.Sequential(nn.SiLU(), nn.Conv2d(3, 8, 3)), False),
        (nn.Sequential(nn.Linear(16, 8), nn.SiLU()), False),
    ],
)
def test_a_silu_behind_a_convolution_is_found(module, found):
    assert fused_kernels.has_silu_behind_convolution(converted(module)) is found


def test_a_silu_behind_a_convolution_is_computed_as_torch_does(monkeypatch, tmp_path):
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.SiLU(), nn.Conv2d(8, 4, 1)).eval()
    monkeypatch.setattr(fused_kernels.platform, "machine", lambda: "aarch64")
    compiled = torchport.compile(module, (X,), options={"cache": False})
    torch.testing.assert_close(compiled(X), module(X), atol=1e-5, rtol=1e-4)
    [island] = compiled._first.program.islands.values()
    nodes = island.runner.compiled.model.get_runtime_model().get_ops()
    assert "Subgraph" not in {node.get_rt_info()["layerType"].astype(str) for node in nodes}
    torchport.save(compiled, tmp_path / "model.pt2")
    torch.testing.assert_close(torchport.load(tmp_path / "model.pt2")(X), module(X), atol=1e-5, rtol=1e-4)


def test_a_sum_over_a_whole_tensor_is_one_reduction():
    opset = openvino().opset13
    x = opset.parameter([1, 3, 4, 5], openvino().Type.f32)
    whole = opset.reduce_sum(x, opset.constant([0, 1, 2, 3]), False)
    rows = opset.reduce_sum(x, opset.constant([2, 3]), False)
    made = openvino().Model([whole, rows], [x], "sums")
    arm_reductions.merge_axes(made, whole_tensors_only=True)
    given = {
        tuple(node.get_input_shape(0)): list(node.input_value(1).get_node().get_data())
        for node in made.get_ops()
        if node.get_type_name() == "ReduceSum"
    }
    assert given == {(60,): [0], (1, 3, 4, 5): [2, 3]}
    values = torch.rand(1, 3, 4, 5)
    found = openvino().Core().compile_model(made, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})(values.numpy())
    torch.testing.assert_close(torch.tensor(found[0]), values.sum())


class Products(nn.Module):
    """Products with 8-bit weights, of rounded tensors."""

    def __init__(self, size, between):
        super().__init__()
        self.between = between
        for place in range(2):
            integers = torch.randint(-127, 128, (size, size), dtype=torch.int8)
            self.register_parameter(f"integers_{place}", nn.Parameter(integers, requires_grad=False))
            scale = nn.Parameter(torch.rand(size, 1) * 0.01 + 0.001, requires_grad=False)
            self.register_parameter(f"scale_{place}", scale)

    def forward(self, x):
        x = torch.fake_quantize_per_tensor_affine(x, 0.02, 0, -128, 127)
        x = self.between(nn.functional.linear(x, self.integers_0.float() * self.scale_0))
        x = torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127)
        return nn.functional.linear(x, self.integers_1.float() * self.scale_1)


@pytest.mark.parametrize("between", [torch.relu, lambda x: x + 1.0], ids=["relu", "add"])
@pytest.mark.parametrize(("rows", "threads"), [(1, 1), (4, 1), (4, 2), (6, 3), (8, 2)])
def test_products_that_follow_each_other_are_computed_as_torch_does(rows, threads, between):
    torch.manual_seed(0)
    model, x = Products(32, between).eval(), torch.randn(rows, 32)
    options = {"cache": False, "speed_trial": False, "threads": threads}
    compiled = torchport.compile(model, (x,), options=options)
    assert compiled.coverage.stayed == ()
    torch.testing.assert_close(compiled(x), model(x), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("size", "rows", "found"),
    [(32, 8, True), (32, 7, True), (256, 8, True), (257, 8, False), (32, 128, False)],
)
def test_small_products_that_follow_each_other_are_found(size, rows, found):
    opset = openvino().opset13
    made = given = opset.parameter([rows, size], openvino().Type.f32)
    for _ in range(2):
        ends = [numpy.float32(end) for end in (-1.28, 1.27)]
        weight = opset.convert(opset.constant(numpy.ones((size, size), numpy.int8)), openvino().Type.f32)
        scaled = opset.multiply(weight, opset.constant(numpy.ones((size, 1), numpy.float32)))
        made = opset.matmul(opset.fake_quantize(made, *ends, *ends, 256), scaled, False, True)
    assert fused_kernels.has_wrong_products(openvino().Model([made], [given])) is found


class Gated(nn.Module):
    """The gated products of language models, rounded as `quantize` does."""

    def __init__(self):
        super().__init__()
        self.gate, self.up = nn.Linear(16, 32, bias=False), nn.Linear(16, 32, bias=False)
        self.down = nn.Linear(32, 16, bias=False)

    def forward(self, x):
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


def test_gated_products_are_computed_as_torch_does():
    torch.manual_seed(0)
    model, items = Gated().eval(), [torch.randn(8, 16) for _ in range(4)]
    quantized = torchport.quantize(model, items, speed=False, accuracy=AccuracyBudget(pcc=0.5))
    assert quantized.plan.count("int8") == 4
    compiled = torchport.compile(quantized, (items[0],), options={"cache": False, "speed_trial": False})
    assert compiled.coverage.stayed == ()
    with torch.no_grad():
        torch.testing.assert_close(compiled(items[0]), quantized(items[0]), atol=1e-4, rtol=1e-4)


class Scaled(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = nn.Parameter(scale)

    def forward(self, x):
        return torch.fake_quantize_per_tensor_affine(x * self.scale, 0.01, 0, -128, 127)


SCALE = torch.linspace(0.03, 0.97, 8)


@pytest.mark.parametrize("config", [{}, {"SNIPPETS_MODE": "DISABLE"}])
@pytest.mark.parametrize("scale", [torch.linspace(-1, 1, 8), -SCALE, SCALE])
def test_tensors_scaled_by_negative_numbers_are_rounded_as_torch_does(scale, config):
    torch.manual_seed(0)
    model, x = Scaled(scale).eval(), torch.randn(4, 8)
    options = {"cache": False, "speed_trial": False, "config": config}
    compiled = torchport.compile(model, (x,), options=options)
    assert compiled.coverage.stayed == ()
    assert ((compiled(x) - model(x)).abs() > 0.005).sum() <= 1  # halfway between two steps


class Untransposed(nn.Module):
    """Products with a weight, transposed in the first one, which OpenVINO then gets in floats."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 16))

    def forward(self, x):
        return (x @ self.weight.T @ self.weight).sum(-1, keepdim=True)


def test_a_product_in_floats_before_one_in_eight_bits_is_computed_as_torch_does():
    torch.manual_seed(1)
    model, items = Untransposed().eval(), [torch.randn(4, 16) for _ in range(6)]
    quantized = torchport.quantize(model, items, speed=False, accuracy=AccuracyBudget(pcc=0.5))
    compiled = torchport.compile(quantized, (items[0],), options={"cache": False, "speed_trial": False})
    assert compiled.coverage.stayed == ()
    with torch.no_grad():
        torch.testing.assert_close(compiled(items[0]), quantized(items[0]), atol=1e-3, rtol=1e-3)
