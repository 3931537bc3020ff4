"""Weights in ttnn's block floats: 16 outputs share an exponent; each has a sign and 7 or 3 mantissa bits."""

import re

import pytest
import torch
from torch import nn

import torchport
from targets.ttnn.programs import program_of
from torchport.quantization import AccuracyBudget
from torchport.targets.ttnn.block_floats import block_rounded, narrowest

LOOSE = AccuracyBudget(pcc=0.5)


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(40, 64), nn.ReLU(), nn.Linear(64, 24)).eval()


def items() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(8, 40, generator=generator) for _ in range(5)]


def by_hand(weight: torch.Tensor, bits: int) -> torch.Tensor:
    """Round each block of 16 outputs to steps of the power of two that its largest weight needs."""
    found = weight.detach().clone()
    for start in range(0, weight.shape[0], 16):
        for column in range(weight.shape[1]):
            block = weight.detach()[start : start + 16, column].double()
            power = 2.0 ** (torch.floor(torch.log2(block.abs().max())) + 1)
            step = power / 2**bits
            most = (2**bits - 1) * step
            found[start : start + 16, column] = ((block / step).round() * step).clamp(-most, most).float()
    return found


@pytest.mark.parametrize(("bits", "mantissa", "dtype"), [(8, 7, "bfloat8_b"), (4, 3, "bfloat4_b")])
def test_the_simulator_and_the_script_have_what_eager_torch_has(bits, mantissa, dtype, tmp_path) -> None:
    floats, data = model(), items()
    before = {name: tensor.clone() for name, tensor in floats.state_dict().items()}
    quantized = torchport.quantize(
        floats, data, method="weight_only", target="ttnn", accuracy=LOOSE, options={"bits": bits}
    )
    assert [(plan.precision, plan.bits) for plan in quantized.plan.layers] == [("weight_only", bits)] * 2
    assert dtype in quantized.report.note
    for place in ("0", "2"):
        weight = quantized.module.get_submodule(place).weight
        assert torch.equal(weight, by_hand(floats.get_submodule(place).weight, mantissa))
    # A byte or half a byte per weight, padded to whole tiles, an exponent for every 16, biases in floats.
    elements = 64 * 64 + 64 * 32
    assert quantized.report.bytes == elements * bits // 8 + elements // 16 + 4 * (64 + 24)
    compiled = torchport.compile(quantized, (data[0],), target="ttnn")
    assert compiled.coverage.complete
    stored = {weight.tensor.shape: weight.tensor.dtype for weight in program_of(compiled).weights}
    assert (stored[40, 64], stored[64, 24]) == (dtype, dtype)
    compiled.emit(tmp_path / "program.py")
    assert len(re.findall(rf"ttnn\.{dtype}\b", (tmp_path / "program.py").read_text())) == 2
    torchport.save(compiled, tmp_path / "block.pt2")
    loaded = torchport.load(tmp_path / "block.pt2")
    assert loaded.plan == quantized.plan
    with torch.no_grad():
        expected = quantized(data[0])
        for each in (compiled, loaded):  # inputs and results are bfloat16 there
            torch.testing.assert_close(each(data[0]), expected, rtol=3e-2, atol=3e-2)
        assert not torch.equal(expected, floats(data[0]))
    assert all(torch.equal(tensor, before[name]) for name, tensor in floats.state_dict().items())


def test_layers_get_eight_bits_where_the_accuracy_asks_for_it() -> None:
    floats, data, options = model(), items(), {"bits": 4}
    loose = torchport.quantize(
        floats, data, method="weight_only", target="ttnn", accuracy=LOOSE, options=options
    )
    wanted = loose.report.sqnr + 1.5
    found = torchport.quantize(
        floats,
        data,
        method="weight_only",
        target="ttnn",
        accuracy=AccuracyBudget(sqnr=wanted),
        options=options,
    )
    assert sorted(plan.bits for plan in found.plan.layers) == [4, 8]
    assert found.report.note.startswith("ttnn stores weights in bfloat4_b and bfloat8_b")
    compiled = torchport.compile(found, (data[0],), target="ttnn")
    dtypes = {weight.tensor.dtype for weight in program_of(compiled).weights}
    assert dtypes == {"bfloat4_b", "bfloat8_b", "bfloat16"}


def test_what_is_kept_in_floats_is_bfloat16_there() -> None:
    data = items()
    found = torchport.quantize(
        model(),
        data,
        method="weight_only",
        target="ttnn",
        accuracy=LOOSE,
        options={"overrides": {"2": "float"}},
    )
    compiled = torchport.compile(found, (data[0],), target="ttnn")
    stored = {weight.tensor.shape: weight.tensor.dtype for weight in program_of(compiled).weights}
    assert (stored[40, 64], stored[64, 24]) == ("bfloat8_b", "bfloat16")


def test_only_what_is_held_exactly_is_narrowed() -> None:
    weight = torch.randn(8, 32)
    assert narrowest(weight) is None
    assert narrowest(block_rounded(weight, "bfloat8_b")) == "bfloat8_b"
    assert narrowest(block_rounded(weight, "bfloat4_b")) == "bfloat4_b"
    nearly = block_rounded(weight, "bfloat4_b")
    nearly[7, 31] *= 1.001
    assert narrowest(nearly) is None
    assert narrowest(torch.full((2, 2), torch.nan)) is None
    # -7 to 7 in steps of an eighth of the power of two above the largest.
    assert block_rounded(torch.tensor([1.0, 0.3, 0.1, -1.99]), "bfloat4_b").tolist() == [
        1.0,
        0.25,
        0.0,
        -1.75,
    ]
