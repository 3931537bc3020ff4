"""Every node records its module and the user's source line."""

import torch
from torch import nn

from capture.models import Net, line_of
from torchport.capture import export, module_path, source_line, user_name
from torchport.compiler.normalise import normalise
from torchport.targets import find


def nodes(captured, name):
    """Return the nodes of an op after decomposition, which must preserve origins."""
    graph = normalise(captured, find("openvino")).graph_module.graph
    return [node for node in graph.nodes if str(node.target) == name]


def test_module_paths():
    captured = export(Net(), (torch.ones(2, 4),))
    assert [module_path(node) for node in nodes(captured, "aten.tanh.default")] == ["blocks.0", "blocks.1"]
    assert [module_path(node) for node in nodes(captured, "aten.linear.default")] == [
        "blocks.0.dense",
        "blocks.1.dense",
    ]
    assert [module_path(node) for node in nodes(captured, "aten.cumsum.default")] == [""]


def test_source_lines_are_the_user_s():
    captured = export(Net(), (torch.ones(2, 4),))
    assert {source_line(node) for node in nodes(captured, "aten.tanh.default")} == {
        f"{line_of('the line of tanh')} in forward"
    }
    assert [source_line(node) for node in nodes(captured, "aten.cumsum.default")] == [
        f"{line_of('the line of cumsum')} in helper"
    ]


def test_an_op_that_torch_s_own_module_calls_has_a_line_of_torch():
    captured = export(nn.Sequential(nn.Tanh()), (torch.ones(2),))
    [node] = nodes(captured, "aten.tanh.default")
    assert module_path(node) == "0"
    assert source_line(node).startswith("torch/nn/modules/activation.py:")


def test_the_wrapper_does_not_show_in_names():
    assert user_name("model.layer.weight") == "layer.weight"
    assert user_name("model") == ""
    assert user_name("modelling.weight") == "modelling.weight"
    assert user_name("L['self'].layer.weight") == "layer.weight"
