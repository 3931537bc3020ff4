"""Simulated quantization: OpenVINO rounds as torch does, and stores weights in eight bits."""

import pytest
import torch
from torch import nn

import torchport


class Rounded(nn.Module):
    """Rounds what comes in; its weight is stored in eight bits."""

    def __init__(self) -> None:
        super().__init__()
        self.values = nn.Parameter(torch.randint(-127, 128, (64, 64), dtype=torch.int8), requires_grad=False)
        self.scale = nn.Parameter(torch.rand(64, 1) * 0.01, requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return 64 numbers for each row."""
        x = torch.fake_quantize_per_tensor_affine(x, 0.05, 100, 0, 255)
        return nn.functional.linear(x, self.values.to(torch.float32) * self.scale)


class OnlyRounds(nn.Module):
    """Rounds to a grid that does not start at 0."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the nearest numbers on the grid."""
        return torch.fake_quantize_per_tensor_affine(x, 0.25, 3, 0, 15)


def test_numbers_go_to_the_nearest_step_and_no_further_than_the_ends() -> None:
    x = torch.tensor([-9.0, -0.75, -0.7, -0.1, 0.0, 0.1, 0.2, 2.9, 99.0])
    compiled = torchport.compile(OnlyRounds().eval(), (x,))
    assert compiled.coverage.complete
    assert compiled(x).tolist() == [-0.75, -0.75, -0.75, 0.0, 0.0, 0.0, 0.25, 3.0, 3.0]


def test_weights_are_stored_in_eight_bits() -> None:
    model, x = Rounded().eval(), torch.randn(4, 64)
    compiled = torchport.compile(model, (x,))
    assert compiled.coverage.complete
    [island] = compiled.record.islands
    assert int(island.properties["weights_bytes"]) < 64 * 64 + 64 * 4 + 512
    with torch.no_grad():
        assert torch.allclose(compiled(x), model(x), atol=1e-3 * float(model(x).abs().max()))


def test_a_mask_that_is_read_and_integers_that_are_no_weights_stay_on_the_host() -> None:
    class Mask(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.ops.aten.fake_quantize_per_tensor_affine_cachemask(x, 0.1, 0, -128, 127)[1]

    class Cast(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.to(torch.float32) * 2

    for model, x in ((Mask(), torch.randn(3)), (Cast(), torch.tensor([1, -2], dtype=torch.int8))):
        compiled = torchport.compile(model.eval(), (x,))
        assert torch.equal(compiled(x), model(x))
        assert not compiled.coverage.complete


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_number_gives_what_torch_gives(value: float) -> None:
    x = torch.tensor([value, 1.0])
    model = OnlyRounds().eval()
    compiled = torchport.compile(model, (torch.ones(2),))
    assert torch.equal(compiled(x), model(x))
