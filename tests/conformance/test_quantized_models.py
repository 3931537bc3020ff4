"""Architectures with random weights and 8-bit layers: few miss a PCC of 0.99, and reports say why."""

import functools

import pytest
import torch

import torchport
from conformance.architectures import TORCHVISION
from torchport.quantization import AccuracyBudget, QuantizedModel

pytestmark = pytest.mark.conformance

NAMES = TORCHVISION[:25]
ENOUGH = 20
GOOD = 0.99


@functools.cache
def quantized(name: str, pcc: float = 0.01) -> QuantizedModel:
    model = torchport.zoo.load(f"torchvision:{name}", weights=False)
    generator = torch.Generator().manual_seed(0)
    [example] = model.args
    items = [torch.randn(example.shape, generator=generator) for _ in range(8)]
    return torchport.quantize(
        model.module.eval(), items, speed=False, accuracy=AccuracyBudget(pcc=pcc), name=name
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_miss_is_explained_and_mended(name: str) -> None:
    """The report lists the most sensitive layers, worst first; keeping them in floats restores accuracy."""
    made = quantized(name)
    measured = [row.sqnr_isolated for row in made.report.layers if row.sqnr_isolated is not None]
    assert measured
    assert measured == sorted(measured)
    if made.report.pcc >= GOOD:
        return
    # The layers' losses explain that of the results: either individually or in the accumulated SQNR.
    lost = min(row.sqnr for row in made.report.layers if row.sqnr is not None)
    assert min(measured) < 25.0 or lost < 17.0, made.report
    mended = quantized(name, GOOD)
    assert mended.report.pcc >= GOOD
    sensitive = [layer for layer in mended.plan.layers if layer.reason == "sensitive"]
    assert sensitive
    assert all("dB" in layer.detail for layer in sensitive)


def test_most_are_good_without_help() -> None:
    missed = {name: quantized(name).report.pcc for name in NAMES if quantized(name).report.pcc < GOOD}
    assert len(NAMES) - len(missed) >= ENOUGH, missed
