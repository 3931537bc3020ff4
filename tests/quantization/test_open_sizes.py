"""Quantized models with open sizes."""

from pathlib import Path

import pytest
import torch
from torch import nn

import torchport
from torchport.errors import QuantizationError

SIZES = ({0: torch.export.Dim("batch", min=1, max=8), 1: torch.export.Dim("tokens", min=2, max=64)},)
OPTIONS = {"cache": False, "speed_trial": False}


class Text(nn.Module):
    """A transformer block that classifies tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 32)
        self.block = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.head = nn.Linear(32, 10)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return ten numbers for each token."""
        return self.head(self.block(self.embedding(ids)))


def text() -> tuple[Text, list[torch.Tensor]]:
    torch.manual_seed(0)
    return Text().eval(), [torch.randint(0, 50, (2, 12)) for _ in range(6)]


@pytest.mark.parametrize("method", ["ptq", "dynamic"])
def test_one_program_runs_all_sizes_in_eight_bits(method: str, tmp_path: Path) -> None:
    model, items = text()
    quantized = torchport.quantize(model, items, method=method, speed=False, dynamic_shapes=SIZES)
    assert quantized.plan.count("int8") >= 5
    compiled = torchport.compile(quantized, (items[0],), dynamic_shapes=SIZES, options=OPTIONS)
    assert compiled.coverage.complete
    torchport.save(compiled, tmp_path / "model.pt2")
    loaded = torchport.load(tmp_path / "model.pt2")
    for size in ((2, 12), (1, 2), (5, 33), (8, 64)):
        ids = torch.randint(0, 50, size)
        expected, floats = quantized(ids), model(ids)
        step = (expected - floats).abs().mean()  # kernels may round halfway numbers otherwise
        assert 0 < step < 0.1
        for each in (compiled, loaded):
            assert (each(ids) - expected).abs().mean() < 0.3 * step
    assert (compiled.fallbacks.fallbacks, loaded.fallbacks.fallbacks) == (0, 0)


def test_other_sizes_are_refused_without_them() -> None:
    model, items = text()
    quantized = torchport.quantize(model, items, method="dynamic", speed=False)
    assert quantized(torch.randint(0, 50, (5, 12))).shape == (5, 12, 10)  # any batch size
    with pytest.raises(QuantizationError, match="12"):
        quantized(torch.randint(0, 50, (2, 13)))


def test_sizes_that_the_model_does_not_take_are_refused() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 4)).eval()
    items = [torch.rand(2, 3, 4) for _ in range(4)]
    with pytest.raises(QuantizationError, match=r"cannot be captured.*rows"):
        torchport.quantize(model, items, dynamic_shapes=({1: torch.export.Dim("rows")},))


def test_weight_only_refuses_them() -> None:
    model, items = text()
    with pytest.raises(QuantizationError, match="weight_only does not use dynamic_shapes"):
        torchport.quantize(model, items, method="weight_only", dynamic_shapes=SIZES)


def test_fake_quantization_in_a_users_own_model() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        rounded = torch.fake_quantize_per_tensor_affine(x, 0.25, 3, -128, 127)
        scales, zeros = torch.full((4,), 0.5), torch.zeros(4, dtype=torch.int32)
        return rounded + torch.fake_quantize_per_channel_affine(x, scales, zeros, 1, -8, 7)

    sizes = ({0: torch.export.Dim("batch", min=1, max=16)},)
    compiled = torchport.compile(model, (torch.randn(2, 4),), dynamic_shapes=sizes, options=OPTIONS)
    for count in (1, 5, 16):
        x = 20 * torch.randn(count, 4)
        torch.testing.assert_close(compiled(x), model(x))
