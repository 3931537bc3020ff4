"""`torchport run`, on files that `torchport compile -o` wrote."""

import pytest
import torch

import torchport
from torchport.records import PackageRun

INPUTS = """
import torch


def inputs():
    return torch.zeros(2, 4)
"""


@pytest.fixture
def package(command, models, tmp_path):
    path = tmp_path / "net.pt2"
    ran = command("compile", f"{models}::load", "--target", "host", "-o", path)
    assert ran.code == 0, ran.err
    return path


def test_a_compiled_model_is_run_from_its_file(command, package):
    ran = command("run", package)
    assert ran.code == 0, ran.err
    assert "logits" in ran.out
    assert "float32[2, 4]" in ran.out
    assert "Loaded in" in ran.out


def test_inputs_can_be_given_and_json_is_the_record(command, package, models, tmp_path):
    file = tmp_path / "inputs.py"
    file.write_text(INPUTS)
    found = PackageRun.from_json(command("run", package, "--inputs", f"{file}::inputs", "--json").json)
    [output] = found.outputs
    # The weights are random, but the last op is a ReLU.
    assert (output.path, output.shape, output.minimum >= 0) == ("logits", (2, 4), True)


def test_other_shapes_and_files_fail(command, package, models, tmp_path):
    ran = command("run", package, "--inputs", f"{models}::inputs")
    assert ran.code == 2
    assert "no program for the inputs (float32[7, 4])" in ran.err
    ran = command("run", tmp_path / "none.pt2", "--json")
    assert ran.code == 2
    assert ran.json["error"] == "PackageError"


def test_torchscript_is_recognized(command, models, tmp_path):
    assert command("compile", f"{models}::load", "--target", "host", "-o", tmp_path / "net.pt").code == 0
    ran = command("run", tmp_path / "net.pt")
    assert ran.code == 2
    assert "torch.jit.load" in ran.err


def test_open_sizes_are_given_a_value(command, tmp_path):
    path, rows = tmp_path / "open.pt2", torch.export.Dim("rows", min=3, max=8)
    compiled = torchport.compile(torch.nn.ReLU(), (torch.ones(4, 2),), dynamic_shapes=({0: rows},))
    torchport.save(compiled, path)
    ran = command("run", path, "--json")
    assert ran.code == 0, ran.out
    assert PackageRun.from_json(ran.json).outputs[0].shape == (3, 2)
