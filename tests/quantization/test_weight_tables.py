"""Embeddings in eight bits: rows are looked up quantized, tied weights stored once, in any float dtype."""

import pytest
import torch
from torch import nn

import torchport
from torchport.quantization import AccuracyBudget
from torchport.quantization.weight_layers import WeightOnlyEmbedding

LOOSE = AccuracyBudget(pcc=0.01)
IDS = torch.tensor([[3, 250, 7, 7], [0, 1, 2, 299]])


class Words(nn.Module):
    """An embedding, a layer, and a head that may be tied to the embedding."""

    def __init__(self, tied: bool = False, **more: object) -> None:
        super().__init__()
        self.embed = nn.Embedding(300, 64, **more)
        self.inner = nn.Linear(64, 64)
        self.head = nn.Linear(64, 300, bias=False)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return a score for each word."""
        return self.head(torch.tanh(self.inner(self.embed(ids))))


def words(tied: bool = False, **more: object) -> Words:
    torch.manual_seed(0)
    return Words(tied, **more).eval()


def quantize(model: nn.Module, **options: object) -> torchport.QuantizedModel:
    items = [IDS, IDS.flip(0), IDS.flip(1)]
    return torchport.quantize(
        model, items, method="weight_only", accuracy=LOOSE, speed=False, options=options
    )


def island_bytes(compiled: torchport.CompiledModel) -> int:
    [island] = compiled.record.islands
    return int(island.properties["weights_bytes"])


@pytest.mark.parametrize("symmetric", [True, False])
def test_rows_have_a_scale_each(symmetric: bool) -> None:
    embedding = nn.Embedding(5, 16)
    embedding.weight.data *= torch.tensor([1e-3, 1.0, 50.0, 0.0, 2.0])[:, None]
    made = WeightOnlyEmbedding(embedding, symmetric)
    ids = torch.tensor([[2, 0], [3, 3]])
    weight = embedding.weight.detach()
    # Half a step; with zero points, the range is from the smallest to the largest value.
    span = weight.abs().amax(1) / 127 if symmetric else (weight.amax(1) - weight.amin(1)) / 255
    assert torch.all((made.weight - weight).abs() <= span[:, None] * 0.51 + 1e-9)
    assert torch.equal(made(ids), made.weight[ids])
    assert made.values.dtype is torch.int8


@pytest.mark.parametrize("tied", [False, True])
def test_the_compiled_model_holds_eight_bits(tied: bool) -> None:
    quantized = quantize(words(tied))
    assert [layer.precision for layer in quantized.plan.layers] == ["weight_only"] * 3
    stored = 300 * 64 * (1 if tied else 2) + 64 * 64
    scales = 4 * (300 * (1 if tied else 2) + 64)
    assert quantized.report.bytes == stored + scales + 4 * 64
    compiled = torchport.compile(quantized, (IDS,))
    assert compiled.coverage.complete
    assert island_bytes(compiled) < quantized.report.bytes + 1024
    with torch.no_grad():
        assert torch.allclose(compiled(IDS), quantized(IDS), atol=1e-4)


def test_a_tied_weight_stays_one_in_four_bits_too() -> None:
    quantized = quantize(words(tied=True), bits=4)
    plans = {layer.name: layer for layer in quantized.plan.layers}
    assert (plans["embed"].bits, plans["head"].bits, plans["inner"].bits) == (8, 8, 4)
    assert "stored once" in plans["head"].detail
    assert quantized.module.head.values is quantized.module.embed.values
    kept = quantize(words(tied=True), overrides={"head": "float"})
    assert [layer.precision for layer in kept.plan.layers] == ["float", "weight_only", "float"]
    assert kept.module.head.weight is kept.module.embed.weight


def test_an_embedding_that_changes_itself_stays_in_floats() -> None:
    quantized = quantize(words(max_norm=1.0))
    assert (quantized.plan.layers[0].precision, quantized.plan.layers[0].reason) == ("float", "not_supported")
    assert "max_norm" in quantized.plan.layers[0].detail


@pytest.mark.parametrize("bits", [8, 4])
def test_a_model_in_bfloat16_stays_small_on_openvino(bits: int) -> None:
    model = words().to(torch.bfloat16)
    quantized = quantize(model, bits=bits)
    assert quantized.module.embed(IDS).dtype is torch.bfloat16
    assert quantized.report.bytes < (0.6 if bits == 8 else 0.45) * quantized.report.bytes_float
    compiled = torchport.compile(quantized, (IDS,))
    assert compiled.coverage.complete
    assert island_bytes(compiled) < quantized.report.bytes + 2048
    with torch.no_grad():
        found, simulated, floats = (each(IDS).float() for each in (compiled, quantized, model))
    assert torch.allclose(found, simulated, atol=0.02 * float(simulated.abs().max()))
    assert torch.corrcoef(torch.stack([found.flatten(), floats.flatten()]))[0, 1] > 0.98


def test_a_module_that_is_used_in_two_places_is_replaced_in_both() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = nn.Linear(64, 64)
            self.other = self.one

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.other(torch.relu(self.one(x)))

    made = torchport.quantize(Twice().eval(), (), method="weight_only").module
    assert made.one is made.other
    assert made.one.values.dtype is torch.int8
