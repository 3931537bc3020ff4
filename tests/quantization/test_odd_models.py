"""Unusual models and data: odd orders of layers, odd dtypes, results that are not all finite floats."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import nn

import torchport
from torchport.errors import QuantizationError
from torchport.quantization import AccuracyBudget
from torchport.quantization.noise import Noise


def items(*shape: int, count: int = 5) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator) for _ in range(count)]


def pcc(one: torch.Tensor, other: torch.Tensor) -> float:
    return float(torch.corrcoef(torch.stack([one.flatten().double(), other.flatten().double()]))[0, 1])


def norm(channels: int) -> nn.BatchNorm2d:
    made = nn.BatchNorm2d(channels)
    for tensor in (made.running_mean, made.weight.data, made.bias.data):
        tensor.normal_()
    made.running_var.uniform_(0.5, 2)
    return made


def test_convolutions_of_a_single_sample_without_a_batch_are_calibrated() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(6, 12, 3), nn.ReLU(), nn.Conv2d(12, 4, 1)).eval()
    data = items(6, 9, 9)
    quantized = torchport.quantize(model, data, speed=False)
    assert quantized.plan.count("int8") == 2
    with torch.no_grad():
        assert pcc(quantized(data[0]), model(data[0])) > 0.99


class WithCount(nn.Module):
    """Also returns the number of rows."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, int]:
        return self.linear(x), x.shape[0]


def test_a_result_that_counts_the_batch_fixes_its_size() -> None:
    torch.manual_seed(0)
    data = items(3, 8)
    quantized = torchport.quantize(WithCount().eval(), data, method="dynamic", speed=False)
    _, count = quantized(data[0])
    assert (type(count), count) == (int, 3)
    assert torchport.compile(quantized, (data[0],), target="host")(data[0])[1] == 3
    with pytest.raises(QuantizationError, match=r"batch|shape|size"):
        quantized(items(5, 8)[0])


def test_a_result_that_counts_an_open_size_is_refused() -> None:
    rows = torch.export.Dim("rows", min=2, max=64)
    with pytest.raises(QuantizationError, match=r"depends on the sizes of the inputs.*dynamic_shapes"):
        torchport.quantize(
            WithCount().eval(), items(3, 8), method="dynamic", speed=False, dynamic_shapes=({0: rows},)
        )


def test_norms_are_folded_into_each_group_of_a_transposed_convolution() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.ConvTranspose2d(4, 8, 3, stride=2, groups=2), norm(8)).eval()
    data = items(2, 4, 6, 6)
    quantized = torchport.quantize(model, data, speed=False)
    assert [layer.name for layer in quantized.plan.layers] == ["0"]
    assert not any("batch_norm" in str(node.target) for node in quantized.module.graph_module.graph.nodes)
    with torch.no_grad():
        assert pcc(quantized(data[0]), model(data[0])) > 0.999


def test_a_recurrent_layer_alone_is_quantized() -> None:
    torch.manual_seed(0)
    model, data = nn.LSTM(8, 8, batch_first=True).eval(), items(2, 4, 8)
    quantized = torchport.quantize(model, data, speed=False)
    assert quantized.plan.count("int8") >= 4  # a product of the inputs, and one for each later step
    with torch.no_grad():
        assert pcc(quantized(data[0])[0], model(data[0])[0]) > 0.99


def largest(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.adaptive_max_pool1d(x, 4)


def sorted_and_unsorted(x: torch.Tensor) -> torch.Tensor:
    one, other = x.chunk(2, -1)
    return torch.sort(one).values + other


def deviations(x: torch.Tensor) -> torch.Tensor:
    variance, mean = torch.var_mean(x, -1, keepdim=True)
    return (x[..., :4] - mean) / variance


def the_third_and_the_second(x: torch.Tensor) -> torch.Tensor:
    parts = x.unflatten(-1, (4, 2)).unbind(-2)
    return torch.cat([parts[2], parts[1]], -1)


@pytest.mark.parametrize(
    "choose",
    [largest, sorted_and_unsorted, deviations, the_third_and_the_second],
    ids=lambda each: each.__name__,
)
def test_ops_with_several_results_lie_between_quantized_layers(
    choose: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    class Chosen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(8, 8), nn.Linear(4, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(choose(self.first(x)))

    torch.manual_seed(0)
    model, data = Chosen().eval(), items(4, 8)
    quantized = torchport.quantize(model, data, accuracy=AccuracyBudget(pcc=0.9), speed=False)
    assert {layer.precision for layer in quantized.plan.layers if "linear" in layer.op} == {"int8"}
    with torch.no_grad():
        assert pcc(quantized(data[0]), model(data[0])) > 0.98


class Masked(nn.Module):
    """Masks scores with minus infinity."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.register_buffer("mask", torch.tensor([0.0, 0.0, -math.inf, 0.0, 0.0, 0.0, 0.0, -math.inf]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return scores."""
        return self.layer(x) + self.mask


@pytest.mark.parametrize("method", ["ptq", "dynamic", "weight_only"])
def test_infinite_results_of_a_mask_are_no_error(method: str) -> None:
    quantized = torchport.quantize(Masked().eval(), items(4, 8), method=method, speed=False)
    assert quantized.report.pcc > 0.99
    assert "float" not in {layer.precision for layer in quantized.plan.layers if "linear" in layer.op}


class Classes(nn.Module):
    """Returns only integers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return classes."""
        return self.layer(x).argmax(-1)


@pytest.mark.parametrize("method", ["ptq", "dynamic", "weight_only"])
def test_results_that_say_nothing_are_refused(method: str) -> None:
    """With nothing to compare, the PCC would be perfect."""
    with pytest.raises(QuantizationError, match=r"no finite floating-point values.*evaluate="):
        torchport.quantize(Classes().eval(), items(4, 8), method=method, speed=False)
    with pytest.raises(QuantizationError, match="finite"):
        torchport.quantize(
            nn.Linear(8, 8).eval(), [torch.full((4, 8), math.inf)] * 4, method=method, speed=False
        )
    with pytest.raises(QuantizationError, match=r"item 0 has no elements: \[0, 8\]"):
        torchport.quantize(nn.Linear(8, 8).eval(), [torch.ones(0, 8)] * 4, method=method, speed=False)
    scored = torchport.quantize(
        Classes().eval(),
        items(4, 8),
        method=method,
        speed=False,
        accuracy=AccuracyBudget(evaluate=lambda _: 1),
    )
    assert scored.report.score == 1


def test_noise_counts_what_both_have_as_nothing_and_what_one_has_as_lost() -> None:
    noise = Noise()
    noise.add(torch.tensor([1.0, -math.inf, math.nan]), torch.tensor([1.0, -math.inf, math.nan]))
    assert (noise.count, noise.pcc, noise.sqnr) == (1, 1.0, math.inf)
    noise.add(torch.tensor([1.0, math.nan]), torch.tensor([1.0, 2.0]))
    assert (noise.pcc, noise.sqnr) == (0.0, -math.inf)


@pytest.mark.parametrize(("ours", "theirs"), [(1.01, 1.0), (0.0, 1.0), (1.0, 0.0)])
def test_a_number_that_does_not_vary_is_judged_by_its_size(ours: float, theirs: float) -> None:
    noise = Noise()
    for _ in range(3):
        noise.add(torch.tensor([ours]), torch.tensor([theirs]))
    assert noise.pcc == pytest.approx(theirs / math.hypot(theirs, ours - theirs), rel=1e-6)


class TwoResults(nn.Module):
    """A large result that is accurate in eight bits, and a small one that is not: one input dominates it."""

    def __init__(self) -> None:
        super().__init__()
        self.large, self.small = nn.Linear(16, 16, bias=False), nn.Linear(16, 16, bias=False)
        with torch.no_grad():
            self.small.weight[:, 0] = 30.0

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return 1e3 * self.large(x), 1e-3 * self.small(x)


@pytest.mark.parametrize("method", ["ptq", "weight_only"])
def test_a_large_result_does_not_hide_a_small_one(method: str) -> None:
    torch.manual_seed(0)
    model, item = TwoResults().eval(), torch.randn(64, 16)
    item[:, 0] = 0.0  # the outlier costs the other weights their bits, but contributes nothing
    made = torchport.quantize(
        model, [item] * 4, method=method, speed=False, accuracy=AccuracyBudget(pcc=0.01)
    )
    with torch.no_grad():
        large, small = (pcc(one, other) for one, other in zip(made(item), model(item), strict=True))
    assert small < 0.99 < large
    assert made.report.pcc == pytest.approx(small, abs=1e-3)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("bits", [8, 4])
def test_weights_alone_are_quantized_in_any_precision(dtype: torch.dtype, bits: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).eval().to(dtype)
    data = [item.to(dtype) for item in items(32, 64)]
    quantized = torchport.quantize(
        model, data, method="weight_only", speed=False, options={"bits": bits, "size_ratio": 0}
    )
    assert {layer.bits for layer in quantized.plan.layers} == {bits}
    with torch.no_grad():
        result = quantized(data[0])
        assert result.dtype is dtype
        assert pcc(result, model(data[0])) > 0.99


class Doubling(nn.Module):
    """Writes to its input and branches on values, so it cannot be captured."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return scores."""
        x.mul_(2 if float(x.sum()) > -1e9 else 3)
        return self.layer(x)


@pytest.mark.parametrize("bits", [8, 4])
def test_items_stay_as_they_are(bits: int) -> None:
    data = items(4, 64)
    torchport.quantize(
        Doubling().eval(), data, method="weight_only", speed=False, options={"bits": bits},
        accuracy=AccuracyBudget(pcc=0.9),
    )  # fmt: skip
    assert all(torch.equal(left, right) for left, right in zip(data, items(4, 64), strict=True))


class Lonely(nn.Module):
    """Treats a single sample differently."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return scores."""
        return 3 * self.layer(x) + 1 if len(x) == 1 else -self.layer(x).abs()


@pytest.mark.parametrize("method", ["ptq", "dynamic"])
def test_data_of_one_sample_say_what_is_done_with_one(method: str) -> None:
    torch.manual_seed(0)
    model, data = Lonely().eval(), items(1, 8)
    quantized = torchport.quantize(model, data, method=method, speed=False, accuracy=AccuracyBudget(pcc=0.9))
    with torch.no_grad():
        assert pcc(quantized(data[0]), model(data[0])) > 0.9
    with pytest.raises(QuantizationError, match="calibration data of that shape"):
        quantized(torch.randn(2, 8))


@pytest.mark.parametrize("method", ["ptq", "dynamic"])
def test_caches_are_no_results(method: str) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"vocab_size": 50, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
    model = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=2)).eval()
    data = [{"input_ids": torch.randint(0, 50, (2, 6))} for _ in range(4)]
    quantized = torchport.quantize(model, data, method=method, speed=False, accuracy=AccuracyBudget(pcc=0.1))
    judged = [item["input_ids"] for item in (data if method == "dynamic" else [data[2]])]
    with torch.no_grad():
        ours, theirs = (
            torch.cat([each(input_ids=ids).logits for ids in judged]) for each in (quantized, model)
        )
    assert quantized.report.pcc == pytest.approx(pcc(ours, theirs), abs=1e-6)


class Hidden(nn.Module):
    """Computes with integers, and masks values."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.inner, self.last = nn.Embedding(12, 8), nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return scores, and the next words."""
        shifted = ids * 2 - ids + 1
        x = self.inner(self.table(shifted)).masked_fill(mask[..., None], 0.0)
        x = torch.where(mask[..., None], x, -x) + x.gather(1, ids.clamp_max(2)[..., None].expand_as(x))
        return self.last(x.sum(1)), shifted


@pytest.mark.parametrize("method", ["ptq", "dynamic"])
def test_whole_numbers_and_masks_stay_as_they_are(method: str) -> None:
    torch.manual_seed(0)
    model = Hidden().eval()
    data = [(torch.randint(0, 11, (3, 5)), torch.rand(3, 5) > 0.5) for _ in range(6)]
    options = {"ranges": "min_max"} if method == "ptq" else {}
    quantized = torchport.quantize(model, data, method=method, speed=False, options=options)
    assert {"inner", "last"} <= {layer.name for layer in quantized.plan.layers if layer.precision == "int8"}
    with torch.no_grad():
        (scores, words), (expected, expected_words) = quantized(*data[0]), model(*data[0])
    assert torch.equal(words, expected_words)
    assert pcc(scores, expected) > 0.99
