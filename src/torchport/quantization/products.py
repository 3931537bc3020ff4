"""Finds products with weights, and stores weights that a model computes from its own tensors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import fx

from torchport.quantization.graph_tensors import add_tensor, constant_of, is_trained
from torchport.quantization.operands import map_operands, operands
from torchport.quantization.options import QuantizationOptions
from torchport.targets.processor import saturates


@dataclass(frozen=True, slots=True)
class Product:
    """The positions of a product's operands.

    Args:
        read: the index of its input among its operands.
        weight: the index of its weight.
        channel_dim: the weight's output channel dimension.
    """

    read: int
    weight: int
    channel_dim: int


PRODUCTS: dict[str, Product] = {
    "aten.linear.default": Product(0, 1, 0),
    "aten.matmul.default": Product(0, 1, 1),
    "aten.mm.default": Product(0, 1, 1),
    "aten.addmm.default": Product(1, 2, 1),
    **{f"aten.conv{dims}d.{form}": Product(0, 1, 0) for dims in (1, 2, 3) for form in ("default", "padding")},
    **{f"aten.conv_transpose{form}": Product(0, 1, 1) for form in ("1d.default", "2d.input", "3d.input")},
}


def weighted_products(graph_module: fx.GraphModule) -> Iterator[tuple[fx.Node, Product, torch.Tensor]]:
    """Yield each product with a weight that can be in eight bits: the node, its positions and the weight."""
    for node in graph_module.graph.nodes:
        product = PRODUCTS.get(str(node.target)) if node.op == "call_function" else None
        if product is None or node.kwargs:
            continue
        read = operands(node)
        weight = constant_of(graph_module, read[product.weight]) if len(read) > product.weight else None
        if weight is None or weight.dim() < 2 or weight.dtype is not torch.float32:
            continue
        if ("matmul" in str(node.target) and weight.dim() != 2) or not bool(weight.isfinite().all()):
            continue
        yield node, product, weight


def reduces_weights(options: QuantizationOptions) -> bool:
    """Whether weights have seven bits, so that sums of products do not saturate."""
    return saturates() if options.range_reduction == "auto" else options.range_reduction == "yes"


def largest_weight(options: QuantizationOptions) -> int:
    """Return the largest integer that a weight is rounded to."""
    return 63 if reduces_weights(options) else 127


def store_computed_weights(graph_module: fx.GraphModule) -> None:
    """Store each weight that is computed from the graph's own tensors, as by weight norm or by slicing.

    The code that looks for weights to quantize considers only stored tensors.
    """
    graph = graph_module.graph
    stored: dict[fx.Node, fx.Node] = {}
    for node in list(graph.nodes):
        product = PRODUCTS.get(str(node.target))
        read = operands(node) if product is not None else []
        if product is None or len(read) <= product.weight:
            continue
        source = read[product.weight]
        if source not in stored:
            weight = constant_of(graph_module, source) if source.op == "call_function" else None
            if (
                weight is None
                or not weight.is_floating_point()
                or _is_shared_view(graph_module, source, weight)
            ):
                continue
            sources = _tensors_read(source)
            with graph.inserting_before(node):
                stored[source] = add_tensor(
                    graph_module,
                    f"{node.name}_computed_weight",
                    weight.contiguous().clone(),
                    trained=any(is_trained(graph_module, each) for each in sources),
                )
            stored[source].meta = {"val": source.meta["val"]}
        _replace(node, source, stored[source])
    graph.eliminate_dead_code()
    graph_module.recompile()


def _replace(node: fx.Node, old: fx.Node, new: fx.Node) -> None:
    node.args, node.kwargs = map_operands(node, lambda _, value: new if value is old else value)


def _tensors_read(node: fx.Node) -> set[fx.Node]:
    """Return the graph's own tensors that a node is computed from."""
    if node.op == "get_attr":
        return {node}
    return {found for each in node.all_input_nodes for found in _tensors_read(each)}


def _is_shared_view(graph_module: fx.GraphModule, source: fx.Node, weight: torch.Tensor) -> bool:
    """Whether a weight is a view of a whole tensor that has other readers: storing it would duplicate it."""
    for node in _tensors_read(source):
        tensor = constant_of(graph_module, node)
        if tensor is None or len(node.users) < 2 or tensor.numel() != weight.numel():
            continue
        if tensor.untyped_storage().data_ptr() == weight.untyped_storage().data_ptr():
            return True
    return False
