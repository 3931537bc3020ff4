"""A `TraceGraph` is an fx graph: it can be traversed, changed, cut and run with fx's own API."""

import pytest
import torch
from torch import fx, nn
from torch.fx.passes.utils.fuser_utils import fuse_by_partitions

from codegen.round_trip import load
from torchport import TraceGraph, trace_graph
from torchport.capture import module_path, source_line
from torchport.errors import CaptureError, CodegenError


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(4, 4)

    def forward(self, x):
        y = self.proj(x)
        return torch.relu(y) + x


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x.sum(dim=1)


@pytest.fixture
def graph():
    return trace_graph(Net().eval(), (torch.rand(2, 4),))


def test_nodes_have_their_origin_and_result(graph):
    assert isinstance(graph, TraceGraph)
    assert isinstance(graph, fx.GraphModule)
    [relu, _] = [node for node in graph.graph.nodes if node.target is torch.relu]
    assert module_path(relu) == "blocks.0"
    assert source_line(relu).endswith("in forward")
    assert "test_trace_graph.py" in source_line(relu)
    assert relu.meta["val"].shape == (2, 4)
    assert relu.meta["val"].dtype == torch.float32
    assert [node.target for node in relu.all_input_nodes] == ["blocks.0.proj"]


def test_nodes_are_replaced_inserted_and_removed_and_the_result_is_written(graph, tmp_path):
    x = torch.randn(3, 4)
    before = graph(x)
    for node in list(graph.graph.nodes):
        if node.target is torch.relu:
            with graph.graph.inserting_after(node):
                new = graph.graph.call_function(torch.tanh, (node.args[0],))
            node.replace_all_uses_with(new)
            graph.graph.erase_node(node)
    graph.recompile()
    after = graph(x)
    assert not torch.equal(after, before)
    for hierarchy in (True, False):
        text = graph.generate_code(tmp_path / "net.py", tmp_path / "net.pth", "Net", hierarchy=hierarchy)
        assert "torch.tanh" in text
        assert torch.equal(load(tmp_path / "net.py")(x), after)


def test_a_subgraph_is_cut_out(graph):
    x = torch.rand(2, 4)
    expected = graph(x)
    relu = next(node for node in graph.graph.nodes if node.target is torch.relu)
    fused = fuse_by_partitions(graph, [{relu: None, relu.args[0]: None}])
    assert any(node.op == "call_module" and "fused" in node.target for node in fused.graph.nodes)
    assert torch.equal(fused(x), expected)


def test_a_model_that_raises_is_an_error_with_its_line():
    class Broken(nn.Module):
        def forward(self, x):
            return x.view(7)

    with pytest.raises(CaptureError, match=r"test_trace_graph\.py:\d+ in forward.*shape"):
        trace_graph(Broken(), (torch.rand(2),))


def test_a_model_that_raises_without_a_message_is_an_error_with_its_line():
    def check(x):
        raise AssertionError

    with pytest.raises(
        CaptureError, match=r"test_trace_graph\.py:\d+ in check: the model raises AssertionError"
    ):
        trace_graph(check, (torch.rand(2),))


def test_errors_are_one_message(graph, tmp_path):
    with pytest.raises(CodegenError, match="not a valid class name"):
        graph.generate_code(tmp_path / "a.py", tmp_path / "a.pth", "not a name")
    with pytest.raises(CodegenError, match=r"\.pth or \.safetensors"):
        graph.generate_code(tmp_path / "a.py", tmp_path / "a.bin", "Net")
    assert list(tmp_path.iterdir()) == []


def test_code_that_differs_is_never_written(graph, tmp_path):
    graph.model.blocks[0].register_forward_hook(lambda module, args, result: result + 1)
    with pytest.raises(CodegenError, match="a different result"):
        graph.generate_code(tmp_path / "a.py", tmp_path / "a.pth", "Net")
    assert list(tmp_path.iterdir()) == []


def test_functions_can_be_traced():
    graph = trace_graph(lambda x, y: torch.cat([x, y]).mean(), (torch.rand(2), torch.rand(3)))
    assert torch.equal(graph(torch.ones(4), torch.zeros(4)), torch.tensor(0.5))
