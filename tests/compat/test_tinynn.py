"""`tinynn` traces and quantizes with torchport."""

import pytest
import torch
from torch import nn

import torchport
from tinynn.graph.quantization.quantizer import (
    BF16Quantizer,
    DynamicQuantizer,
    PostQuantizer,
    QATQuantizer,
)
from tinynn.graph.tracer import TraceGraph, model_tracer, trace

QUANTIZERS = [PostQuantizer, QATQuantizer, DynamicQuantizer]


@pytest.fixture
def model() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)).eval()


@pytest.fixture
def calls(monkeypatch) -> list[tuple[object, ...]]:
    """Records the arguments of `torchport.quantize` instead of quantizing."""
    calls: list[tuple[object, ...]] = []

    class Trainable(nn.Module):
        def convert(self):
            return "converted"

    def quantize(model, calibration, *, method, options):
        calls.append((model, calibration, method, options))
        return Trainable()

    monkeypatch.setattr(torchport, "quantize", quantize)
    return calls


def test_several_models_are_traced_in_a_block():
    outside, x = nn.Linear(2, 3), torch.rand(1, 2)
    with model_tracer():
        graphs = [trace(outside, x), trace(nn.Sequential(nn.ReLU()), [x])]
    assert all(isinstance(graph, TraceGraph) for graph in graphs)
    assert torch.equal(graphs[0](x), outside(x))


def test_a_model_is_calibrated_by_calling_it(model, calls):
    config = {"asymmetric": True, "per_tensor": False, "algorithm": "l2"}
    quantizer = PostQuantizer(model, torch.rand(1, 8), work_dir="out", config=config)
    calibrating = quantizer.quantize()
    data = [torch.rand(4, 8) for _ in range(3)]
    for batch in data:
        given = batch.clone()
        assert torch.equal(calibrating(given), model(batch))
        given.zero_()  # a data loader may reuse its memory
    quantizer.convert(calibrating)
    [(quantized, calibration, method, options)] = calls
    assert quantized is model
    assert all(torch.equal(kept, batch) for (kept,), batch in zip(calibration, data, strict=True))
    assert method == "ptq"
    assert options == {"activations": "asymmetric", "weights": "per_channel", "ranges": "histogram"}


def test_methods_are_torchports(model, calls):
    x = torch.rand(1, 8)
    dynamic = DynamicQuantizer(model, x)
    quantized = dynamic.quantize()
    assert dynamic.convert(quantized) is quantized
    trained = QATQuantizer(model, (x,), calibration=[x, x + 1])
    assert trained.convert(trained.quantize()) == "converted"
    assert [call[2] for call in calls] == ["dynamic", "qat"]
    assert [len(call[1]) for call in calls] == [1, 2]


def test_training_needs_data_for_activation_ranges(model, calls):
    with pytest.raises(torchport.TorchportError, match="pass calibration="):
        QATQuantizer(model, torch.rand(1, 8)).quantize()
    assert not calls


@pytest.mark.parametrize("quantizer", QUANTIZERS)
@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"asymetric": True}, "unknown config key 'asymetric': did you mean 'asymmetric'"),
        ({"per_tensor": "yes"}, "config 'per_tensor' cannot be 'yes'"),
        ({"per_tensor": []}, r"config 'per_tensor' cannot be \[\]"),
        ({"algorithm": "kl"}, "config 'algorithm' cannot be 'kl'"),
    ],
)
def test_an_unsupported_config_is_refused(model, quantizer, config, message):
    with pytest.raises(torchport.TorchportError, match=message):
        quantizer(model, torch.rand(1, 8), config=config)


def test_converting_without_calibration_data_is_refused(model, calls):
    quantizer = PostQuantizer(model, torch.rand(1, 8))
    for given in (model, quantizer.quantize()):
        with pytest.raises(torchport.TorchportError, match="nothing to calibrate with"):
            quantizer.convert(given)
    assert not calls


def test_a_model_that_cannot_be_trained_is_not_returned(model, monkeypatch):
    monkeypatch.setattr(torchport, "quantize", lambda model, *args, **options: model)
    with pytest.raises(torchport.TorchportError, match="does not train quantized models"):
        QATQuantizer(model, torch.rand(1, 8), calibration=[torch.rand(1, 8)] * 2).quantize()


def test_the_bfloat16_quantizer_is_refused(model):
    with pytest.raises(torchport.TorchportError, match="BF16Quantizer is not supported"):
        BF16Quantizer(model, torch.rand(1, 8)).quantize()


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 8, 3), nn.Linear(8, 4)

    def forward(self, x):
        return self.head(torch.relu(self.conv(x)).mean((2, 3)))


def correlation(one, other):
    return float(torch.corrcoef(torch.stack([one.flatten(), other.flatten()]))[0, 1])


def test_post_training_quantization_end_to_end():
    torch.manual_seed(0)
    model, data = Small().eval(), [torch.rand(4, 3, 8, 8) for _ in range(8)]
    quantizer = PostQuantizer(model, data[0], work_dir="out", config={"per_tensor": False})
    calibrating = quantizer.quantize()
    with torch.no_grad():
        for batch in data:
            calibrating(batch)
        quantized = quantizer.convert(calibrating)
        chosen = {layer.name: layer for layer in quantized.plan.layers}
        assert {"conv", "head"} <= chosen.keys()
        for layer in chosen.values():  # layers that are slower in eight bits on this machine go back to float
            assert layer.precision == "int8" or layer.reason in ("slower", "no_kernel")
        assert correlation(quantized(data[1]), model(data[1])) > 0.99


def test_quantization_aware_training_end_to_end():
    torch.manual_seed(0)
    model, data = Small().eval(), [torch.rand(4, 3, 8, 8) for _ in range(8)]
    wanted = [torch.rand(4, 4) for _ in data]
    quantizer = QATQuantizer(model, data[0], work_dir="out", calibration=data)
    trained = quantizer.quantize().train()
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.5)
    losses = []
    for _ in range(10):
        loss = sum((trained(x) - y).square().mean() for x, y in zip(data, wanted, strict=True)) / len(data)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]
    with torch.no_grad():
        quantized = quantizer.convert(trained)
        assert correlation(quantized(data[1]), trained.eval()(data[1])) > 0.99
