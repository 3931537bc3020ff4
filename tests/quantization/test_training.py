"""Quantization-aware training uses the chosen number of bits."""

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


def test_what_the_model_does_not_train_is_not_trained():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 4))
    model.eval()[:2].requires_grad_(False)
    data = [torch.rand(2, 3, 8, 8) for _ in range(4)]
    trainable = torchport.quantize(model, data, method="qat")
    # Weight and bias of the convolution, with its norm folded in, and of the linear layer; nothing else.
    assert sorted((each.dim(), each.requires_grad) for each in trainable.parameters()) == [
        (1, False), (1, True), (2, True), (4, False),
    ]  # fmt: skip
    trainable(data[0]).square().mean().backward()
    assert [each.grad is not None for each in trainable.parameters()] == [
        each.requires_grad for each in trainable.parameters()
    ]
    everything = torchport.quantize(model.requires_grad_(False), data, method="qat")
    assert all(each.requires_grad for each in everything.parameters())


def test_a_weight_of_zeros_is_trained_in_all_steps():
    """Some layers are initialized to zeros, so at calibration their quantized weights are all zero."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).eval()
    nn.init.zeros_(model[2].weight)
    data = [torch.rand(4, 8) for _ in range(6)]
    trainable = torchport.quantize(model, data, method="qat")
    optimizer = torch.optim.SGD(trainable.parameters(), lr=0.1)
    (trainable(data[0]) - torch.randn(4, 4)).square().mean().backward()
    optimizer.step()
    steps = [each for each in trainable.convert().state_dict().values() if each.dtype is torch.int8]
    assert [len(each.unique()) > 20 for each in steps] == [True, True]
    with torch.no_grad():
        torch.testing.assert_close(trainable.convert()(data[0]), trainable(data[0]), atol=1e-4, rtol=1e-3)
