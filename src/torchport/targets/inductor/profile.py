"""Measures how long each of an island's inductor kernels takes, with torch's own profiler.

inductor fuses ops and names the resulting kernels, but does not say which of an island's ops each computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torchport.records import OpTime
from torchport.targets.folded_scales import fold_scales
from torchport.targets.host.build import build as build_graph
from torchport.targets.host.load import read_graph
from torchport.targets.host.profile import profiling
from torchport.targets.inductor.build import on_host
from torchport.targets.inductor.compile import compile_graph, lift_weights
from torchport.targets.inductor.options import InductorOptions
from torchport.targets.target import Island

_GRAPH = "## Call CompiledFxGraph"  # torch's profiler event around all kernels of a compiled graph
_RUNS = 4  # the first is a warm-up


def op_times(island: Island, options: InductorOptions, arguments: Sequence[torch.Tensor]) -> list[OpTime]:
    """Compile the island with kernel profiling, run it, and return the times of its fastest run."""
    on_gpu = any(argument.is_cuda for argument in arguments)
    graph_module = read_graph(build_graph(on_host(island))).to(arguments[0].device if arguments else "cpu")
    fold_scales(graph_module)
    lifted, weights = lift_weights(graph_module)
    given = [argument.detach().contiguous() for argument in arguments]
    compiled = compile_graph(lifted, [*given, *weights], options, {"cpp.enable_kernel_profile": True})
    runs = []
    with torch.no_grad():
        for _ in range(_RUNS):
            with profiling(on_gpu) as profiler:
                compiled(*given, *weights)
            runs.append(_times(profiler.function_events, on_gpu))
    return min(runs[1:], key=lambda times: sum(time.seconds for time in times))


def _times(events: Sequence[Any], on_gpu: bool) -> list[OpTime]:
    found = []
    for event in events:
        if on_gpu:
            found += [OpTime("", kernel.duration * 1e-6, str(kernel.name)) for kernel in event.kernels]
        elif _is_kernel(event):
            found.append(OpTime("", event.cpu_time_total * 1e-6, str(event.name)))
    return found


def _is_kernel(event: Any) -> bool:
    """Whether an event is a direct call of the compiled graph, not one around it or nested deeper."""
    parent = event.cpu_parent
    return parent is not None and str(parent.name).startswith(_GRAPH)
