"""Dynamic quantization: weights in eight bits, activations by their own range in each call."""

import pytest
import torch
from torch import nn

import torchport
from torchport import targets
from torchport.errors import QuantizationError
from torchport.quantization import AccuracyBudget, item_of, speed
from torchport.records import OpTime


def dynamic(model: nn.Module, *items: object, **more: object) -> torchport.QuantizedModel:
    return torchport.quantize(model, items, method="dynamic", **{"speed": False, **more})


def in_eight_bits(weight: torch.Tensor, dim: int = 0) -> torch.Tensor:
    """Return a weight rounded to eight bits, with a scale for each output channel."""
    dims = [each for each in range(weight.dim()) if each != dim]
    scale = weight.detach().abs().amax(dims, keepdim=True) / 127
    return (weight.detach() / scale).round() * scale


def test_each_token_is_rounded_by_its_own_range() -> None:
    torch.manual_seed(0)
    model = nn.Linear(16, 4).eval()
    x = torch.randn(2, 3, 16) * torch.tensor([1e-3, 1.0, 1e3])[:, None]
    x[1, 2] = 0.0  # an empty range
    quantized = dynamic(model, x)
    step = x.abs().amax(-1, keepdim=True) / 127
    rounded = torch.where(step > 0, (x / step).round() * step, 0.0)
    expected = rounded @ in_eight_bits(model.weight).T + model.bias
    assert torch.allclose(quantized(x), expected, rtol=1e-4, atol=1e-5)
    assert not torch.equal(quantized(x), model(x))
    # Neither the rest of the batch nor its size makes a difference.
    assert torch.allclose(quantized(x[:1]), quantized(x)[:1], atol=1e-6)
    [row] = quantized.report.layers
    assert row.clipped == 0.0
    assert row.range_low is None
    assert row.low == pytest.approx(float(x.min()))


def test_each_image_is_rounded_by_its_own_range_in_all_steps_above_zero() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.ReLU(), nn.Conv2d(3, 4, 3, padding=1), nn.ConvTranspose2d(4, 2, 2, 2)).eval()
    x = torch.randn(2, 3, 5, 5) * torch.tensor([0.01, 10.0])[:, None, None, None]
    quantized = dynamic(model, x)

    def rounded(image: torch.Tensor, steps: int) -> torch.Tensor:
        step = image.abs().amax((1, 2, 3), keepdim=True) / steps
        return (image / step).round() * step

    with torch.no_grad():
        middle = nn.functional.conv2d(
            rounded(x.relu(), 255), in_eight_bits(model[1].weight), model[1].bias, padding=1
        )
        weight = in_eight_bits(model[2].weight, 1)
        expected = nn.functional.conv_transpose2d(rounded(middle, 127), weight, model[2].bias, stride=2)
    assert torch.allclose(quantized(x), expected, rtol=1e-4, atol=1e-5)


class Kinds(nn.Module):
    """A recurrent layer, attention, a product with a parameter, one layer called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent = nn.GRU(6, 8, batch_first=True)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.matrix = nn.Parameter(torch.randn(8, 5))
        self.shared = nn.Linear(5, 5, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return five numbers for each token."""
        states = self.recurrent(x)[0]
        seen = self.attention(states, states, states, need_weights=False)[0]
        return self.shared(torch.relu(self.shared(seen @ self.matrix)))


def test_it_runs_on_openvino_and_on_the_host_from_a_file_too(tmp_path) -> None:
    torch.manual_seed(0)
    model, x = Kinds().eval(), torch.randn(4, 3, 6)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    quantized = dynamic(model, x, accuracy=AccuracyBudget(pcc=0.995))
    names = {layer.name.split("#")[0] for layer in quantized.plan.layers}
    assert names == {"recurrent", "attention", "matmul", "shared"}
    assert quantized.plan.count("int8") == len(quantized.plan.layers)
    assert quantized.report.pcc > 0.995
    # Weights shared by two calls or by time steps are stored once: a byte per weight, and scales, biases.
    weights = sum(tensor.nbytes for tensor in quantized.parameters() if tensor.dtype is torch.int8)
    assert weights == sum(tensor.numel() for tensor in model.state_dict().values() if tensor.dim() == 2)
    with torch.no_grad():
        floats, simulated = model(x), quantized(x)
    assert 0 < float((simulated - floats).abs().max()) < 0.1 * float(floats.abs().max())
    for target in ("openvino", "host"):
        compiled = torchport.compile(quantized, (x,), target=target, options={"speed_trial": False})
        torchport.save(compiled, tmp_path / f"{target}.pt2")
        loaded = torchport.load(tmp_path / f"{target}.pt2")
        assert loaded.plan == quantized.plan
        assert quantized.plan.method == "dynamic"
        for each in (compiled, loaded):
            # A value midway between two steps may be rounded to either.
            assert float((each(x) - simulated).abs().mean()) < 0.02 * float(simulated.std())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_parts_of_a_packed_weight_are_quantized_too() -> None:
    """Cross-attention splits its packed weight."""

    class Cross(nn.Module):
        """Attends to what is given."""

        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
            """Return eight numbers for each token."""
            return self.attention(x, other, other, need_weights=False)[0]

    torch.manual_seed(0)
    model, inputs = Cross().eval(), (torch.randn(4, 3, 8), torch.randn(4, 5, 8))
    quantized = dynamic(model, inputs)
    assert [layer.precision for layer in quantized.plan.layers] == ["int8"] * 3  # queries; keys, values; out
    stored = [tensor for tensor in quantized.parameters() if tensor.dtype is torch.int8]
    assert sum(tensor.numel() for tensor in stored) == 4 * 8 * 8
    with torch.no_grad():
        assert torch.allclose(quantized(*inputs), model(*inputs), atol=0.02)


def test_the_engine_has_the_kernels_that_it_has_for_calibrated_ranges() -> None:
    """Checked by its own counters; which layers those are depends on the processor."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)).eval()
    items = [torch.randn(32, 64) for _ in range(4)]
    openvino = targets.find("openvino")
    kernels = []
    for quantized in (torchport.quantize(model, items, speed=False), dynamic(model, items[0])):
        times = speed._product_times(quantized, openvino, (items[0],), {})
        kernels.append([time.precision.lower() in ("i8", "u8", "s8") for time in times])
    assert len(kernels[0]) == 2
    assert kernels[0] == kernels[1]


def test_layers_without_a_kernel_stay_in_floats(monkeypatch) -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4)).eval(), torch.randn(4, 6)
    kernels = [OpTime("", 1e-4, f"gemm {kind}", kind, False) for kind in ("f32", "i8")]
    answers = iter([[kernels[0]] * 2, kernels])
    monkeypatch.setattr(speed, "_product_times", lambda *given: next(answers))
    monkeypatch.setattr(speed._Timed, "seconds", lambda self: (1e-3, 5e-4))
    quantized = dynamic(model, x, speed=True)
    found = [(layer.precision, layer.reason) for layer in quantized.plan.layers]
    assert found == [("float", "no_kernel"), ("int8", "default")]
    assert quantized.report.seconds == 5e-4


def test_overrides_and_an_edited_plan_are_followed() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4)).eval(), torch.randn(4, 6)
    quantized = dynamic(model, x, options={"overrides": {"0": "weight_only", "2": "float"}})
    assert [layer.precision for layer in quantized.plan.layers] == ["weight_only", "float"]
    with torch.no_grad():
        hidden = torch.relu(x @ in_eight_bits(model[0].weight).T + model[0].bias)
        assert torch.allclose(quantized(x), model[2](hidden), atol=1e-5)
    again = dynamic(model, x, options={"plan": quantized.plan})
    assert torch.equal(again(x), quantized(x))


def test_one_item_is_enough_and_none_is_not() -> None:
    with pytest.raises(QuantizationError, match=r"it is empty.*give at least one item"):
        dynamic(nn.Linear(2, 2).eval())
    with pytest.raises(QuantizationError, match="item 0 has NaN"):
        dynamic(nn.Linear(2, 2).eval(), torch.full((1, 2), torch.nan))
    with pytest.raises(QuantizationError, match="no layer that can be quantized"):
        dynamic(nn.Softmax(-1).eval(), torch.rand(2, 2))


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("dynamic", {"ranges": "histogram"}, "dynamic does not use the option ranges.*'ptq' or 'qat'"),
        ("dynamic", {"activations": "asymmetric"}, "does not use the option activations"),
        ("dynamic", {"bits": 4}, "does not use the option bits.*'weight_only'"),
        ("weight_only", {"smooth_quant": True}, "weight_only does not use the option smooth_quant"),
        ("qat", {"smooth_quant": True}, "qat does not use the option smooth_quant"),
    ],
)
def test_an_option_that_would_be_ignored_is_refused(method: str, options: dict, message: str) -> None:
    with pytest.raises(QuantizationError, match=message):
        torchport.quantize(nn.Linear(2, 2).eval(), [torch.rand(2, 2)] * 2, method=method, options=options)


def test_a_call_becomes_an_item() -> None:
    class Two(nn.Module):
        """Two inputs."""

        def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
            """Add them."""
            return first + second

    one, other = torch.ones(1), torch.zeros(1)
    assert item_of(Two(), (one, other), {}) == (one, other)
    assert item_of(Two(), (one,), {"second": other}) == {"first": one, "second": other}
