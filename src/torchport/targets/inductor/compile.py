"""Compiles an island's graph with inductor; weights become inputs, so the compiled graph holds none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import fx

from torchport.errors import TargetError, one_line
from torchport.records import temporary_folder
from torchport.targets.inductor.options import InductorOptions
from torchport.targets.inductor.private_cache import private_cache

Compiled = Callable[..., Sequence[torch.Tensor]]
_NAME = "compiled.bin"
# Otherwise a product with 0 is folded to 0, even when the other factor is NaN or infinity.
_SETTINGS = {"joint_graph_constant_folding": False}
# Otherwise GPU kernels are run at compile time, on numbers that inductor makes up.
WITHOUT_TRIAL = {"triton.autotune_at_compile_time": False}


def lift_weights(graph_module: fx.GraphModule) -> tuple[fx.GraphModule, list[torch.Tensor]]:
    """Return a graph that takes its weights as inputs, after its own, and the list of weights."""
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
        TargetError: inductor or its C++ compiler rejects the graph.
    """
    # These take seconds to import, and loading a package may not need them.
    from torchport.capture.untouched import torch_as_it_was
    from torchport.torch_private import standalone_compile

    patches = {"config_patches": {"max_autotune": options.max_autotune, **_SETTINGS, **(settings or {})}}
    try:
        with torch.no_grad(), torch_as_it_was(), private_cache():  # inductor traces: one thread at a time
            return standalone_compile(
                graph_module, list(arguments), dynamic_shapes="from_example_inputs", options=patches
            )
    except Exception as error:  # inductor raises many types; each means that it cannot compile the graph
        raise TargetError(
            f"inductor cannot compile the island: {one_line(error)}", where="inductor"
        ) from error


def to_bytes(compiled: Any) -> bytes:
    """Return a compiled graph serialized by inductor; empty if inductor cannot serialize it."""
    with temporary_folder("inductor") as folder:
        path = Path(folder, _NAME)
        try:
            compiled.save(path=str(path), format="binary")
        except (RuntimeError, AssertionError, OSError):
            return b""
        return path.read_bytes()


def from_bytes(data: bytes) -> Any:
    """Return the compiled graph. This unpickles, and so may run code: the data must be trusted.

    Raises:
        TargetError: the data was written by another version of torch.
    """
    from torchport.torch_private import CompiledArtifact

    with temporary_folder("inductor") as folder:
        path = Path(folder, _NAME)
        path.write_bytes(data)
        try:
            with private_cache():
                return CompiledArtifact.load(path=str(path), format="binary")
        except Exception as error:  # a cache written by another torch may make it raise anything
            raise TargetError(f"inductor cannot load its compiled form: {one_line(error)}") from error
