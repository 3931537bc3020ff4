"""Quantized models with onnxruntime: integer kernels, and eager torch's numbers."""

from dataclasses import replace

import numpy
import onnx
import pytest
import torch
from onnx import numpy_helper
from torch import nn

import torchport
from targets.graphs import island_of, verdict_on
from torchport.errors import TargetError
from torchport.quantization import AccuracyBudget
from torchport.targets import Artifact, find, processor
from torchport.targets.onnxruntime.load import session_options
from torchport.targets.onnxruntime.quantized import write_zero_points

ONNXRUNTIME = find("onnxruntime")
OPTIONS = ONNXRUNTIME.make_options({})
NO_TRIAL = {"speed_trial": False, "cache": False}


class Mixed(nn.Module):
    """A convolution, a residual, and two linear layers with and without a bias."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.second = nn.Conv2d(16, 16, 3, padding=1, groups=4)
        self.hidden = nn.Linear(16, 24)
        self.last = nn.Linear(24, 8, bias=False)

    def forward(self, x):
        x = torch.relu(self.first(x))
        x = torch.relu(x + self.second(x)).flatten(2).transpose(1, 2)
        return self.last(torch.relu(self.hidden(x)))


@pytest.fixture(scope="module")
def items():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, 3, 8, 8, generator=generator) for _ in range(8)]


@pytest.fixture(scope="module")
def mixed():
    torch.manual_seed(0)
    return Mixed().eval()


def quantized(model, items, method="ptq"):
    budget = AccuracyBudget(pcc=0.5)
    return torchport.quantize(model, items, method=method, target="onnxruntime", speed=False, accuracy=budget)


def assert_close(found, wanted):
    """Values halfway between two quantization steps may be rounded to either: nearly all others are equal."""
    assert (found - wanted).abs().max() <= 0.05 * wanted.abs().max()
    assert torch.corrcoef(torch.stack([found.flatten(), wanted.flatten()]))[0, 1] > 0.9999


@pytest.mark.parametrize("method", ["ptq", "dynamic", "weight_only"])
def test_nothing_stays_and_results_are_the_simulations(mixed, items, method, tmp_path):
    model = quantized(mixed, items, method)
    compiled = torchport.compile(model, (items[0],), target="onnxruntime", options=NO_TRIAL)
    assert compiled.coverage.ops_remain == 0
    torchport.save(compiled, tmp_path / "mixed.pt2")
    loaded = torchport.load(tmp_path / "mixed.pt2")
    with torch.no_grad():
        for x in items[1:3]:
            assert_close(compiled(x), model(x))
            assert_close(loaded(x), model(x))


def test_convolutions_and_products_have_integer_kernels(mixed, items):
    model = quantized(mixed, items)
    assert {layer.precision for layer in model.plan.layers if "conv" in layer.op or "linear" in layer.op} == {
        "int8"
    }
    profile = torchport.profile(model, (items[0],), target="onnxruntime")
    kernels = {row.kernel.split()[0]: row.precision for row in profile.ops}
    assert kernels["QLinearConv"] == "u8"
    assert kernels["MatMulIntegerToFloat"] == "u8"
    assert not {"Conv", "FusedConv", "MatMul", "Gemm"} & set(kernels)


def test_layers_with_a_kernel_are_not_put_back_for_want_of_one(mixed, items, monkeypatch):
    times = type(ONNXRUNTIME).op_times

    def on_a_busy_machine(self, *args):
        """Return times as if every kernel but convolutions and products had been interrupted."""
        return [
            replace(
                each, seconds=each.seconds * (1 if "Conv" in each.kernel or "MatMul" in each.kernel else 99)
            )
            for each in times(self, *args)
        ]

    monkeypatch.setattr(type(ONNXRUNTIME), "op_times", on_a_busy_machine)
    budget = AccuracyBudget(pcc=0.5)
    model = torchport.quantize(mixed, items, target="onnxruntime", accuracy=budget)
    assert "no_kernel" not in {layer.reason for layer in model.plan.layers}


def test_each_weight_has_zero_points_of_its_own():
    """Without them, or with shared ones, onnxruntime fails where it converts int8 to uint8: on x86."""
    tensor = numpy_helper.from_array
    weights = [tensor(numpy.ones((4, 3), numpy.int8), f"weight_{place}") for place in range(2)]
    scale = tensor(numpy.ones(4, numpy.float32), "scale")
    nodes = [
        onnx.helper.make_node("DequantizeLinear", [weight.name, "scale"], [f"made_{place}"], axis=0)
        for place, weight in enumerate(weights)
    ]
    outputs = [onnx.helper.make_tensor_value_info(f"made_{place}", 1, [4, 3]) for place in range(2)]
    model = onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", [], outputs, [*weights, scale]))
    write_zero_points(model)
    onnx.checker.check_model(model)
    zeros = [node.input[2] for node in model.graph.node]
    assert len(set(zeros)) == 2
    tensors = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    for name in zeros:
        assert tensors[name].dtype == numpy.int8
        assert tensors[name].tolist() == [0, 0, 0, 0]


def test_a_profile_that_fails_is_the_target_s_error():
    """Timing layers is optional: onnxruntime's own exception would abort the whole quantization."""
    island = island_of(torch.relu, torch.ones(2, 4), target="onnxruntime")
    assert ONNXRUNTIME.op_times(island, OPTIONS, [torch.ones(2, 4)])
    with pytest.raises(TargetError, match=r"onnxruntime fails: .*Got invalid dimensions"):
        ONNXRUNTIME.op_times(island, OPTIONS, [torch.ones(3, 4)])


@pytest.mark.parametrize(("low", "high"), [(0, 255), (-128, 127), (-127, 127)])
@pytest.mark.parametrize("zero_point", [0, 3])
def test_numbers_are_rounded_as_torch_does(low, high, zero_point):
    def function(x):
        return torch.fake_quantize_per_tensor_affine(x, 0.125, zero_point, low, high)

    island = island_of(function, torch.ones(1, 1003), target="onnxruntime")
    run = ONNXRUNTIME.load(ONNXRUNTIME.build(island, OPTIONS), island.inputs, island.outputs, OPTIONS)
    x = torch.linspace(-40, 40, 1003).reshape(1, -1)  # beyond both ends; a scale of 1/8 divides exactly
    torch.testing.assert_close(run([x]), [function(x)], rtol=0, atol=0)


def test_a_grid_that_onnx_does_not_have_stays():
    verdict = verdict_on(
        "aten.fake_quantize_per_tensor_affine_cachemask.default",
        lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, 0, 15),
        torch.ones(4),
        target="onnxruntime",
    )
    assert verdict.reason == "argument"
    assert "0 to 15" in verdict.detail


def _spoil_attribute(node, tensors):
    node.attribute.append(onnx.helper.make_attribute("block_size", 1))


def _spoil_zero(node, tensors):
    tensors[node.input[2]].CopyFrom(numpy_helper.from_array(numpy.zeros(3, numpy.uint8), node.input[2]))


def _spoil_scale(node, tensors):
    tensors[node.input[1]].CopyFrom(numpy_helper.from_array(numpy.ones(3, numpy.float32), node.input[1]))


def _spoil_source_of_scale(node, tensors):
    node.input[1] = node.input[0]


@pytest.mark.parametrize("spoil", [_spoil_attribute, _spoil_zero, _spoil_scale, _spoil_source_of_scale])
def test_a_grid_that_is_no_build_s_is_refused(spoil):
    def function(x):
        return torch.fake_quantize_per_tensor_affine(x, 0.125, 0, 0, 255)

    island = island_of(function, torch.ones(2, 4), target="onnxruntime")
    artifact = ONNXRUNTIME.build(island, OPTIONS)
    model = onnx.load_from_string(artifact.payload.tobytes())
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    [node] = [node for node in model.graph.node if node.op_type == "QuantizeLinear"]
    spoil(node, tensors)
    spoilt = Artifact(numpy.frombuffer(model.SerializeToString(), numpy.uint8), artifact.properties)
    with pytest.raises(TargetError, match="QuantizeLinear"):
        ONNXRUNTIME.load(spoilt, island.inputs, island.outputs, OPTIONS)


@pytest.mark.parametrize(
    ("flags", "precise"), [(["avx2"], True), (["avx2", "avx512_vnni"], False), ([], True)]
)
def test_weights_are_unsigned_only_where_sums_would_overflow(flags, precise, monkeypatch):
    """Unsigned weights take three times as long, and VNNI accumulates in 32 bits."""
    monkeypatch.setattr(processor, "flags", lambda: frozenset(flags))
    entry = "session.x64quantprecision"
    if precise:
        assert session_options(OPTIONS).get_session_config_entry(entry) == "1"
    else:
        with pytest.raises(RuntimeError, match=entry):
            session_options(OPTIONS).get_session_config_entry(entry)


@pytest.mark.parametrize("layer", [nn.Linear(256, 8, bias=False), nn.Conv2d(256, 8, 1, bias=False)])
def test_sums_of_the_largest_products_do_not_overflow(layer):
    """256 products of 255 and 127: the sum of two of them exceeds 16 bits."""
    layer = layer.eval()
    nn.init.ones_(layer.weight)
    shape = (4, 256) if isinstance(layer, nn.Linear) else (4, 256, 1, 1)
    items = [torch.ones(shape), torch.rand(shape), torch.ones(shape)]
    compiled = torchport.compile(quantized(layer, items), (items[0],), target="onnxruntime", options=NO_TRIAL)
    assert compiled.coverage.ops_remain == 0
    torch.testing.assert_close(
        compiled(torch.ones(shape)).flatten(), torch.full((32,), 256.0), rtol=0.01, atol=0
    )


class Products(nn.Module):
    """Products that nncf takes for those with a transposed weight."""

    def __init__(self):
        super().__init__()
        self.first = nn.Parameter(torch.randn(16, 16))
        self.second = nn.Parameter(torch.randn(16, 16))
        self.bias = nn.Parameter(torch.randn(16))

    def forward(self, x):
        return torch.addmm(self.bias, torch.relu(x @ self.first), self.second)


@pytest.mark.parametrize("target", ["openvino", "onnxruntime"])
def test_weights_of_products_have_a_scale_for_each_output(target):
    torch.manual_seed(0)
    model, items = Products().eval(), [torch.randn(8, 16) for _ in range(4)]
    made = torchport.quantize(model, items, target=target, speed=False, accuracy=AccuracyBudget(pcc=0.5))
    assert [layer.precision for layer in made.plan.layers] == ["int8", "int8"]
    scales = [each for name, each in made.module.graph_module.named_parameters() if "scale" in name]
    assert {tuple(scale.shape) for scale in scales} == {(1, 16)}
    compiled = torchport.compile(made, (items[0],), target=target, options=NO_TRIAL)
    assert compiled.coverage.stayed == ()
    assert_close(compiled(items[0]), made(items[0]))


class Rounding(nn.Module):
    """Rounds what a layer reads and returns, but not its weights."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        x = torch.fake_quantize_per_tensor_affine(x, 0.05, 0, -128, 127)
        return torch.fake_quantize_per_tensor_affine(self.layer(x), 0.02, 0, -128, 127)


@pytest.mark.parametrize("layer", [nn.Conv2d(1, 4, 3), nn.Conv2d(1, 4, 3, bias=False)])
def test_weights_that_are_floats_stay_floats(layer):
    torch.manual_seed(0)
    model, x = Rounding(layer).eval(), torch.randn(8, 1, 6, 6)
    with torch.no_grad():
        layer.weight.normal_()
        compiled = torchport.compile(model, (x,), target="onnxruntime", options=NO_TRIAL)
        assert compiled.coverage.stayed == ()
        differing = (compiled(x) - model(x)).abs() > 0.01
    assert differing.float().mean() < 0.01  # those halfway between two steps; of rounded weights, a quarter


def test_a_bias_that_exceeds_its_integers_keeps_its_value():
    """The bias is a multiple of the weights' scale, which is tiny for a channel that is next to nothing."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU(), nn.Conv2d(4, 2, 1)).eval()
    items = [torch.randn(2, 3, 5, 5) for _ in range(4)]
    with torch.no_grad():
        model[0].weight[1] *= 1e-12
        model[0].weight[2] = 0
        model[0].bias[:] = torch.tensor([0.5, 1.5, 2.5, 3.5])
        made = quantized(model, items)
        compiled = torchport.compile(made, (items[0],), target="onnxruntime", options=NO_TRIAL)
        assert compiled.coverage.stayed == ()
        assert_close(compiled(items[0]), made(items[0]))
    profile = torchport.profile(made, (items[0],), target="onnxruntime")
    assert "QLinearConv" in {row.kernel.split()[0] for row in profile.ops}


@pytest.mark.parametrize("method", ["ptq", "dynamic"])
def test_quantized_models_with_ops_that_the_exporter_decomposes_are_exported(method):
    """There is no lowering for the pooling: the exporter captures and decomposes the whole island."""
    torch.manual_seed(0)
    pool = nn.AdaptiveAvgPool2d(2)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), pool, nn.Flatten(), nn.Linear(32, 5)).eval()
    items = [torch.randn(2, 3, 9, 9) for _ in range(4)]
    made = quantized(model, items, method)
    compiled = torchport.compile(made, (items[0],), target="onnxruntime", options=NO_TRIAL)
    assert compiled.coverage.stayed == ()
    with torch.no_grad():
        assert_close(compiled(items[0]), made(items[0]))
    if method == "ptq":
        profile = torchport.profile(made, (items[0],), target="onnxruntime")
        assert "QLinearConv" in {row.kernel.split()[0] for row in profile.ops}
