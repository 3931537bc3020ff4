"""Compiles an island's graph with inductor, weights beside it: what comes of it holds none of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import fx

from torchport.errors import TargetError, one_line
from torchport.records import temporary_folder
from torchport.targets.inductor.options import InductorOptions

Compiled = Callable[..., Sequence[torch.Tensor]]
_NAME = "compiled.bin"
# Else a product with 0 is 0, also that of NaN and of infinity.
_SETTINGS = {"joint_graph_constant_folding": False}
# A GPU's kernels are else tried while they are compiled, on numbers that inductor makes up.
WITHOUT_TRIAL = {"triton.autotune_at_compile_time": False}


def lift_weights(graph_module: fx.GraphModule) -> tuple[fx.GraphModule, list[torch.Tensor]]:
    """Return a graph that takes its weights after its inputs, and these weights."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    nodes = list(graph_module.graph.nodes)
    for node in nodes:
        if node.op == "placeholder":
            copies[node] = graph.placeholder(node.name)
    by_name: dict[str, fx.Node] = {}
    weights: list[torch.Tensor] = []
    for node in nodes:
        if node.op == "get_attr":
            name = str(node.target)
            if name not in by_name:
                by_name[name] = graph.placeholder(f"weight_{len(weights)}")
                weights.append(getattr(graph_module, name).detach())
            copies[node] = by_name[name]
    for node in nodes:
        if node.op == "call_function":
            copies[node] = graph.node_copy(node, copies.__getitem__)
    outputs = graph_module.graph.output_node().args[0]
    graph.output(fx.map_arg(outputs, copies.__getitem__))
    return fx.GraphModule({}, graph), weights


def compile_graph(
    graph_module: fx.GraphModule,
    arguments: Sequence[torch.Tensor],
    options: InductorOptions,
    settings: Mapping[str, object] | None = None,
) -> Any:
    """Compile a graph for tensors like these; `settings` are inductor's own.

    Raises:
        TargetError: inductor refuses it, or its C++ compiler does.
    """
    # They take seconds to import, and not all who load need them.
    from torchport.capture.untouched import torch_as_it_was
    from torchport.torch_private import standalone_compile

    patches = {"config_patches": {"max_autotune": options.max_autotune, **_SETTINGS, **(settings or {})}}
    try:
        with torch.no_grad(), torch_as_it_was():  # it traces, and one thread at a time may
            return standalone_compile(
                graph_module, list(arguments), dynamic_shapes="from_example_inputs", options=patches
            )
    except Exception as error:  # inductor raises many kinds; each is a refusal
        raise TargetError(f"inductor refuses the island: {one_line(error)}", where="inductor") from error


def to_bytes(compiled: Any) -> bytes:
    """Return a compiled graph as inductor writes it; empty if it cannot."""
    with temporary_folder("inductor") as folder:
        path = Path(folder, _NAME)
        try:
            compiled.save(path=str(path), format="binary")
        except (RuntimeError, AssertionError, OSError):
            return b""
        return path.read_bytes()


def from_bytes(data: bytes) -> Any:
    """Return what `to_bytes` was given. It unpickles, and runs what it reads: the data must be trusted.

    Raises:
        TargetError: it is of another torch.
    """
    from torchport.torch_private import CompiledArtifact

    with temporary_folder("inductor") as folder:
        path = Path(folder, _NAME)
        path.write_bytes(data)
        try:
            return CompiledArtifact.load(path=str(path), format="binary")
        except Exception as error:  # whatever a cache of another torch makes it raise
            raise TargetError(f"inductor refuses its compiled form: {one_line(error)}") from error
