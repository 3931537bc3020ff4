"""Weights in four bits: two to a byte, a scale per group, and more bits where the accuracy needs them."""

import json

import pytest
import torch
from torch import nn

import torchport
from torchport.errors import QuantizationError
from torchport.quantization import AccuracyBudget
from torchport.quantization.weight_grids import Grid
from torchport.quantization.weight_layers import FourBitLinear, WeightOnlyLinear
from torchport.records.quantization import QuantizationPlan

LOOSE = AccuracyBudget(pcc=0.01)


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 96), nn.GELU(), nn.Linear(96, 32)).eval()


def items() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(8, 64, generator=generator) for _ in range(10)]


def quantize(
    floats: nn.Module, data: list[object], accuracy: AccuracyBudget, options: dict[str, object]
) -> torchport.QuantizedModel:
    """Quantize without timing: speed on this machine does not matter to these tests."""
    return torchport.quantize(
        floats, data, method="weight_only", accuracy=accuracy, speed=False, options=options
    )


def correlation(one: torch.Tensor, other: torch.Tensor) -> float:
    return float(torch.corrcoef(torch.stack([one.flatten(), other.flatten()]))[0, 1])


@pytest.mark.parametrize("symmetric", [True, False])
def test_what_four_bits_hold_is_held_exactly(symmetric: bool) -> None:
    """Integers over the whole range, times a power of two that differs in each group."""
    linear = nn.Linear(64, 8)
    whole = torch.randint(-8, 8, (8, 2, 32)).float() + (0.0 if symmetric else 5.0)
    whole[..., 0], whole[..., 1] = (-8.0, 7.0) if symmetric else (-3.0, 12.0)
    steps = 2.0 ** torch.randint(-6, 3, (8, 2, 1))
    linear.weight.data = (whole * steps).flatten(1)
    made = FourBitLinear(linear, 32, symmetric)
    assert torch.equal(made.weight, linear.weight)
    assert made.packed.nbytes == 64 * 8 // 2
    x = torch.randn(3, 64)
    assert torch.equal(made(x), linear(x))


def test_eight_bits_with_a_zero_point_hold_what_lies_on_one_side() -> None:
    linear = nn.Linear(64, 4)
    linear.weight.data = torch.rand(4, 64) + 0.5
    errors = [
        float((WeightOnlyLinear(linear, symmetric).weight - linear.weight).detach().abs().max())
        for symmetric in (True, False)
    ]
    step = float(linear.weight.detach().max()) / 255  # from 0 to the largest in 255 steps
    assert errors[1] <= step / 2 + 1e-6 < errors[0]


def test_inputs_that_matter_are_rounded_better() -> None:
    weight, importance = torch.randn(32, 4, 16), torch.rand(4, 16) ** 8
    alike, fitted = (Grid.fitted(weight, 4, True, given).hold(weight) for given in (None, importance))
    errors = [float((importance * (held - weight).square()).sum()) for held in (alike, fitted)]
    assert errors[1] < 0.95 * errors[0]
    spanning = Grid.around(weight, 4, True).hold(weight)
    assert (alike - weight).square().sum() < (spanning - weight).square().sum()


@pytest.mark.parametrize("symmetric", [True, False])
def test_it_is_small_and_runs_on_openvino(symmetric: bool, tmp_path) -> None:
    floats, data = model(), items()
    before = {name: tensor.clone() for name, tensor in floats.state_dict().items()}
    options = {"bits": 4, "group_size": 32, "symmetric_weights": symmetric}
    quantized = quantize(floats, data, LOOSE, options)
    assert [(plan.precision, plan.bits) for plan in quantized.plan.layers] == [("weight_only", 4)] * 2
    assert (quantized.report.calibrated_on, quantized.report.judged_on) == (8, 2)
    # Half a byte per weight; for every 32 a scale of two bytes and a zero point of one; biases.
    weights = 64 * 96 + 96 * 32
    expected = weights // 2 + weights // 32 * (2 if symmetric else 3) + 4 * (96 + 32)
    assert quantized.report.bytes == expected
    with torch.no_grad():
        assert correlation(quantized(data[0]), floats(data[0])) > 0.98
    compiled = torchport.compile(quantized, (data[0],))
    assert compiled.coverage.complete
    [island] = compiled.record.islands
    assert int(island.properties["weights_bytes"]) < expected + 512
    torchport.save(compiled, tmp_path / "four.pt2")
    for each in (compiled, torchport.load(tmp_path / "four.pt2")):
        assert torch.allclose(each(data[0]), quantized(data[0]), atol=1e-4)
    assert all(torch.equal(tensor, before[name]) for name, tensor in floats.state_dict().items())
    assert not any(module._forward_pre_hooks for module in floats.modules())


def test_layers_get_eight_bits_where_the_accuracy_asks_for_it() -> None:
    floats, data = model(), items()
    options = {"bits": 4, "group_size": 32}
    loose = quantize(floats, data, LOOSE, options)
    wanted = loose.report.sqnr + 1.5
    found = quantize(floats, data, AccuracyBudget(sqnr=wanted), options)
    assert found.report.sqnr >= wanted
    assert sorted(plan.bits for plan in found.plan.layers) == [4, 8]
    [finer] = [plan for plan in found.plan.layers if plan.bits == 8]
    assert (finer.precision, finer.reason) == ("weight_only", "sensitive")
    assert "in int4" in finer.detail
    with pytest.raises(QuantizationError, match="with all layers in eight bits"):
        quantize(floats, data, AccuracyBudget(sqnr=90.0), options)
    # The plan is given back, and followed.
    plan = QuantizationPlan.from_json(json.loads(json.dumps(found.plan.to_json())))
    again = quantize(floats, data, LOOSE, {**options, "plan": plan})
    assert [layer.bits for layer in again.plan.layers] == [layer.bits for layer in plan.layers]
    assert again.report.sqnr > loose.report.sqnr


def test_a_language_model_generates_with_weights_in_four_bits() -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"vocab_size": 97, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    floats = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=4, eos_token_id=None)).eval()
    data = [{"input_ids": torch.randint(0, 97, (2, 16))} for _ in range(5)]
    quantized = quantize(floats, data, LOOSE, {"bits": 4, "group_size": 32, "size_ratio": 0.0})
    bits = {layer.name: layer.bits for layer in quantized.plan.layers}
    assert bits.pop("model.embed_tokens") == 8
    assert set(bits.values()) == {4}
    assert quantized.report.pcc > 0.95
    ids = data[0]["input_ids"]
    made = quantized.module.generate(ids, max_new_tokens=4, do_sample=False)
    # It generates the same tokens as the simulation.
    for _ in range(4):
        with torch.no_grad():
            following = quantized(input_ids=ids).logits[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat([ids, following], 1)
    assert torch.equal(made, ids)


def test_layers_that_do_not_divide_into_groups_get_eight_bits() -> None:
    quantized = torchport.quantize(model(), (), method="weight_only", options={"bits": 4, "group_size": 64})
    assert [(plan.bits, plan.reason) for plan in quantized.plan.layers] == [
        (4, "default"),
        (8, "not_supported"),
    ]
    assert "96 inputs" in quantized.plan.layers[1].detail


def test_a_weight_that_is_not_finite_stays_in_floats() -> None:
    floats = model()
    floats[0].weight.data[3, 5] = float("inf")
    quantized = torchport.quantize(floats, (), method="weight_only")
    assert [(plan.precision, plan.reason) for plan in quantized.plan.layers] == [
        ("float", "not_supported"),
        ("weight_only", "default"),
    ]


@pytest.mark.parametrize(
    ("options", "method", "words"),
    [
        ({"bits": 3}, "weight_only", "bits is 3"),
        ({"bits": 4, "group_size": 7}, "weight_only", "group_size is 7"),
        ({"bits": 4, "group_size": "64"}, "weight_only", "group_size is '64'"),
        ({"bits": 4}, "ptq", "ptq does not use the option bits"),
        ({"symmetric_weights": "yes"}, "weight_only", "symmetric_weights is 'yes'"),
    ],
)
def test_what_means_nothing_is_refused(options: dict[str, object], method: str, words: str) -> None:
    with pytest.raises(QuantizationError, match=words):
        torchport.quantize(model(), items(), method=method, options=options)


def test_groups_are_smaller_where_a_layer_changes_much_and_larger_where_little() -> None:
    class Weighted(nn.Module):
        """Parallel layers, each with a tenth of the influence of the one before it."""

        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleList(nn.Linear(256, 256, bias=False) for _ in range(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return sum(0.1**place * part(x) for place, part in enumerate(self.parts))

    torch.manual_seed(0)
    floats = Weighted().eval()
    data = [torch.randn(16, 256) for _ in range(6)]
    alike = quantize(floats, data, LOOSE, {"bits": 4, "group_size": 32, "size_ratio": 0.0})
    assert [plan.group_size for plan in alike.plan.layers] == [None] * 4
    # Room for exactly the requested form, in a file (2,500 bytes per layer apart from weights).
    ratio = (alike.report.bytes + 4 * 2500) / (2 * 4 * 256 * 256 + 4 * 2500)
    options = {"bits": 4, "group_size": 32, "size_ratio": ratio}
    made = quantize(floats, data, LOOSE, options)
    # Groups of 16 in the first layer take up what groups of 64 in two others save.
    groups = [16, None, 64, 64]
    assert [(plan.bits, plan.group_size) for plan in made.plan.layers] == [(4, each) for each in groups]
    assert made.report.bytes <= alike.report.bytes
    assert made.report.sqnr > alike.report.sqnr + 0.25
    # A plan that is given back is followed; groups that do not pack into whole bytes are rejected.
    plan = made.plan.to_json()
    again = quantize(floats, data, LOOSE, {**options, "plan": QuantizationPlan.from_json(plan)})
    assert [layer.group_size for layer in again.plan.layers] == groups
    assert again.report.bytes == made.report.bytes
    plan["layers"][0]["group_size"] = 5
    with pytest.raises(QuantizationError, match=r"parts\.0 in the plan is 5"):
        quantize(floats, data, LOOSE, {"bits": 4, "plan": QuantizationPlan.from_json(plan)})


class LinearThatEmbeds(nn.Module):
    """Looks rows up in the weight of its linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(64, 16, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        rows = nn.functional.embedding(ids, self.head.weight)
        return self.head(rows.relu())


def test_a_lookup_in_a_linear_layers_weight_is_not_taken_for_the_layer() -> None:
    torch.manual_seed(0)
    floats = LinearThatEmbeds().eval()
    data: list[object] = [torch.randint(0, 16, (4, 6)) for _ in range(6)]
    made = quantize(floats, data, LOOSE, {"bits": 4, "group_size": 16, "size_ratio": 0})
    assert [layer.bits for layer in made.plan.layers] == [4]
    with torch.no_grad():
        assert correlation(made(data[0]), floats(data[0])) > 0.98
