"""Measures each op's time and kernel in a graph with eager torch, by torch's own profiler."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx
from torch.autograd.profiler import profile, record_function

from torchport.records import OpTime
from torchport.targets.node_by_node import NodeByNode
from torchport.targets.node_checks import tensors_of

_MARK = "torchport node "
_RUNS = 3
_LEVEL = "KINETO_LOG_LEVEL"


class _Marked(NodeByNode):
    """Runs a graph with a profiler range around each op."""

    def run_node(self, n: fx.Node) -> object:
        """Run a node."""
        if n.op != "call_function":
            return super().run_node(n)
        with record_function(f"{_MARK}{n.name}"):
            return super().run_node(n)


def eager_op_times(graph_module: fx.GraphModule, arguments: Sequence[torch.Tensor]) -> list[OpTime]:
    """Run a graph with eager torch a few times and return each op's shortest time.

    Args:
        graph_module: the graph.
        arguments: the inputs to run it on.
    """
    on_gpu = any(argument.is_cuda for argument in arguments)
    best: dict[str, OpTime] = {}
    dtypes = {node.name: _precision(node) for node in graph_module.graph.nodes}
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        _Marked(graph_module).run(*arguments)  # warm-up
        for _ in range(_RUNS):
            with profiling(on_gpu) as profiler:
                _Marked(graph_module).run(*arguments)
            for event in profiler.function_events:
                if not event.name.startswith(_MARK):
                    continue
                name = event.name.removeprefix(_MARK)
                found = OpTime(name, _seconds(event, on_gpu), _kernel(event, on_gpu), dtypes.get(name, ""))
                if name not in best or found.seconds < best[name].seconds:
                    best[name] = found
    return [best[node.name] for node in graph_module.graph.nodes if node.name in best]


@contextmanager
def profiling(on_gpu: bool) -> Iterator[profile]:
    """Profile the body with torch's profiler, including GPU kernels if `on_gpu`."""
    kept = os.environ.get(_LEVEL)
    os.environ[_LEVEL] = kept or "99"  # otherwise it prints to the terminal
    try:
        with profile(use_device="cuda" if on_gpu else None, use_kineto=on_gpu) as profiler:
            yield profiler
    finally:
        if kept is None:
            os.environ.pop(_LEVEL, None)  # another thread may have removed it already


def _seconds(event: Any, on_gpu: bool) -> float:
    if on_gpu:
        return float(event.device_time_total) * 1e-6
    # Without the range's own time, which is the interpreter's.
    return sum(float(child.cpu_time_total) for child in event.cpu_children) * 1e-6


def _kernel(event: Any, on_gpu: bool) -> str:
    """Return what took most of an op's time: a GPU kernel, or the inner op with the most time of its own."""
    if on_gpu:
        kernels = [kernel for each in _below(event) for kernel in each.kernels]
        return max(kernels, key=lambda kernel: kernel.duration).name if kernels else ""
    inner = _below(event)
    return str(max(inner, key=lambda each: each.self_cpu_time_total).name) if inner else ""


def _below(event: Any) -> list[Any]:
    found = []
    waiting = list(event.cpu_children)
    while waiting:
        child = waiting.pop()
        found.append(child)
        waiting += child.cpu_children
    return found


def _precision(node: fx.Node) -> str:
    for tensor in tensors_of(node):
        if tensor.is_floating_point():
            return str(tensor.dtype).removeprefix("torch.")
    return ""
