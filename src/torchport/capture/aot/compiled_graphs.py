"""A torch.compile backend that records the graphs AOTAutograd passes to it, and runs them eagerly."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import fx

from torchport.capture.aot.aten_graph import AtenGraph, Direction

Recorder = Callable[[AtenGraph], None]
Backend = Callable[[fx.GraphModule, Sequence[object]], Callable[..., object]]


def recording_backend(record: Recorder) -> Backend:
    """Return a backend that passes each graph, forward and backward, to `record` when it is compiled.

    A backward graph is compiled when it first runs. The compiled graphs run their ops in eager torch.

    Example:
        >>> graphs = []
        >>> compiled = torch.compile(torch.nn.ReLU(), backend=recording_backend(graphs.append))
        >>> compiled(torch.ones(2)), len(graphs)
        (tensor([1., 1.]), 1)
    """
    # Imported here, since the import takes seconds.
    from torchport.torch_private import aot_autograd, make_boxed_func

    def compile_as(direction: Direction) -> Callable[..., Callable[..., object]]:
        def compile_graph(graph_module: fx.GraphModule, _: Sequence[object]) -> Callable[..., object]:
            record(AtenGraph(direction, graph_module))
            return make_boxed_func(graph_module.forward)

        return compile_graph

    backend: Backend = aot_autograd(fw_compiler=compile_as("fw"), bw_compiler=compile_as("bw"))
    return backend
