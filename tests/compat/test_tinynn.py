"""`tinynn` traces as torchport does, and names the quantizers."""

import pytest
import torch

import torchport
from tinynn.graph.quantization import quantizer
from tinynn.graph.tracer import TraceGraph, model_tracer, trace


def test_several_models_are_traced_in_a_block():
    outside, x = torch.nn.Linear(2, 3), torch.rand(1, 2)
    with model_tracer():
        graphs = [trace(outside, x), trace(torch.nn.Sequential(torch.nn.ReLU()), [x])]
    assert all(isinstance(graph, TraceGraph) for graph in graphs)
    assert torch.equal(graphs[0](x), outside(x))


@pytest.mark.parametrize("name", ["PostQuantizer", "QATQuantizer", "DynamicQuantizer", "BF16Quantizer"])
def test_quantizers_refuse(name):
    with pytest.raises(torchport.TorchportError, match=f"{name} is not supported"):
        getattr(quantizer, name)(torch.nn.Linear(2, 2), torch.rand(1, 2), work_dir="out", config={})
