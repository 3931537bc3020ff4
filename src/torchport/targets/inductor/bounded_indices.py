"""Keeps indices within bounds: compiled code that finds one outside ends the process.

On a CPU the code that inductor writes checks each index in the thread that uses it, and what it throws there
nobody can catch. So indices are clamped, and the graph gives one more result: whether that changed none.
Where it did, eager torch runs the call, and raises what it raises.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import fx
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from torchport.errors import TargetError
from torchport.targets.integer_bounds import INTEGERS, Bounds
from torchport.targets.value_ranges import index_limits
from torchport.torch_private import FakeTensorMode

_aten = torch.ops.aten
_FEW = 200  # ops that an index is computed by
# These count from the end where an index is negative, in each dimension.
_FROM_THE_END = ("aten.index.Tensor", "aten.index_put.default")


def bound_indices(graph_module: fx.GraphModule, arguments: Sequence[torch.Tensor]) -> bool:
    """Change a graph so that no index is outside; return whether it says so by one more result.

    Args:
        graph_module: the graph.
        arguments: what it is called with, whatever the values.

    Raises:
        TargetError: an index that is a constant is outside.
    """
    graph = graph_module.graph
    if not any(_indexes(node) for node in graph.nodes):
        return False
    FakeTensorProp(graph_module, FakeTensorMode(allow_non_fake_inputs=True)).propagate(*arguments)
    flags: dict[tuple[fx.Node, Bounds], tuple[fx.Node, fx.Node]] = {}
    for node in list(graph.nodes):
        for index, bounds in _limits(node).items() if _indexes(node) else ():
            if index.op == "get_attr":
                _check(getattr(graph_module, str(index.target)), bounds, str(node.target))
                continue
            if (index, bounds) not in flags:
                with graph.inserting_before(node):
                    flags[index, bounds] = _clamped(graph, index, bounds)
            node.replace_input_with(index, flags[index, bounds][0])
    if not flags:
        return False
    output = graph.output_node()
    with graph.inserting_before(output):
        kept = [flag for _, flag in flags.values()]
        total = kept[0]
        for flag in kept[1:]:
            total = graph.call_function(_aten.logical_and.default, (total, flag))
    output.args = ((*output.args[0], total),)  # type: ignore[misc]  # a tuple of nodes
    graph_module.recompile()
    return True


@torch.no_grad()
def indices_fit(graph_module: fx.GraphModule, arguments: Sequence[torch.Tensor]) -> bool:
    """Whether no index is outside where a graph runs on these inputs; found on the CPU, which it harms not.

    An index that takes more than a few ops to compute may be any.
    """
    nodes = list(graph_module.graph.nodes)
    if not any(map(_indexes, nodes)):
        return True
    FakeTensorProp(graph_module, FakeTensorMode(allow_non_fake_inputs=True)).propagate(*arguments)
    limits = [limit for node in nodes if _indexes(node) for limit in _limits(node).items()]
    needed = _ancestors(index for index, _ in limits)
    if len(needed) > _FEW:
        return False
    values: dict[fx.Node, object] = {}
    given = iter(arguments)
    try:
        for node in nodes:
            argument = next(given) if node.op == "placeholder" else None
            if node not in needed:
                continue
            if node.op == "call_function":
                kwargs = {**node.kwargs, "device": "cpu"} if "device" in node.kwargs else node.kwargs
                args, kwargs = fx.map_arg((node.args, kwargs), values.__getitem__)  # type: ignore[arg-type]  # fx's own unions
                values[node] = node.target(*args, **kwargs)
            else:
                held = argument if argument is not None else getattr(graph_module, str(node.target))
                values[node] = held.cpu()
        return all(_is_within(values[index], bounds) for index, bounds in limits)
    except (IndexError, RuntimeError):  # an index on the way to one, maybe
        return False


def _ancestors(nodes: Iterable[fx.Node]) -> set[fx.Node]:
    """Return nodes, and all that they are computed from."""
    found: set[fx.Node] = set()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack += node.all_input_nodes
    return found


def _is_within(index: object, bounds: Bounds) -> bool:
    assert isinstance(index, torch.Tensor)
    if index.dtype is torch.bool or not index.numel():
        return True
    return bounds[0] <= int(index.min()) and int(index.max()) <= bounds[1]


def _indexes(node: fx.Node) -> bool:
    known = INTEGERS.get(str(node.target))
    return known is not None and known.indexes is not None


def _limits(node: fx.Node) -> dict[fx.Node, Bounds]:
    """Return the bounds of each index; of one for several dimensions, those that it has in all of them."""
    found: dict[fx.Node, Bounds] = {}
    for index, (low, high) in index_limits(node):
        low = -high - 1 if str(node.target) in _FROM_THE_END else low
        least, most = found.get(index, (low, high))
        found[index] = max(least, low), min(most, high)
    return found


def _check(constant: torch.Tensor, bounds: Bounds, op: str) -> None:
    if not _is_within(constant, bounds):
        raise TargetError(
            f"an index of {op} is outside {bounds[0]} … {bounds[1]}", where="inductor",
            remedy="run the model with eager torch to see where",
        )  # fmt: skip


def _clamped(graph: fx.Graph, index: fx.Node, bounds: Bounds) -> tuple[fx.Node, fx.Node]:
    """Return an index within bounds, and whether it is the given one."""
    clamped = graph.call_function(_aten.clamp.default, (index, *bounds))
    same = graph.call_function(_aten.eq.Tensor, (index, clamped))
    return clamped, graph.call_function(_aten.all.default, (same,))
