"""Snippets are disabled where they are slower; results stay the same."""

import pytest
import torch
from torch import nn

import torchport
from torchport.targets.openvino import arm_reductions, fused_kernels
from torchport.targets.openvino.library import openvino

X = torch.rand(1, 3, 16, 16)


def converted(module):
    return openvino().convert_model(torch.export.export(module.eval(), (X,)))


@pytest.mark.parametrize(
    ("module", "found"),
    [
        (nn.Sequential(nn.Conv2d(3, 8, 3), nn.SiLU()), True),
        (nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.SiLU()), True),
        (nn.Sequential(nn.Conv2d(3, 6, 3, groups=3), nn.SiLU()), True),
        (nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()), False),
        (nn.Sequential(nn.SiLU(), nn.Conv2d(3, 8, 3)), False),
        (nn.Sequential(nn.Linear(16, 8), nn.SiLU()), False),
    ],
)
def test_a_silu_behind_a_convolution_is_found(module, found):
    assert fused_kernels.has_silu_behind_convolution(converted(module)) is found


def test_a_silu_behind_a_convolution_is_computed_as_torch_does(monkeypatch, tmp_path):
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.SiLU(), nn.Conv2d(8, 4, 1)).eval()
    monkeypatch.setattr(fused_kernels.platform, "machine", lambda: "aarch64")
    compiled = torchport.compile(module, (X,), options={"cache": False})
    torch.testing.assert_close(compiled(X), module(X), atol=1e-5, rtol=1e-4)
    [island] = compiled._first.program.islands.values()
    nodes = island.runner.compiled.model.get_runtime_model().get_ops()
    assert "Subgraph" not in {node.get_rt_info()["layerType"].astype(str) for node in nodes}
    torchport.save(compiled, tmp_path / "model.pt2")
    torch.testing.assert_close(torchport.load(tmp_path / "model.pt2")(X), module(X), atol=1e-5, rtol=1e-4)


def test_a_sum_over_a_whole_tensor_is_one_reduction():
    opset = openvino().opset13
    x = opset.parameter([1, 3, 4, 5], openvino().Type.f32)
    whole = opset.reduce_sum(x, opset.constant([0, 1, 2, 3]), False)
    rows = opset.reduce_sum(x, opset.constant([2, 3]), False)
    made = openvino().Model([whole, rows], [x], "sums")
    arm_reductions.merge_axes(made, whole_tensors_only=True)
    given = {
        tuple(node.get_input_shape(0)): list(node.input_value(1).get_node().get_data())
        for node in made.get_ops()
        if node.get_type_name() == "ReduceSum"
    }
    assert given == {(60,): [0], (1, 3, 4, 5): [2, 3]}
    values = torch.rand(1, 3, 4, 5)
    found = openvino().Core().compile_model(made, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})(values.numpy())
    torch.testing.assert_close(torch.tensor(found[0]), values.sum())
