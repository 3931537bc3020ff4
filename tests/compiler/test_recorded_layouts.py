"""Results whose memory layout differs from the graph's are copied, as GPUs require."""

import pytest
import torch
from torch import nn

from compiler.graphs import normal, ops
from torchport.compiler.recorded_layouts import lay_out_as_recorded


@pytest.mark.parametrize(
    "rest",
    [
        (nn.Flatten(1), nn.Linear(144, 2)),
        (nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(1)),
        (nn.BatchNorm2d(4), nn.Flatten(1)),
    ],
)
def test_what_is_recorded_as_contiguous_is_made_so(rest):
    """As on a GPU, where torch.export records contiguous results and cuDNN's kernels give channels-last."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3), *rest).eval()
    x = torch.randn(2, 3, 8, 8)
    graph_module = normal(model, x).graph_module
    last = x.to(memory_format=torch.channels_last)
    with pytest.raises(RuntimeError, match="view"):
        graph_module(last)

    lay_out_as_recorded(graph_module, (last,))
    with torch.no_grad():
        torch.testing.assert_close(graph_module(last)[0], model(x))
    copied = [node for node in graph_module.graph.nodes if str(node.target) == "aten.clone.default"]
    assert [str(node.args[0].target) for node in copied] == ["aten.convolution.default"]


def test_what_lies_as_recorded_is_not_copied():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3)).eval()
    for x in (torch.randn(2, 3, 8, 8), torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)):
        graph_module = normal(model, x).graph_module
        before = ops(graph_module.graph)
        lay_out_as_recorded(graph_module, (x,))
        assert ops(graph_module.graph) == before


def test_what_is_recorded_as_channels_last_is_made_so():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval()
    x = torch.randn(2, 3, 8, 8)
    graph_module = normal(model, x.to(memory_format=torch.channels_last)).graph_module
    lay_out_as_recorded(graph_module, (x,))
    assert graph_module(x)[0].is_contiguous(memory_format=torch.channels_last)
