"""The host's graph as JSON, and back: calls of ops, as data."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import fx
from torch._ops import OpOverload

from torchport.errors import PackageError, TargetError
from torchport.targets.op_calls import decode, encode, encode_call, find_op

_WRITE = torch.ops.aten.copy_.default


def encode_graph(graph: fx.Graph) -> dict[str, object]:
    """Return a host graph as JSON.

    Raises:
        PackageError: an op or argument has no JSON form.
    """
    inputs: list[str] = []
    attributes: dict[str, str] = {}
    calls: list[dict[str, object]] = []
    try:
        for node in graph.nodes:
            if node.op == "placeholder":
                inputs.append(node.name)
            elif node.op == "get_attr":
                attributes[node.name] = str(node.target)
            elif node.op == "call_function":
                calls.append(encode_call(node))
        outputs = encode(graph.output_node().args[0])
    except TargetError as error:
        raise PackageError(f"the host's graph cannot be written down: {error.what}") from error
    return {"inputs": inputs, "attributes": attributes, "calls": calls, "outputs": outputs}


def decode_graph(data: Mapping[str, object], tensors: Mapping[str, torch.Tensor]) -> fx.GraphModule:
    """Return a host graph from its JSON.

    Args:
        data: what `encode_graph` returned.
        tensors: its attributes by their names.

    Raises:
        TargetError: it calls an op that this torch does not have, or that no host graph calls.
    """
    graph = fx.Graph()
    nodes: dict[str, object] = {}
    inputs, attributes, calls = data["inputs"], data["attributes"], data["calls"]
    assert isinstance(inputs, list)
    assert isinstance(attributes, dict)
    assert isinstance(calls, list)
    for name in inputs:
        nodes[name] = graph.placeholder(name)
    for name, attribute in attributes.items():
        nodes[name] = graph.create_node("get_attr", attribute, name=name)
    for call in calls:
        args = tuple(decode(argument, nodes) for argument in call["args"])
        kwargs = {key: decode(argument, nodes) for key, argument in call["kwargs"].items()}
        op = _find_functional(call["op"])
        nodes[call["name"]] = graph.create_node("call_function", op, args, kwargs, call["name"])  # type: ignore[arg-type]
    outputs = decode(data["outputs"], nodes)
    assert isinstance(outputs, list)
    graph.output(tuple(outputs))
    return fx.GraphModule(dict(tensors), graph, "Program")


def _find_functional(name: str) -> object:
    """Return the op of that name; of those that write to tensors, a host graph has one alone."""
    op = find_op(name)
    if isinstance(op, OpOverload) and op._schema.is_mutable and op is not _WRITE:
        raise TargetError(f"{name} writes to its arguments, which no host graph does")
    return op
