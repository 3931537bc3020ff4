"""Compiles one of Dynamo's graphs for inference, without gradients and with frozen weights, on first call."""

from __future__ import annotations

import logging
import operator
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx, nn

from torchport import capture
from torchport.compiler.build import Source, build_program
from torchport.compiler.graph_programs import MOST_PROGRAMS, GraphKey, graph_key, note_coverage, watched
from torchport.compiler.normalise import NormalGraph, Weight, normalise
from torchport.compiler.open_sizes import NotOpen, find_open_sizes, name_sizes, why_not_open
from torchport.compiler.varying_sizes import Varying, find_varying
from torchport.compiler.weight_sets import WeightSets
from torchport.compiler.weights import WeightGuard, run_with_current_weights
from torchport.errors import CaptureError, one_line
from torchport.generation import is_generating
from torchport.runtime.eager_fallback import NotCompiled
from torchport.runtime.forward_mode import refuse_tangents
from torchport.runtime.input_kind import InputKind
from torchport.runtime.runnable_program import RunnableProgram
from torchport.targets import Options, Target
from torchport.torch_private import FakeTensor, is_static_input

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class _Specialised:
    program: RunnableProgram | str  # or why there is none, and eager torch runs the graph
    guard: WeightGuard
    kind: InputKind | None = None  # the inputs that a program for all sizes takes


@dataclass(slots=True, eq=False)
class _Programs:
    """The programs built for one set of weights: one for each shape, and one for all sizes."""

    by_shape: dict[GraphKey, _Specialised] = field(default_factory=dict)
    open: _Specialised | None = None


class InferenceGraph:
    """Compiles a graph once for all sizes that vary, or for each shape that it is called with.

    It does so for each set of weights that it is called with: layers with the same code share one graph.

    Args:
        graph_module: Dynamo's graph; its weights are inputs that are marked as static.
        target, options: what it is compiled for.
    """

    def __init__(self, graph_module: fx.GraphModule, target: Target, options: Options) -> None:
        self._graph_module = graph_module
        self._target = target
        self._options = options
        self._lock = threading.RLock()
        self._fallback = watched("a graph")
        self._programs = WeightSets(_Programs)
        placeholders = [node for node in graph_module.graph.nodes if node.op == "placeholder"]
        self._fixed = [index for index, node in enumerate(placeholders) if is_static_input(node)]
        self._free = [index for index, node in enumerate(placeholders) if not is_static_input(node)]
        # One program for all sizes, if the target supports it, until it turns out that the graph does not.
        self._varying: Varying | None = None
        self._fixed_because = ""  # although sizes vary
        try:
            self._varying = find_varying(placeholders, self._free)
        except NotOpen as error:
            self._fixed_because = str(error) if target.takes_open_sizes(options) else ""
        self._is_explained = False
        self._is_open = self._varying is not None and target.takes_open_sizes(options)
        self._may_wait = self._varying is None and target.takes_open_sizes(options)

    def __call__(self, *args: object) -> object:
        """Run the graph."""
        if self._may_wait and self._waits():
            why = "generate calls it for the first time, and may call it with other sizes next"
            return self._fallback.run_eagerly(why, lambda: self._graph_module(*args))
        return self._fallback.run(lambda: self._run(args), lambda: self._graph_module(*args))

    def _waits(self) -> bool:
        """Whether to build nothing for this call, the first one.

        Sizes that change from call to call are open only in Dynamo's second graph, so a program built for the
        first one would be used once. In the loop of `generate`, sizes usually change.
        """
        with self._lock:
            waits, self._may_wait = self._may_wait, False
        return waits and is_generating()

    def _run(self, args: tuple[object, ...]) -> object:
        refuse_tangents(item for item in args if isinstance(item, torch.Tensor))  # including weights
        leaves = [value for index in self._free if isinstance(value := args[index], torch.Tensor)]
        programs = self._programs.find([args[index] for index in self._fixed])
        if programs is None:
            raise NotCompiled("the graph was called with too many different sets of weights")

        def run(found: _Specialised) -> object:
            if isinstance(found.program, str):
                raise NotCompiled(found.program)
            return found.program.run(leaves, (), found.guard.check)

        def rebuild(found: _Specialised) -> _Specialised:
            self._forget(programs, found)
            return self._find(programs, leaves, args)

        return run_with_current_weights(self._find(programs, leaves, args), run, rebuild)

    def _find(
        self, programs: _Programs, leaves: list[torch.Tensor], args: tuple[object, ...]
    ) -> _Specialised:
        """Return the program for a call's inputs; it is built on first use."""
        found = self._find_open(programs, leaves, args) if self._is_open else None
        if found is None:
            key = graph_key([args[index] for index in self._free])
            found = programs.by_shape.get(key) or self._find_or_build(programs, key, args)
        return found

    def _forget(self, programs: _Programs, found: _Specialised) -> None:
        """Drop a program whose weights changed, unless another thread replaced it already."""
        with self._lock:
            if programs.open is found:
                programs.open = None
            for key in [key for key, each in programs.by_shape.items() if each is found]:
                del programs.by_shape[key]

    def _find_open(
        self, programs: _Programs, leaves: list[torch.Tensor], args: tuple[object, ...]
    ) -> _Specialised | None:
        """Return the program for all sizes, if it takes these; it is built on first use."""
        found = programs.open
        if found is None:
            with self._lock:
                found = programs.open
                if found is None:
                    found = programs.open = self._build_open(args)
        if found is None or found.kind is None or not found.kind.fits_leaves(leaves):
            return None
        return found

    def _build_open(self, args: tuple[object, ...]) -> _Specialised | None:
        """Return a program for all sizes; None, now and later, if that fails."""
        if any(isinstance(item, FakeTensor) for item in args):
            raise NotCompiled("an input has no values")
        assert self._varying is not None
        try:
            return self._build_program(args, self._varying)
        except Exception as error:  # noqa: BLE001  # whatever it is, each size can still be compiled for
            _log.warning("a graph: each size is compiled separately: %s", why_not_open(error))
            self._is_open = False
            return None

    def _explain_another(self, programs: _Programs, args: tuple[object, ...]) -> None:
        """Log once why a graph of which sizes vary is compiled for another size."""
        reason = self._fixed_because
        if programs.open is not None and programs.open.kind is not None:
            leaves = [value for index in self._free if isinstance(value := args[index], torch.Tensor)]
            names = [f"its tensor {place}" for place in range(len(leaves))]
            reason = programs.open.kind.why_not_leaves(leaves, names)
        if reason and programs.by_shape and not self._is_explained:
            self._is_explained = True
            _log.warning("a graph: each size is compiled separately: %s", reason)

    def _find_or_build(self, programs: _Programs, key: GraphKey, args: tuple[object, ...]) -> _Specialised:
        """Return the program for a shape, built now unless another thread was faster."""
        with self._lock:
            found = programs.by_shape.get(key)
            if found is None:
                found = programs.by_shape[key] = self._build(programs, args)
            return found

    def _build(self, programs: _Programs, args: tuple[object, ...]) -> _Specialised:
        if any(isinstance(item, FakeTensor) for item in args):
            raise NotCompiled("an input has no values")  # not remembered: the next call's may have some
        if len(programs.by_shape) >= MOST_PROGRAMS:
            raise NotCompiled(f"the graph was called with more than {MOST_PROGRAMS} shapes")
        self._explain_another(programs, args)
        try:
            return self._build_program(args, None)
        except Exception as error:  # noqa: BLE001  # whatever it is, eager torch can run the graph
            # Without a capture's remedy, which is to use this backend.
            why = error.what if isinstance(error, CaptureError) else one_line(error)
            return _Specialised(f"the graph cannot be compiled: {why}", WeightGuard([]))

    def capture_for(self, args: tuple[object, ...], varying: Varying | None = None) -> capture.CapturedModel:
        """Capture the graph with its weights and numbers bound, ready to be built.

        Args:
            args: the arguments of a call.
            varying: the sizes that stay open.
        """
        bound = _Bound(self._graph_module, self._fixed, args, {} if varying is None else varying.numbers)
        leaves = tuple(args[index] for index in self._free if isinstance(args[index], torch.Tensor))
        dims = None if varying is None else varying.dynamic_shapes
        return capture.export(bound, leaves, name="graph", dynamic_shapes=dims)

    def _build_program(self, args: tuple[object, ...], varying: Varying | None) -> _Specialised:
        captured = self.capture_for(args, varying)
        sizes = None if varying is None else find_open_sizes(captured)
        graph = normalise(captured, self._target)
        if sizes is not None:
            name_sizes(graph, sizes)
        written = {str(node.target) for node in graph.writes if node.op == "get_attr"}
        frozen = {name: weight for name, weight in graph.weights.items() if name not in written}
        weights = {id(args[index]) for index in self._fixed}
        # Before any value is read: another thread may change a weight meanwhile.
        guard = WeightGuard([] if self._options.frozen else frozen.values(), followed=weights)
        _release(graph, {name: weight for name, weight in frozen.items() if id(weight.tensor) in weights})
        source = Source("graph", graph, captured.leaves, captured.inputs.paths, captured.result, sizes)
        program, plan = build_program(source, self._target, self._options)
        note_coverage(plan.coverage)
        if sizes is None:
            return _Specialised(program, guard)
        shapes = [spec.shape for spec in program.record.inputs.values()]
        kind = InputKind.of(captured.inputs, captured.leaves)
        kind = kind.with_open_sizes(shapes, [*sizes.guards, *sizes.unproved])
        return _Specialised(program, guard, kind)


def _release(graph: NormalGraph, weights: Mapping[str, Weight]) -> None:
    """Replace a graph's weights by other tensors with the same memory, so that their owner can free them."""
    for name, weight in weights.items():
        tensor = weight.tensor
        if type(tensor) is nn.Parameter:
            same: torch.Tensor = nn.Parameter(tensor.detach(), requires_grad=tensor.requires_grad)
        elif type(tensor) is torch.Tensor:
            same = tensor.detach()
        else:
            continue
        graph.weights[name] = replace(weight, tensor=same)
        graph.graph_module.register_buffer(name, same, persistent=False)


class _Bound(nn.Module):
    """Dynamo's graph with its weights and numbers bound; only the input tensors remain as arguments."""

    def __init__(
        self,
        graph_module: fx.GraphModule,
        fixed: list[int],
        args: tuple[object, ...],
        sizes: Mapping[int, tuple[int, int]],
    ) -> None:
        super().__init__()
        # By argument index, the numbers that are sizes: of which tensor, in which dimension.
        self._sizes = sizes
        self._graph = [graph_module]  # in a list, so that its attributes are not weights of this module
        self._args = [None if isinstance(value, torch.Tensor) else value for value in args]
        self._free = [
            index
            for index, value in enumerate(args)
            if isinstance(value, torch.Tensor) and index not in fixed
        ]
        self._weights = {index: f"weight_{index}" for index in fixed if isinstance(args[index], torch.Tensor)}
        for index, name in self._weights.items():
            self._hold(name, args[index])
        self._held = _tensors_held(graph_module)  # such as an optimizer's
        for name, key in self._held.items():
            self._hold(key, operator.attrgetter(name)(graph_module))

    def _hold(self, name: str, value: Any) -> None:
        if isinstance(value, nn.Parameter):
            self.register_parameter(name, value)
        else:
            self.register_buffer(name, value)

    def forward(self, *leaves: torch.Tensor) -> object:
        """Run the graph node by node, so that every node keeps its source location."""
        args = list(self._args)
        for index, name in self._weights.items():
            args[index] = getattr(self, name)
        for index, leaf in zip(self._free, leaves, strict=True):
            args[index] = leaf
        for index, (leaf_place, dim) in self._sizes.items():
            args[index] = leaves[leaf_place].shape[dim]
        return _BoundInterpreter(
            self._graph[0], {n: getattr(self, key) for n, key in self._held.items()}
        ).run(*args)


class _BoundInterpreter(fx.Interpreter):
    """Runs a graph with its own tensors replaced: by fake tensors, while it is captured.

    Args:
        graph_module: the graph.
        tensors: the replacement of each tensor that it holds.
    """

    def __init__(self, graph_module: fx.GraphModule, tensors: Mapping[str, torch.Tensor]) -> None:
        super().__init__(graph_module)
        self._tensors = tensors

    def fetch_attr(self, target: str) -> object:
        """Return the value of a `get_attr` node."""
        return self._tensors[target] if target in self._tensors else super().fetch_attr(target)


def _tensors_held(graph_module: fx.GraphModule) -> dict[str, str]:
    """Return the names of the tensors that a graph holds itself, mapped to names without dots."""
    names = {str(node.target) for node in graph_module.graph.nodes if node.op == "get_attr"}
    held = [
        name for name in sorted(names) if isinstance(operator.attrgetter(name)(graph_module), torch.Tensor)
    ]
    return {name: f"held_{index}" for index, name in enumerate(held)}
