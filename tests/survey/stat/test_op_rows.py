"""Rows describe each op's call: arguments, tensors, edges, bytes, FLOPs and origin."""

import json

import pytest
import torch
from torch import nn

from torchport import zoo
from torchport.capture import AtenGraph, capture_graphs, recording_backend
from torchport.survey.stat.op_rows import rows_of


def rows_for(module, *args, backward=False):
    return list(rows_of("m", capture_graphs(module, args, backward=backward)))


def value(row, parameter):
    [found] = [argument["value"] for argument in row["arguments"] if argument["parameter"] == parameter]
    return found if found == "not_jsonable" else json.loads(found)


def test_convolutions_have_the_arguments_of_their_modules_constructors():
    model = zoo.load("torchvision:resnet18", weights=False, device="meta")
    rows = rows_of("resnet18", capture_graphs(model.module, model.args))
    found = [row for row in rows if row["op"] == "aten.convolution.default"]
    modules = dict(model.module.named_modules())
    assert len(found) == sum(isinstance(module, nn.Conv2d) for module in modules.values()) == 20
    for row in found:
        conv = modules[row["module_path"]]
        assert value(row, "stride") == list(conv.stride)
        assert value(row, "padding") == list(conv.padding)
        assert value(row, "dilation") == list(conv.dilation)
        assert value(row, "groups") == conv.groups
        assert value(row, "transposed") is False
        assert value(row, "input") == value(row, "weight") == "not_jsonable"
        assert value(row, "bias") is None
        weight = row["inputs"][1]
        assert weight["shape"] == "x".join(map(str, conv.weight.shape))
        assert weight["node"] is None
        height = int(row["outputs"][0]["shape"].split("x")[2])
        # Two per multiply-add, for each of the result's elements.
        assert row["flops"] == 2 * height * height * conv.weight.numel()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x, y):
        both = torch.cat([self.fc(x), y], dim=1)
        return both.clamp(min=None, max=float("inf")), both.sum(dtype=torch.float64)


def test_the_columns_of_a_small_model_by_hand():
    rows = rows_for(Net(), torch.ones(4, 3), torch.ones(4, 5))
    transpose, product, cat, clamp, total = rows
    assert [row["node"] for row in rows] == [0, 1, 2, 3, 4]
    assert {(row["model"], row["direction"], row["graph"]) for row in rows} == {("m", "fw", 0)}
    assert transpose["op"] == "aten.t.default"
    assert product["flops"] == 2 * 4 * 3 * 2
    assert product["module_path"] == "fc"
    assert cat["module_path"] == ""
    assert "in forward" in cat["source"]
    assert [(entry["node"], entry["shape"], entry["bytes"]) for entry in cat["inputs"]] == [
        (1, "4x2", 32),
        (None, "4x5", 80),
    ]
    assert (cat["input_bytes"], cat["output_bytes"]) == (112, 112)
    assert cat["arguments"] == [
        {"name": "arg0", "parameter": "tensors", "value": "not_jsonable"},
        {"name": "arg1", "parameter": "dim", "value": "1"},
    ]
    assert value(clamp, "min") is None
    assert value(clamp, "max") == "Infinity"
    assert total["arguments"][-1] == {"name": "dtype", "parameter": "dtype", "value": '"torch.float64"'}
    assert total["outputs"] == [{"dtype": "float64", "shape": "", "bytes": 8}]


@pytest.mark.parametrize(
    ("dtype", "name", "size"),
    [
        (torch.bfloat16, "bfloat16", 2),
        (torch.float16, "float16", 2),
        (torch.bool, "bool", 1),
        (torch.complex64, "complex64", 8),
        (torch.int8, "int8", 1),
        (torch.float8_e4m3fn, "float8_e4m3fn", 1),
    ],
)
def test_every_dtype(dtype, name, size):
    [row] = rows_for(lambda x: x.view(6).clone() if False else x.clone(), torch.zeros(2, 3).to(dtype))
    assert row["inputs"][0] | {"node": 0} == {
        "node": 0,
        "name": "arg0_1",
        "dtype": name,
        "shape": "2x3",
        "bytes": 6 * size,
    }
    assert row["outputs"] == [{"dtype": name, "shape": "2x3", "bytes": 6 * size}]


def test_one_of_several_results_is_an_op_with_one_tensor():
    rows = rows_for(lambda x: x.topk(2)[0], torch.ones(5))
    assert [row["op"] for row in rows] == ["aten.topk.default", "operator.getitem"]
    assert [output["shape"] for output in rows[0]["outputs"]] == ["2", "2"]
    assert [(entry["node"], entry["bytes"]) for entry in rows[1]["inputs"]] == [(0, 8)]
    assert rows[1]["flops"] == 0


def test_complex_numbers_and_memory_formats_have_a_text():
    rows = rows_for(
        lambda x: (x * 2j).to(memory_format=torch.channels_last),
        torch.ones(1, 2, 3, 4, dtype=torch.complex64),
    )
    values = {argument["value"] for row in rows for argument in row["arguments"]}
    assert '"2j"' in values
    assert '"torch.channels_last"' in values


def test_symbolic_sizes_are_expressions_and_their_bytes_unknown():
    graphs: list[AtenGraph] = []
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda x: (x @ x.T).reshape(-1), backend=recording_backend(graphs.append), dynamic=True
    )
    compiled(torch.ones(6, 4))
    torch._dynamo.reset()
    rows = list(rows_of("m", graphs))
    [product] = [row for row in rows if row["op"] == "aten.mm.default"]
    symbol = product["inputs"][0]["shape"].split("x")[0]
    assert symbol.startswith("s")
    assert product["inputs"][0]["bytes"] is None
    assert product["input_bytes"] is product["flops"] is None
    [reshape] = [row for row in rows if row["op"] == "aten.view.default"]
    assert value(reshape, "size") != "not_jsonable"
    assert any(symbol in str(size) for size in value(reshape, "size")) or value(reshape, "size") == [-1]


def test_the_graphs_inside_an_op_are_graphs_of_their_own():
    def branch(x):
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))

    graphs: list[AtenGraph] = []
    torch._dynamo.reset()
    torch.compile(branch, backend=recording_backend(graphs.append))(torch.ones(3))
    torch._dynamo.reset()
    rows = list(rows_of("m", graphs))
    assert [row["op"] for row in rows if row["graph"] == 0][-2:] == ["higher_order.cond", "operator.getitem"]
    inner = {row["op"] for row in rows if row["graph"] > 0}
    assert inner == {"aten.sin.default", "aten.cos.default"}


def test_backward_rows_have_their_own_numbers():
    rows = rows_for(nn.Linear(3, 2), torch.ones(4, 3), backward=True)
    backward = [row for row in rows if row["direction"] == "bw"]
    assert [row["node"] for row in backward] == list(range(len(backward)))
    assert {row["graph"] for row in backward} == {0}
    assert "aten.mm.default" in {row["op"] for row in backward}
