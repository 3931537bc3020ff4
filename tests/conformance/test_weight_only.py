"""A Llama-shaped model of twelve blocks keeps its logits with 8-bit and 4-bit weights, and becomes small."""

from pathlib import Path

import pytest
import torch
from torch import nn

import torchport
from torchport.quantization import AccuracyBudget

pytestmark = pytest.mark.conformance


@pytest.mark.parametrize(("bits", "pcc", "size"), [(8, 0.999, 0.55), (4, 0.98, 0.3)])
def test_logits_and_size(bits: int, pcc: float, size: float, tmp_path: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=1000, hidden_size=256, intermediate_size=704, num_hidden_layers=12, num_attention_heads=4
    )
    model = LlamaForCausalLM(config).eval()
    items = [{"input_ids": torch.randint(0, 1000, (8, 64))} for _ in range(10)]
    quantized = torchport.quantize(
        model, items, method="weight_only", speed=False, accuracy=AccuracyBudget(pcc=pcc),
        options={"bits": bits},
    )  # fmt: skip
    assert quantized.report.pcc >= pcc
    assert quantized.report.bytes <= size * quantized.report.bytes_float / 2
    unseen = torch.randint(0, 1000, (8, 64))
    with torch.no_grad():
        logits = [each(input_ids=unseen).logits.flatten() for each in (quantized, model)]
    assert torch.corrcoef(torch.stack(logits))[0, 1] >= pcc
    files = [
        file_bytes(each, unseen[:1, :8], tmp_path) for each in (quantized.module, model.to(torch.bfloat16))
    ]
    assert files[0] <= size * files[1]


def file_bytes(model: nn.Module, ids: torch.Tensor, folder: Path) -> int:
    """Return the size of the file that a compiled model is written to."""
    torchport.save(torchport.compile(model, (ids,), options={"speed_trial": False}), folder / "model.pt2")
    return (folder / "model.pt2").stat().st_size


@pytest.mark.parametrize("bits", [8, 4])
def test_a_model_in_bfloat16_generates_with_packed_weights(bits: int) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=300, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
        eos_token_id=None,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval().to(torch.bfloat16)
    items = [{"input_ids": torch.randint(0, 300, (2, 8))} for _ in range(5)]
    quantized = torchport.quantize(
        model, items, method="weight_only", speed=False, accuracy=AccuracyBudget(pcc=0.9),
        options={"bits": bits},
    )  # fmt: skip
    ids = items[0]["input_ids"][:1]
    compiled = torchport.compile(quantized.module, (ids,), max_length=16)
    made = compiled.generate(ids, max_new_tokens=4, do_sample=False)
    # Each token is among the simulation's most likely ones: others may be equally likely in bfloat16.
    with torch.no_grad():
        logits = quantized.module(input_ids=made).logits[0, 7:-1].float()
    chosen = logits.gather(1, made[0, 8:, None]).squeeze(1)
    assert torch.all(chosen >= logits.amax(1) - 0.05 * logits.std())
    assert compiled.fallbacks.fallbacks == 0
    compiled(ids)
    assert compiled.coverage.complete
    assert sum(int(island.properties["weights_bytes"]) for island in compiled.record.islands) < (
        1.1 * quantized.report.bytes
    )
