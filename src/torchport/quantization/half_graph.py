"""Makes a layer of a graph compute in half precision: casts its inputs and weights, and its result back."""

from __future__ import annotations

import torch
from torch import fx

from torchport.quantization.graph_tensors import add_tensor, tensor_of
from torchport.quantization.operands import map_operands
from torchport.records.quantization import HALF_PRECISIONS

aten = torch.ops.aten
HALVES = {name: getattr(torch, name) for name in HALF_PRECISIONS}

Stored = dict[tuple[str, torch.dtype], fx.Node]


def halve(graph_module: fx.GraphModule, node: fx.Node, dtype: torch.dtype, stored: Stored) -> None:
    """Compute a node in half precision; the node keeps its name, and still returns float32.

    Args:
        graph_module: the graph, modified in place.
        node: the layer's node.
        dtype: bfloat16 or float16.
        stored: the cast weights added so far, by the name of the original and the dtype.
    """
    graph = graph_module.graph

    def cast(place: int, value: fx.Node) -> fx.Node:
        tensor = tensor_of(graph_module, value)
        if tensor is None:
            with graph.inserting_before(node):
                return graph.call_function(aten._to_copy.default, (value,), {"dtype": dtype})
        if not tensor.is_floating_point():
            return value
        key = str(value.target), dtype
        if key not in stored:
            with graph.inserting_before(next(iter(graph.nodes))):
                name = f"{str(value.target).replace('.', '_')}_{str(dtype).removeprefix('torch.')}"
                stored[key] = add_tensor(graph_module, name, tensor.to(dtype))
        return stored[key]

    args, kwargs = map_operands(node, cast)
    with graph.inserting_before(node):
        product = graph.call_function(node.target, args, kwargs)  # type: ignore[arg-type]  # an op
    product.meta = dict(node.meta)
    node.target, node.args, node.kwargs = aten._to_copy.default, (product,), {"dtype": torch.float32}
