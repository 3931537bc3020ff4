"""Weights that a model computes from its own tensors, and norms: the weight that multiplies is quantized."""

import pytest
import torch
from torch import nn

import torchport
from torchport.quantization import AccuracyBudget

LOOSE = AccuracyBudget(pcc=0.01)


class CrossAttention(nn.Module):
    """Cross-attention: its packed weight is split in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attend to what comes after."""
        return self.attention(x, x.flip(1) * 2, x.flip(1) * 2, need_weights=False)[0]


def normed() -> nn.Module:
    norm = nn.utils.parametrizations.weight_norm
    return nn.Sequential(norm(nn.Linear(16, 16)), nn.ReLU(), nn.Linear(16, 16))


def items() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(4, 5, 16, generator=generator) for _ in range(6)]


@pytest.mark.parametrize(("make", "products"), [(CrossAttention, 3), (normed, 2)])
@pytest.mark.parametrize("method", ["ptq", "dynamic", "qat"])
def test_they_are_stored_in_eight_bits(make, products: int, method: str) -> None:
    torch.manual_seed(0)
    model, data = make().eval(), items()
    made = torchport.quantize(model, data, method=method, speed=False, accuracy=LOOSE)
    if method == "qat":
        trainable, made = made, made.convert()
        with torch.no_grad():
            torch.testing.assert_close(made(data[0]), trainable(data[0]), rtol=1e-3, atol=1e-4)
    weights = [layer for layer in made.plan.layers if layer.op == "aten.linear.default"]
    stored = [tensor for tensor in made.state_dict().values() if tensor.dtype is torch.int8]
    assert len(stored) >= products
    assert {layer.precision for layer in weights} == {"int8"}
    assert made.report.bytes < 0.5 * made.report.bytes_float
    with torch.no_grad():
        pair = torch.stack([made(data[0]).flatten(), model(data[0]).flatten()])
    assert torch.corrcoef(pair)[0, 1] > 0.99


def test_a_view_of_a_weight_that_others_read_is_not_stored_twice() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.inner = nn.Embedding(50, 16), nn.Linear(16, 16)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.inner(self.table(ids)) @ self.table.weight.t()

    model = Tied().eval()
    data = [torch.randint(0, 50, (2, 3)) for _ in range(5)]
    kept = torchport.quantize(
        model, data, method="dynamic", speed=False, options={"overrides": {"*": "float"}}
    )
    assert kept.report.bytes == kept.report.bytes_float


def test_a_weight_that_is_drawn_is_none_of_the_model_s() -> None:
    class Drawing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(16, 16)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.linear(self.inner(x), torch.randn(16, 16))

    model, data = Drawing().eval(), items()
    made = torchport.quantize(model, data, method="dynamic", speed=False)
    assert len(made.plan.layers) == 1
    results = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        results.append(made(data[0]))
    assert not torch.allclose(*results)


def test_norms_keep_what_they_multiply_by() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv1d(4, 6, 3), nn.GroupNorm(2, 6), nn.SiLU(), nn.Conv1d(6, 6, 3, groups=6)
    ).eval()
    nn.init.uniform_(model[1].weight, 0.5, 2)
    data = [torch.randn(2, 4, 9) for _ in range(6)]
    made = torchport.quantize(model, data, speed=False, accuracy=LOOSE)
    assert made.report.pcc > 0.99
    assert all(row.sqnr_isolated > 20 for row in made.report.layers)
