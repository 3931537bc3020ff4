"""The record of a graph: it survives JSON, and every index in it is in range."""

import json

import pytest

from torchport.errors import RecordError
from torchport.records import GraphModule, GraphOp, ModelGraph, OpKind, TensorType, Verdict


def graph(*ops):
    kind = OpKind("aten.relu.default", {"eps": float("inf")}, {"output": TensorType("2", "float32")}, 2, 16)
    modules = (GraphModule("", "Net"),)
    return ModelGraph("m", "host", modules, ("m.py:1 in f",), ("island_0",), (Verdict(False),), (kind,), ops)


def test_it_goes_through_json():
    told = graph(GraphOp("a", 0, 0, (), 0, 0), GraphOp("b", 0, 0, (0,), -1, -1, 0))
    read = ModelGraph.from_json(json.loads(json.dumps(told.to_json(), allow_nan=False)))
    assert read.ops == told.ops
    assert read.kinds[0].attributes == {"eps": "Infinity"}


@pytest.mark.parametrize(
    ("op", "field"),
    [
        (GraphOp("x", 1, 0, ()), "kind"),
        (GraphOp("x", -1, 0, ()), "kind"),
        (GraphOp("x", 0, 1, ()), "module"),
        (GraphOp("x", 0, 0, (), line=1), "line"),
        (GraphOp("x", 0, 0, (), island=-2), "island"),
        (GraphOp("x", 0, 0, (), verdict=7), "verdict"),
        (GraphOp("x", 0, 0, (1,)), "sources"),  # itself
        (GraphOp("x", 0, 0, (-1,)), "sources"),
    ],
)
def test_an_op_that_names_what_is_not_there_is_refused(op, field):
    with pytest.raises(RecordError, match=rf"ops\[1\]\.{field}"):
        graph(GraphOp("first", 0, 0, ()), op)
