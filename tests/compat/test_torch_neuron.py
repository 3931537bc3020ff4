"""Every keyword of `torch.neuron.trace` works."""

import json
import logging
import subprocess
from pathlib import Path

import pytest
import torch

import torch_neuron
import torchport

pytestmark = pytest.mark.usefixtures("forked_python")


@pytest.fixture
def model() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval()


def test_importing_it_defines_torch_neuron():
    assert torch.neuron.trace is torch_neuron.trace
    assert torch.neuron.analyze_model is torch_neuron.analyze_model


def test_a_model_in_training_mode_is_returned_unchanged(model):
    assert torch.neuron.trace(model.train(), torch.rand(1, 4)) is model


def test_keywords_of_the_compiler(model, tmp_path):
    traced = torch.neuron.trace(
        model,
        (torch.rand(1, 4),),
        compiler_args=["--neuroncore-pipeline-cores", "1"],
        compiler_timeout=200,
        compiler_workdir=tmp_path / "work",
        check_inputs=[(torch.rand(1, 4),), (torch.zeros(1, 4),)],
        check_tolerance=1e-3,
        dynamic_batch_size=True,
    )
    assert json.loads(traced.torchport_report)["options"]["threads"] == 1
    assert {"plan.json", "compiler.log"} <= {path.name for path in Path(tmp_path, "work").rglob("*")}
    torch.testing.assert_close(traced(torch.ones(3, 4)), model(torch.ones(3, 4)))


def test_a_compiler_that_takes_too_long_is_killed(model):
    with pytest.raises(subprocess.TimeoutExpired):
        torch.neuron.trace(model, torch.rand(1, 4), compiler_timeout=0.01)


def test_check_inputs_are_used_only_if_the_trace_is_checked():
    model, x = torch.nn.ReLU().eval(), torch.rand(1, 4)
    settings = {
        "check_inputs": [(torch.rand(1, 5),)],  # not the shape that it was compiled for
        "compiler_args": {"keep_ops": ["aten.relu"]},  # nothing is compiled, so no compiler is started
        "target": "host",
    }
    assert isinstance(torch.neuron.trace(model, x, check_trace=False, **settings), torch.jit.ScriptModule)
    with pytest.raises(torch.jit.Error, match="compiled for"):
        torch.neuron.trace(model, x, **settings)


def test_an_unknown_compiler_argument_is_refused(model):
    with pytest.raises(torchport.TorchportError, match="fast_math"):
        torch.neuron.trace(model, torch.rand(1, 4), compiler_args=["--fast-math", "none"])


def test_a_model_is_analysed_before_it_is_compiled(caplog):
    class Sorting(torch.nn.Module):
        def forward(self, x):
            return torch.sort(x.relu(), stable=True)

    with caplog.at_level(logging.INFO, "Neuron"):
        found = torch.neuron.analyze_model(Sorting().eval(), example_inputs=[torch.rand(2, 4)])
    assert [op.op for op in found.stayed] == ["aten.sort.stable"]
    assert "openvino supports 1 of 2 ops" in caplog.text
    assert "aten.sort.stable stays on the host" in caplog.text
