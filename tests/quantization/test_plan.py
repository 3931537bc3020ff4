"""The plan: overrides, an accuracy budget, and a plan that is edited and given back."""

import json
import os
from dataclasses import replace

import pytest
import torch
from torch import nn

import torchport
from torchport.errors import QuantizationError, RecordError
from torchport.quantization import AccuracyBudget, QuantizationOptions, read_plan
from torchport.records.quantization import LayerPlan, QuantizationPlan, QuantizationReport


class Uneven(nn.Module):
    """Three layers, one of which fails in eight bits: one feature is huge, but the small ones matter."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.narrow = nn.Linear(16, 16)
        self.last = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return four numbers."""
        return self.last(torch.relu(self.narrow(torch.relu(self.first(x)))))


def uneven() -> Uneven:
    torch.manual_seed(0)
    model = Uneven().eval()
    with torch.no_grad():
        model.first.weight[0] = model.first.weight[0].abs() * 1e4
        model.narrow.weight[:, 0] *= 1e-4
    return model


def items() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.rand(16, 8, generator=generator) for _ in range(10)]


def fidelity(model: nn.Module) -> float:
    """100, less the mean error in percent of the float model's spread."""
    x = torch.rand(64, 8, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        expected = uneven()(x)
        return 100 * (1 - float((model(x) - expected).abs().mean() / expected.std()))


PLAIN = {"smooth_quant": False, "bias_correction": False}


def test_sensitive_layers_go_back_to_floats_until_the_budget_holds() -> None:
    budget = AccuracyBudget(evaluate=fidelity, max_drop=5.0)
    loose = AccuracyBudget(evaluate=fidelity, max_drop=1000.0)
    worse = torchport.quantize(uneven(), items(), speed=False, accuracy=loose, options=PLAIN)
    assert worse.plan.count("int8") == 3
    assert fidelity(worse) < 95.0
    found = torchport.quantize(uneven(), items(), speed=False, accuracy=budget, options=PLAIN)
    assert fidelity(found) >= 95.0
    layers = {layer.name: layer for layer in found.plan.layers}
    assert layers["narrow"].precision == "float"
    assert layers["narrow"].reason == "sensitive"
    assert "dB" in layers["narrow"].detail
    assert found.plan.count("int8") == 2
    assert found.report.score_float == pytest.approx(100.0)
    assert found.report.score == pytest.approx(fidelity(found))
    # The worst layer comes first, and it is the one at fault.
    assert worse.report.layers[0].name == "narrow"
    assert worse.report.layers[0].sqnr_isolated < 20 < worse.report.layers[-1].sqnr_isolated


def test_without_an_evaluation_the_correlation_on_held_back_data_decides() -> None:
    found = torchport.quantize(uneven(), items(), speed=False, options=PLAIN)
    assert found.report.pcc >= 0.99
    assert found.plan.precision_of("narrow") == "float"
    assert (found.report.calibrated_on, found.report.judged_on) == (8, 2)


def test_a_budget_that_cannot_hold_says_by_how_much() -> None:
    scores = iter([90.0, *[70.0] * 20])
    budget = AccuracyBudget(evaluate=lambda model: next(scores), max_drop=5.0)
    with pytest.raises(QuantizationError, match="the score is 70, and 85 is required"):
        torchport.quantize(uneven(), items(), speed=False, accuracy=budget)


def test_overrides_by_module_and_by_op() -> None:
    loose = AccuracyBudget(pcc=0.01)
    found = torchport.quantize(
        uneven(), items(), speed=False, accuracy=loose,
        options=QuantizationOptions(overrides={"aten.linear": "float", "l*": "int8", "first": "weight_only"}),
    )  # fmt: skip
    assert [layer.precision for layer in found.plan.layers] == ["weight_only", "float", "int8"]
    assert all(layer.reason == "kept_by_option" for layer in found.plan.layers)
    stored = {str(tensor.dtype) for tensor in found.parameters()}
    assert stored == {"torch.int8", "torch.float32"}
    rounded = [node for node in found.module.graph_module.graph.nodes if "fake_quantize" in str(node.target)]
    assert len(rounded) == 1  # the input of `last`


def test_a_plan_is_json_and_can_be_edited_and_given_back(tmp_path) -> None:
    loose = AccuracyBudget(pcc=0.01)
    first = torchport.quantize(uneven(), items(), speed=False, accuracy=loose)
    first.save_plan(tmp_path / "plan.json")
    read = read_plan(tmp_path / "plan.json")
    assert read == first.plan
    edited = replace(
        read,
        layers=tuple(
            replace(layer, precision="float") if layer.name == "last" else layer for layer in read.layers
        ),
    )
    again = torchport.quantize(uneven(), items(), speed=False, accuracy=loose, options={"plan": edited})
    assert again.plan.precision_of("last") == "float"
    assert again.plan.precision_of("first") == "int8"
    strange = replace(edited, layers=(replace(edited.layers[0], name="frist"), *edited.layers[1:]))
    with pytest.raises(QuantizationError, match=r"'frist'.*did you mean 'first'"):
        torchport.quantize(uneven(), items(), speed=False, options={"plan": strange})


def test_a_file_that_is_no_plan_is_refused(tmp_path) -> None:
    with pytest.raises(RecordError, match=r"none.json: cannot be read: No such file"):
        read_plan(tmp_path / "none.json")
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(RecordError, match=r"list.json: .*expected a JSON object"):
        read_plan(tmp_path / "list.json")
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(RecordError, match="it is a FIFO"):
        read_plan(tmp_path / "pipe.json")


def test_a_plan_has_four_or_eight_bits() -> None:
    layer = LayerPlan("first", "aten.linear.default", "weight_only", bits=3)
    with pytest.raises(QuantizationError, match="the plan has 3 bits for the layer 'first'"):
        QuantizationOptions(plan=QuantizationPlan("model", "weight_only", "host", (layer,)))


def test_the_report_is_json_too() -> None:
    found = torchport.quantize(uneven(), items(), speed=False)
    assert QuantizationReport.from_json(json.loads(json.dumps(found.report.to_json()))) == found.report
