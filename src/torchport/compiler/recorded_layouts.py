"""Inserts copies where a kernel's result has another memory layout than the graph records.

torch.export traces without cuDNN, so a graph records the results of convolutions, and what is computed from
them, as contiguous where cuDNN returns channels-last. Views of such results, and ops that need contiguous
inputs, would raise.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import fx

from torchport.targets.node_by_node import NodeByNode


def lay_out_as_recorded(graph_module: fx.GraphModule, leaves: Sequence[torch.Tensor]) -> None:
    """Run the graph once, and insert a copy after each op whose result has another layout than recorded.

    Args:
        graph_module: the graph; its weights have values.
        leaves: the tensors that it was captured with.
    """
    run = _Run(graph_module)
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with torch.no_grad(), torch.random.fork_rng(devices=devices):
        run.run(*leaves)
    graph = graph_module.graph
    for node in run.others:
        users = list(node.users)
        with graph.inserting_after(node):
            copy = graph.call_function(
                torch.ops.aten.clone.default, (node,), {"memory_format": _format_of(node.meta["val"])}
            )
        copy.meta = dict(node.meta)
        for user in users:
            user.replace_input_with(node, copy)
    if run.others:
        graph_module.recompile()


class _Run(NodeByNode):
    """Runs a graph with eager torch, copying results to their recorded layouts; lists those that differ."""

    def __init__(self, graph_module: fx.GraphModule) -> None:
        super().__init__(graph_module)
        self.others: list[fx.Node] = []

    def run_node(self, n: fx.Node) -> object:
        """Run a node, and copy its result if the layout differs."""
        value = super().run_node(n)
        recorded = n.meta.get("val")
        if n.op != "call_function" or not isinstance(value, torch.Tensor):
            return value
        if not isinstance(recorded, torch.Tensor) or _has_layout(value, recorded):
            return value
        self.others.append(n)
        return value.clone(memory_format=_format_of(recorded))


def _has_layout(value: torch.Tensor, recorded: torch.Tensor) -> bool:
    """Whether a tensor has the recorded layout; ignores open sizes, and layouts that a copy cannot have."""
    if value.layout is not torch.strided or recorded.layout is not torch.strided:
        return True
    strides = recorded.stride()
    if not all(isinstance(number, int) for number in (*recorded.shape, *strides)):
        return value.is_contiguous() or not _is_channels_last(value)
    if not (recorded.is_contiguous() or _is_channels_last(recorded)):
        return True
    pairs = zip(value.shape, value.stride(), strides, strict=True)
    return all(size <= 1 or mine == own for size, mine, own in pairs)


def _format_of(recorded: torch.Tensor) -> torch.memory_format:
    if not all(isinstance(number, int) for number in recorded.stride()) or recorded.is_contiguous():
        return torch.contiguous_format
    return torch.channels_last if recorded.dim() == 4 else torch.channels_last_3d


def _is_channels_last(tensor: torch.Tensor) -> bool:
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(tensor.dim())
    return last is not None and tensor.is_contiguous(memory_format=last)
