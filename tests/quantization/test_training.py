"""Quantization-aware training keeps to the bits that were chosen."""

import pytest
import torch
from torch import nn

import torchport


@pytest.mark.parametrize(("reduction", "least", "most"), [("yes", 32, 64), ("no", 100, 127)])
def test_trained_weights_use_the_bits_that_were_calibrated(reduction, least, most):
    """Seven bits on processors whose sums of products would saturate, eight on others."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).eval()
    data = [torch.rand(4, 8) for _ in range(6)]
    trainable = torchport.quantize(model, data, method="qat", options={"range_reduction": reduction})
    trainable.train()
    optimizer = torch.optim.SGD(trainable.parameters(), lr=0.1)
    trainable(data[0]).square().mean().backward()
    optimizer.step()
    weights = [tensor for tensor in trainable.convert().state_dict().values() if tensor.dtype is torch.int8]
    assert len(weights) == 2
    for weight in weights:
        assert least <= int(weight.abs().max()) <= most
    trainable.eval()
    with torch.no_grad():
        torch.testing.assert_close(trainable.convert()(data[0]), trainable(data[0]), atol=1e-4, rtol=1e-3)
