"""The record of the graph that a target was given."""

import torch
from torch import nn

import torchport
from torchport.compiler.explain_model import explain_graph


class Product(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 4))

    def forward(self, x):
        return x @ self.weight


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.product = Product()

    def forward(self, x):
        return torch.relu(self.product(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        values, places = torch.topk(x, 2)
        return values + places


INPUTS = (torch.ones(3, 4),)


def test_every_op_has_its_module_its_line_and_what_feeds_it():
    _, graph = explain_graph(Net(), INPUTS, target="host", name="net")
    kinds = [graph.kinds[op.kind].op.split(".")[1] for op in graph.ops]
    assert kinds == ["mm", "relu", "mm", "relu", "topk", "add"]
    assert [graph.modules[op.module].path for op in graph.ops] == [
        "blocks.0.product", "blocks.0", "blocks.1.product", "blocks.1", "", "",
    ]  # fmt: skip
    assert {(module.path, module.class_name) for module in graph.modules} == {
        ("", "Net"), ("blocks.0", "Block"), ("blocks.0.product", "Product"), ("blocks.1", "Block"),
        ("blocks.1.product", "Product"),
    }  # fmt: skip
    assert [op.sources for op in graph.ops] == [(), (0,), (1,), (2,), (3,), (4,)]  # both results are topk's
    assert "test_graph_record.py" in graph.lines[graph.ops[1].line]


def test_ops_that_are_called_alike_are_of_one_kind_with_their_cost():
    _, graph = explain_graph(Net(), INPUTS, target="host")
    assert graph.ops[0].kind == graph.ops[2].kind
    product = graph.kinds[graph.ops[0].kind]
    assert product.flops == 2 * 3 * 4 * 4
    assert product.tensor_types["output"].shape == "3x4"
    topk = graph.kinds[graph.ops[4].kind]
    assert topk.attributes == {"k": 2, "dim": -1, "largest": True, "sorted": True}
    assert topk.tensor_types["output[1]"].dtype == "int64"


def test_where_ops_run_and_why_some_stay():
    coverage, graph = explain_graph(Net(), INPUTS, target="host", options={"keep_ops": ["aten.relu.default"]})
    stays = [op.name for op in graph.ops if op.island < 0]
    assert stays == [op.node for op in coverage.stayed]
    assert len(stays) == 2
    reasons = {graph.verdicts[op.verdict].reason for op in graph.ops if op.verdict >= 0}
    assert reasons == {"kept_by_option"}
    assert graph.islands == tuple(island.name for island in coverage.islands)
    for place, island in enumerate(coverage.islands):
        assert sum(op.island == place for op in graph.ops) == island.ops


def test_a_compiled_model_has_its_graph():
    compiled = torchport.compile(Net().eval(), INPUTS, target="host", name="net")
    assert len(compiled.graph.ops) == compiled.coverage.ops_before
    assert (compiled.graph.model, compiled.graph.target) == ("net", "host")
