"""A quantized model takes inputs in any memory order, like the model that it was made from."""

import pytest
import torch
from torch import nn

import torchport


@pytest.mark.parametrize("method", ["ptq", "dynamic"])
@torch.no_grad()
def test_inputs_whose_elements_lie_in_another_order(method: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(2), nn.Linear(12, 16), nn.ReLU(), nn.Flatten(), nn.Linear(80, 4)).eval()
    batches = [torch.randn(2, 5, 3, 4) for _ in range(5)]
    quantized = torchport.quantize(model, batches, method=method, speed=False)
    expected = quantized(batches[0])
    others = [
        batches[0].to(memory_format=torch.channels_last),
        batches[0].transpose(0, 3).contiguous().transpose(0, 3),
    ]
    for other in others:
        assert torch.equal(quantized(other), expected)
        compiled = torchport.compile(quantized, (other,), options={"cache": False, "speed_trial": False})
        torch.testing.assert_close(compiled(other), expected, rtol=1e-3, atol=0.05)
        torch.testing.assert_close(compiled(batches[0]), expected, rtol=1e-3, atol=0.05)
