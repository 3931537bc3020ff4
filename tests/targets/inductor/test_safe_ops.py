"""Ops whose compiled form could crash or read out of bounds stay on the host, and no file calls them."""

import json

import numpy
import pytest
import torch
from torch import fx

from targets.graphs import island_of, verdict_on
from torchport.errors import TargetError
from torchport.targets import Artifact, find
from torchport.targets.checked_ops import CHECKED
from torchport.targets.inductor.safe_ops import refuse_unsafe

aten = torch.ops.aten
IMAGE, PLACES = torch.rand(1, 1, 8, 8), torch.zeros(1, 1, 8, 8, dtype=torch.int64)
COUNTS = torch.ones(3, dtype=torch.int64)


def graph_of(op, *args, **kwargs) -> tuple[fx.GraphModule, list[torch.Tensor]]:
    """Return a graph of one call, and its inputs: the tensors among the arguments."""
    graph, inputs = fx.Graph(), []

    def node(value):
        if not isinstance(value, torch.Tensor):
            return value
        inputs.append(value)
        return graph.placeholder(f"x{len(inputs)}")

    given = [node(value) for value in args]
    named = {name: node(value) for name, value in kwargs.items()}
    graph.output((graph.call_function(op, tuple(given), named),))
    return fx.GraphModule({}, graph), inputs


@pytest.mark.parametrize(
    ("op", "args"),
    [
        (aten.put.default, (IMAGE, PLACES, IMAGE)),
        (aten.index_reduce.default, (IMAGE, 0, COUNTS[:1], IMAGE, "prod")),
        (aten.max_unpool2d.default, (IMAGE, PLACES, [8, 8])),
        (aten.fractional_max_pool2d.default, (IMAGE, [2, 2], [4, 4], torch.rand(1, 1, 2))),
        (aten.multi_margin_loss.default, (torch.rand(3, 2), COUNTS)),
        (aten.one_hot.default, (COUNTS, 8)),
        (aten.quantile.default, (torch.rand(8), torch.rand(3))),
        (aten.divide.Tensor_mode, (COUNTS, COUNTS)),
        (aten.floor_divide.default, (COUNTS, COUNTS)),
        (aten._local_scalar_dense.default, (COUNTS[:1],)),
        (aten.empty_like.default, (IMAGE,)),
        (aten.new_empty.default, (IMAGE, [1 << 20])),
        (CHECKED["aten.empty.memory_format"], ([1 << 20],)),
        (aten.upsample_nearest2d.default, (IMAGE, [8, 8], 1e-7, 1e-7)),
        (aten.upsample_nearest2d.default, (IMAGE, [8, 8], None, -1.0)),
        (aten.upsample_nearest2d.default, (IMAGE, [8, 8], float("nan"), 1.0)),
        (CHECKED["aten._embedding_bag.default"], (torch.rand(5, 4), COUNTS, COUNTS - 1)),
    ],
)
def test_a_file_may_not_call_it(op, args):
    kwargs = {"rounding_mode": "trunc"} if op is aten.divide.Tensor_mode else {}
    with pytest.raises(TargetError):
        refuse_unsafe(*graph_of(op, *args, **kwargs))


def test_an_island_of_a_file_is_refused_before_it_is_compiled():
    inductor = find("inductor")
    island = island_of(lambda x: x * 2, IMAGE, target="inductor")
    artifact = inductor.build(island, inductor.make_options({}))
    size = artifact.properties["island"]["program_bytes"]
    program = json.loads(artifact.payload[:size].tobytes())
    program["calls"] = [
        {"op": "aten.upsample_nearest2d.default", "args": [{"value": 0}, [8, 8], 1e-7, 1e-7], "kwargs": {}}
    ]
    text = json.dumps(program).encode()
    text += b" " * (-len(text) % 8)
    payload = numpy.concatenate([numpy.frombuffer(text, dtype=numpy.uint8), artifact.payload[size:]])
    described = {**artifact.properties["island"], "program_bytes": len(text)}
    crafted = Artifact(
        payload, {**artifact.properties, "island": described, "island_bytes": int(payload.size)}
    )
    with pytest.raises(TargetError, match="do not match its sizes"):
        inductor.load(crafted, island.inputs, island.outputs, inductor.make_options({}))


def test_indices_given_by_keyword_are_refused():
    graph = graph_of(aten.scatter.src, IMAGE, dim=0, index=PLACES, src=IMAGE)
    with pytest.raises(TargetError, match=r"the indices of aten.scatter.src cannot be clamped"):
        refuse_unsafe(*graph)


def test_inconsistent_shapes_are_refused_in_one_line(capfd):
    with pytest.raises(TargetError, match="shapes cannot be computed"):
        refuse_unsafe(*graph_of(aten.gather.default, IMAGE, 9, PLACES))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("op", "args"),
    [
        (aten.upsample_nearest2d.default, (IMAGE, [16, 16], 2.0, 2.0)),
        (aten.upsample_bilinear2d.default, (IMAGE, [3, 3], False, 0.45, 0.45)),
        (aten.grid_sampler_2d.default, (IMAGE, torch.rand(1, 8, 8, 2), 0, 0, False)),
        (aten.sort.default, (COUNTS, 0)),
        (aten.div.Tensor_mode, (COUNTS, 2)),
        (aten.scatter_reduce.two, (IMAGE, 0, PLACES, IMAGE, "sum")),
    ],
)
def test_what_is_safe_is_compiled(op, args):
    kwargs = {"rounding_mode": "trunc"} if op is aten.div.Tensor_mode else {}
    refuse_unsafe(*graph_of(op, *args, **kwargs))


@pytest.mark.parametrize(
    ("op", "function", "args"),
    [
        ("aten.put.default", lambda x, i: x.put(i, x), (IMAGE, PLACES)),
        ("aten.index_reduce.default", lambda x, i: x.index_reduce(0, i, x, "prod"), (COUNTS * 1.0, COUNTS)),
    ],
)
def test_unsafe_ops_of_a_model_stay_on_the_host(op, function, args):
    found = verdict_on(op, function, *args, target="inductor")
    assert (found.ok, found.reason) == (False, "argument")
    assert "may index" in found.detail
