"""`torchport quantize`."""

import json

import pytest
import torch

import torchport
from torchport.records.quantization import QuantizationPlan, QuantizationReport

FILE = """
import torch
from torch import nn

torch.manual_seed(0)
BATCHES = [torch.rand(8, 6) for _ in range(8)]


def load():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4)).eval(), (BATCHES[0],)


def data():
    yield from BATCHES


def score(model):
    with torch.no_grad():
        return 100 - 100 * float((model(BATCHES[0]) - load()[0](BATCHES[0])).abs().max())


def broken(model):
    raise OSError("no labels")
"""


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "net.py"
    path.write_text(FILE)
    return path


def test_a_model_is_quantized_and_saved_and_runs(command, model, tmp_path):
    ran = command(
        "quantize", f"{model}::load", "--calibration", f"{model}::data", "--eval", f"{model}::score",
        "--max-drop", "50", "--no-speed", "-o", str(tmp_path / "net.pt2"),
        "--save-plan", str(tmp_path / "plan.json"), "--json",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    plan = QuantizationPlan.from_json(ran.json["plan"])
    report = QuantizationReport.from_json(ran.json["report"])
    assert [layer.name for layer in plan.layers] == ["0", "2"]
    assert plan.count("int8") == 2
    assert report.score_float == 100.0
    assert QuantizationPlan.from_json(json.loads((tmp_path / "plan.json").read_text())) == plan
    loaded = torchport.load(tmp_path / "net.pt2")
    inputs = torch.rand(8, 6)
    torch.manual_seed(0)
    floats = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)).eval()
    with torch.no_grad():
        expected, found = floats(inputs), loaded(inputs)
    assert torch.allclose(found, expected, atol=0.05)
    assert not torch.equal(found, expected)


def test_the_table_has_layers_and_reasons(command, model):
    ran = command(
        "quantize", f"{model}::load", "--calibration", f"{model}::data", "--keep", "2", "--no-speed"
    )
    assert ran.code == 0, ran.err
    assert "1 int8, 1 float" in ran.out
    assert "kept_by_option" in ran.out
    assert "dB" in ran.out


def test_weight_only_needs_no_data(command, model):
    ran = command("quantize", f"{model}::load", "--method", "weight_only", "--json")
    assert ran.code == 0, ran.err
    assert QuantizationPlan.from_json(ran.json["plan"]).count("weight_only") == 2


def test_four_bit_weights(command, model):
    ran = command("quantize", f"{model}::load", "--method", "weight_only", "--bits", "4", "--group-size", "8")
    assert ran.code == 0, ran.err
    assert "2 weight_only (1 of them in 4 bits)" in ran.out
    assert "6 inputs do not divide into groups of 8" in " ".join(ran.out.split())


def test_no_quantized_layer_is_a_finding(command, model):
    ran = command(
        "quantize", f"{model}::load", "--calibration", f"{model}::data", "--keep", "*", "--no-speed"
    )
    assert ran.code == 1, ran.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--method ptq requires --calibration"),
        (["--calibration", "FILE::nothing"], "no function 'nothing'"),
        (["--calibration", "FILE::data", "--max-drop", "1"], "--max-drop requires --eval"),
        (["--calibration", "FILE::data", "--eval", "FILE::broken"], "OSError: no labels"),
        (["--calibration", "FILE::data", "--keep", "third"], "'third' matches no layer"),
    ],
)
def test_invalid_options_are_refused_in_one_line(command, model, arguments, message):
    ran = command("quantize", f"{model}::load", *[word.replace("FILE", str(model)) for word in arguments])
    assert ran.code == 2
    assert message in " ".join(ran.err.split())


def test_dynamic_quantization_needs_no_data(command, model):
    ran = command("quantize", f"{model}::load", "--method", "dynamic", "--no-speed", "--json")
    assert ran.code == 0, ran.err
    plan = QuantizationPlan.from_json(ran.json["plan"])
    assert (plan.method, plan.count("int8")) == ("dynamic", 2)
    assert ran.json["report"]["judged_on"] == 1
