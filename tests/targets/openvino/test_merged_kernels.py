"""Where OpenVINO's merged kernels are slower, it is asked for none; results stay the same."""

import pytest
import torch
from torch import nn

import torchport
from torchport.targets.openvino import merged_kernels
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
    assert merged_kernels.has_silu_behind_convolution(converted(module)) is found


def test_a_silu_behind_a_convolution_is_computed_as_torch_does(monkeypatch, tmp_path):
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.SiLU(), nn.Conv2d(8, 4, 1)).eval()
    monkeypatch.setattr(merged_kernels.platform, "machine", lambda: "aarch64")
    compiled = torchport.compile(module, (X,), options={"cache": False})
    torch.testing.assert_close(compiled(X), module(X), atol=1e-5, rtol=1e-4)
    torchport.save(compiled, tmp_path / "model.pt2")
    torch.testing.assert_close(torchport.load(tmp_path / "model.pt2")(X), module(X), atol=1e-5, rtol=1e-4)
