"""The torch.compile backend: its options, and whether a graph is compiled for inference or training."""

import pytest
import torch
from torch import nn

import torchport
from torchport.compiler import backend as backend_module
from torchport.targets.openvino import OpenVinoTarget

X = torch.ones(2, 3)


def test_torch_lists_it():
    assert "torchport" in torch._dynamo.list_backends()


def test_the_function_itself_can_be_given(torch_compile):
    torch_compile(nn.ReLU(), "host")  # resets what was compiled before
    compiled = torch.compile(nn.ReLU(), backend=torchport.backend, options={"target": "host"})
    assert compiled(torch.tensor([-1.0, 2.0])).tolist() == [0.0, 2.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "opnvino"}, "no target named 'opnvino': did you mean 'openvino'"),
        (
            {"target": "openvino", "precison": "float32"},
            "the target has no option 'precison': did you mean 'precision'",
        ),
        ({"target": "openvino", "device": "TPU"}, "OpenVINO finds no device 'TPU' here"),
    ],
)
def test_refusals(options, message, torch_compile):
    with pytest.raises(Exception, match=message):
        torch_compile(nn.ReLU(), **options)(X)


def test_the_default_target_is_openvino(monkeypatch):
    torch._dynamo.reset()
    asked = []
    check = OpenVinoTarget.check_ready
    monkeypatch.setattr(OpenVinoTarget, "check_ready", lambda *args: asked.append(1) or check(*args))
    with torch.no_grad():
        torch.compile(nn.ReLU(), backend="torchport")(X)
    torch._dynamo.reset()
    assert asked


@pytest.mark.usefixtures("devices")
def test_options_reach_the_target(torch_compile):
    # This device gets tanh wrong, and the check is off: the result is only correct if tanh stays on the host.
    with torch.no_grad():
        wrong = torch_compile(nn.Tanh(), "liar", check=False)(X)
        right = torch_compile(nn.Tanh(), "liar", check=False, keep_ops=["aten.tanh"])(X)
    torch.testing.assert_close(right, torch.tanh(X))
    torch.testing.assert_close(wrong, torch.tanh(X) + 1)


@pytest.mark.parametrize(
    ("requires_grad", "enabled", "training"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_a_graph_is_trained_only_where_gradients_are_wanted(
    requires_grad, enabled, training, torch_compile, monkeypatch
):
    ways = []
    for name in ("compile_training", "InferenceGraph"):
        way = getattr(backend_module, name)
        monkeypatch.setattr(
            backend_module, name, lambda *args, name=name, way=way: ways.append(name) or way(*args)
        )
    model = nn.Linear(3, 3).requires_grad_(requires_grad)
    with torch.set_grad_enabled(enabled):
        result = torch_compile(model, "host")(X)
    assert ways == (["compile_training"] if training else ["InferenceGraph"])
    assert result.requires_grad is training


def test_weights_that_a_graph_holds_itself_are_trained():
    """Dynamo's graphs take weights as inputs; a graph from another source may hold them."""
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    torchport.backend(torch.fx.symbolic_trace(model), [X], options={"target": "host"})(X).sum().backward()
    gradient = model[0].weight.grad
    model.zero_grad()
    model(X).sum().backward()
    torch.testing.assert_close(gradient, model[0].weight.grad)
