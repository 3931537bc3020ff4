"""A Llama-shaped model of twelve blocks keeps its logits in eight and in four bits, and is small."""

import pytest
import torch

import torchport
from torchport.quantization import AccuracyBudget

pytestmark = pytest.mark.conformance


@pytest.mark.parametrize(("bits", "pcc", "size"), [(8, 0.999, 0.55), (4, 0.98, 0.3)])
def test_logits_and_size(bits: int, pcc: float, size: float) -> None:
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
