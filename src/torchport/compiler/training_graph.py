"""Compiles one of Dynamo's graphs through AOTAutograd: a forward and a backward graph, each with islands."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import CheckpointPolicy

from torchport.capture.untouched import torch_as_it_was
from torchport.compiler.build import Source, build_program
from torchport.compiler.graph_programs import MOST_PROGRAMS, GraphKey, graph_key, note_coverage, watched
from torchport.compiler.normalise import NormalGraph, Weight, remove_no_ops
from torchport.errors import one_line
from torchport.runtime.eager_fallback import NotCompiled
from torchport.runtime.runnable_program import RunnableProgram
from torchport.structure import Structure
from torchport.structure.nodes import Leaf, Tuple
from torchport.targets import Options, Target
from torchport.targets.node_checks import is_random
from torchport.torch_private import (
    FakeTensor,
    FakeTensorMode,
    OpOverload,
    RestartAnalysis,
    aot_autograd,
    aot_eager,
    compiling,
    functorch_depth,
    make_boxed_func,
    min_cut_partition,
    partition_config,
    pop_functorch_levels,
)

_MASKS = frozenset(f"aten.{name}.Scalar" for name in ("eq", "ne", "lt", "le", "gt", "ge"))


def compile_training(
    graph_module: fx.GraphModule, example_inputs: Sequence[object], target: Target, options: Options
) -> Callable[..., object]:
    """Compile a graph for training.

    Weights are inputs here, since they change with every step. What the target cannot build runs with eager
    torch; if AOTAutograd cannot trace the graph with the target's decompositions, all of it runs with the
    `aot_eager` backend.
    """

    def compile_one(graph: fx.GraphModule, inputs: Sequence[object]) -> Callable[..., object]:
        return make_boxed_func(_AtenGraph(graph, target, options))

    compiler = aot_autograd(
        fw_compiler=compile_one,
        bw_compiler=compile_one,
        decompositions=dict(target.training_decompositions()),
        partition_fn=partition_for(target),
    )
    levels = functorch_depth()
    try:
        return compiler(graph_module, example_inputs)
    except RestartAnalysis:
        raise  # Dynamo retraces, with a number fixed that it took for a symbol
    except Exception as error:  # noqa: BLE001  # if it is the model's own, aot_eager raises it too
        problem = f"AOTAutograd cannot trace the graph: {one_line(error)}"
        # The functorch levels that the graph pushed before it failed would make every later call fail.
        pop_functorch_levels(levels)
    eager = aot_eager(graph_module, list(example_inputs))  # type: ignore[arg-type]  # as Dynamo gives them
    fallback = watched("a training graph")
    return lambda *args: fallback.run_eagerly(problem, lambda: eager(*args))


def partition_for(target: Target) -> Callable[..., object]:
    """Return the function that partitions a joint graph into forward and backward, for AOTAutograd."""
    if not target.recomputes_in_training:
        return min_cut_partition

    def partition(joint: fx.GraphModule, inputs: Sequence[object], **settings: Any) -> object:
        for node in filter(_is_mask, joint.graph.nodes):
            # A comparison of nearly equal numbers may flip on a device, and the two passes would disagree.
            node.meta.setdefault("recompute", CheckpointPolicy.PREFER_RECOMPUTE)
            node.meta.setdefault("ac_graph_id", 0)
        for node in filter(is_random, joint.graph.nodes):  # torch keeps the results of some of them
            node.meta.setdefault("recompute", CheckpointPolicy.MUST_SAVE)
            node.meta.setdefault("ac_graph_id", 0)
        # Otherwise, the operands of products would be saved from the forward pass: for a window of nine
        # elements, nine parts of an image instead of the image. All saved tensors cross to the host and back.
        with partition_config.patch(aggressive_recomputation=True):
            return min_cut_partition(joint, inputs, **settings)

    return partition


def _is_mask(node: fx.Node) -> bool:
    """Whether a node compares floats with a number, as the gradient of `relu` does.

    torch always saves the results of some other comparisons: of those whose results are much smaller than
    their inputs, such as comparisons of wide integers.
    """
    if node.op != "call_function" or str(node.target) not in _MASKS:
        return False
    source = node.all_input_nodes[0].meta.get("val") if node.all_input_nodes else None
    return isinstance(source, torch.Tensor) and source.is_floating_point() and source.element_size() <= 4


class _AtenGraph:
    """A functional ATen graph, built when it is first called: only then are there values to try it on.

    Args:
        graph_module: the graph; its sizes may be symbolic, and some of its inputs are then numbers.
        target, options: what it is compiled for.
    """

    def __init__(self, graph_module: fx.GraphModule, target: Target, options: Options) -> None:
        self._graph_module = graph_module
        self._target = target
        self._options = options
        self._lock = threading.Lock()
        self._fallback = watched("a training graph")
        # A program, or why there is none.
        self._programs: dict[GraphKey, RunnableProgram | str] = {}
        self._static = _is_static(graph_module)

    def __call__(self, *args: object) -> object:
        """Run the graph."""
        return self._fallback.run(lambda: self._run(args), lambda: self._graph_module(*args))

    def _run(self, args: tuple[object, ...]) -> object:
        key = () if self._static else graph_key(args)
        program = self._programs.get(key)
        if program is None:
            with self._lock:
                program = self._programs.get(key)
                if program is None:
                    program = self._programs[key] = self._build(args)
        if isinstance(program, str):
            raise NotCompiled(program)
        return program.run([item for item in args if isinstance(item, torch.Tensor)])

    def _build(self, args: tuple[object, ...]) -> RunnableProgram | str:
        if any(isinstance(item, FakeTensor) for item in args):
            raise NotCompiled("an input has no values")  # not remembered: the next call's may have some
        if len(self._programs) >= MOST_PROGRAMS:
            raise NotCompiled(f"the graph was called with more than {MOST_PROGRAMS} shapes")
        try:
            copy = _copied(self._graph_module) if self._static else _specialised(self._graph_module, args)
            graph = _normalised(copy)
            result = Structure(Tuple(tuple(Leaf(index) for index in range(len(graph.returned)))), ())
            names = tuple(node.name for node in copy.graph.nodes if node.op == "placeholder")
            leaves = tuple(item for item in args if isinstance(item, torch.Tensor))
            source = Source("training graph", graph, leaves, names, result)
            program, plan = build_program(source, self._target, self._options)
            note_coverage(plan.coverage)
            return program
        except Exception as error:  # noqa: BLE001  # whatever it is, eager torch can run the graph
            return f"the graph cannot be compiled: {one_line(error)}"


def normal_graph(graph_module: fx.GraphModule) -> NormalGraph:
    """Return the normalized graph of a forward or backward graph with fixed sizes."""
    return _normalised(_copied(graph_module))


def _normalised(copy: fx.GraphModule) -> NormalGraph:
    _refuse_writes(copy)
    remove_no_ops(copy)
    return NormalGraph(copy, _constants(copy), ())


def _is_static(graph_module: fx.GraphModule) -> bool:
    """Whether all sizes in a graph are fixed, and all its inputs are tensors."""
    for node in graph_module.graph.nodes:
        value = node.meta.get("val")
        if node.op == "placeholder" and not isinstance(value, torch.Tensor):
            return False
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(item, torch.Tensor) and any(not isinstance(size, int) for size in item.shape):
                return False
    return True


def _copied(graph_module: fx.GraphModule) -> fx.GraphModule:
    """Return a copy of a graph with its constants, since building modifies the graph."""
    graph = fx.Graph()
    graph.output(graph.graph_copy(graph_module.graph, {}))
    return fx.GraphModule(graph_module, graph)


def _specialised(graph_module: fx.GraphModule, args: Sequence[object]) -> fx.GraphModule:
    """Retrace a graph for inputs of these shapes, with its numbers bound; only tensors remain as inputs."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    places = [index for index, item in enumerate(args) if isinstance(item, torch.Tensor)]

    def run(*tensors: torch.Tensor) -> object:
        bound = list(args)
        for index, tensor in zip(places, tensors, strict=True):
            bound[index] = tensor
        return fx.Interpreter(graph_module).run(*bound)

    fakes = [mode.from_tensor(args[index], static_shapes=True) for index in places]  # type: ignore[arg-type]  # filtered above
    # `compiling`, as while torch.compile traces: or a graph that another thread calls meanwhile would raise.
    with torch_as_it_was(), compiling(), mode, torch.no_grad(), torch.fx.traceback.preserve_node_meta():
        return make_fx(run)(*fakes)


def _refuse_writes(graph_module: fx.GraphModule) -> None:
    """Refuse a graph that writes in place: islands and host ops may be reordered."""
    for node in graph_module.graph.nodes:
        if isinstance(node.target, OpOverload) and node.target._schema.is_mutable:
            raise NotCompiled(f"{node.target} writes in place")


def _constants(graph_module: fx.GraphModule) -> dict[str, Weight]:
    """Return the constants that AOTAutograd lifted into a graph, such as those of `torch.tensor(1.0)`."""
    named = {str(node.target) for node in graph_module.graph.nodes if node.op == "get_attr"}
    held = {name: getattr(graph_module, name, None) for name in named}
    return {name: Weight(name, value) for name, value in held.items() if isinstance(value, torch.Tensor)}
