"""A graph of Dynamo's that wants no gradients: compiled with its weights frozen, when it is called."""

from __future__ import annotations

import logging
import operator
import threading
from dataclasses import dataclass

import torch
from torch import fx, nn

from torchport import capture
from torchport.compiler.build import Source, build_program
from torchport.compiler.normalise import normalise
from torchport.compiler.weights import Changed, WeightGuard
from torchport.errors import TorchportError
from torchport.runtime.input_kind import LeafKey, key_of
from torchport.runtime.program import Program
from torchport.targets import Options, Target
from torchport.targets.target import OutOfRange

_log = logging.getLogger(__name__)

# Beyond this many shapes of one graph, each call would pay for a compilation that is used once.
_MOST_PROGRAMS = 8

Key = tuple["LeafKey | int | float | bool | None", ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Specialised:
    program: Program | None  # None: this graph cannot be compiled, and runs with eager torch
    guard: WeightGuard
    weights: list[object]


class InferenceGraph:
    """Compiles a graph for each shape that it is called with.

    Args:
        graph_module: Dynamo's graph; its weights are inputs that are marked as static.
        target, options: what it is compiled for.
    """

    def __init__(self, graph_module: fx.GraphModule, target: Target, options: Options) -> None:
        self._graph_module = graph_module
        self._target = target
        self._options = options
        self._lock = threading.RLock()
        self._programs: dict[Key, _Specialised] = {}
        placeholders = [node for node in graph_module.graph.nodes if node.op == "placeholder"]
        self._fixed = [index for index, node in enumerate(placeholders) if _is_weight(node)]
        # Two at least, so that it gives a tuple.
        self._get_fixed = operator.itemgetter(*self._fixed, *[0] * (2 - len(self._fixed)))
        self._free = [index for index, node in enumerate(placeholders) if not _is_weight(node)]

    def __call__(self, *args: object) -> object:
        """Run the graph."""
        key: Key = tuple([_key(args[index]) for index in self._free])
        found = self._programs.get(key)
        if found is None or not self._has_weights(found, args):
            found = self._renew(key, args)
        if found.program is None:
            return self._graph_module(*args)
        leaves = [args[index] for index in self._free if isinstance(args[index], torch.Tensor)]
        try:
            return found.program.run(leaves, (), found.guard.check)  # type: ignore[arg-type]  # filtered above
        except Changed:
            self._renew(key, args)
            return self(*args)
        except OutOfRange as reason:
            _log.info("this call runs with eager torch: %s", reason)
        except Exception as error:  # noqa: BLE001  # eager torch gives the right answer, or the right error
            _log.warning("this call runs with eager torch: %s", error)
        # Nothing was written yet: a program writes buffers and inputs at its very end.
        return self._graph_module(*args)

    def _renew(self, key: Key, args: tuple[object, ...]) -> _Specialised:
        """Return a program for the weights as they are now, unless another thread was faster a new one."""
        with self._lock:
            found = self._programs.get(key)
            if found is None or not (self._has_weights(found, args) and found.guard.unchanged()):
                found = self._programs[key] = self._build(key, args)
            return found

    def _has_weights(self, found: _Specialised, args: tuple[object, ...]) -> bool:
        return not self._fixed or all(map(operator.is_, found.weights, self._get_fixed(args)))

    def _build(self, key: Key, args: tuple[object, ...]) -> _Specialised:
        weights = [args[index] for index in self._fixed]
        # A shape that is known already is built again: one of its weights changed.
        if key not in self._programs and len(self._programs) >= _MOST_PROGRAMS:
            _log.info("this shape is the %dth of the graph: it runs with eager torch", _MOST_PROGRAMS + 1)
            return _Specialised(None, WeightGuard([]), weights)
        bound = _Bound(self._graph_module, self._fixed, args)
        leaves = tuple(args[index] for index in self._free if isinstance(args[index], torch.Tensor))
        try:
            captured = capture.export(bound, leaves, name="graph")
            graph = normalise(captured, self._target)
            source = Source("graph", graph, captured.leaves, captured.inputs.paths, captured.result)
            program, plan = build_program(source, self._target, self._options)
        except Exception as error:  # noqa: BLE001  # whatever it is, eager torch still gives the answer
            _log.warning(
                "a graph runs with eager torch: %s", error, exc_info=not isinstance(error, TorchportError)
            )
            return _Specialised(None, WeightGuard([]), weights)
        written = {str(node.target) for node in plan.graph.writes if node.op == "get_attr"}
        frozen = [weight for name, weight in plan.graph.weights.items() if name not in written]
        return _Specialised(program, WeightGuard(frozen), weights)


class _Bound(nn.Module):
    """Dynamo's graph with its weights and numbers bound: what is left are the tensors."""

    def __init__(self, graph_module: fx.GraphModule, fixed: list[int], args: tuple[object, ...]) -> None:
        super().__init__()
        self._graph = [graph_module]  # in a list: its own attributes are no weights of this module
        self._args = [None if isinstance(value, torch.Tensor) else value for value in args]
        self._free = [
            index
            for index, value in enumerate(args)
            if isinstance(value, torch.Tensor) and index not in fixed
        ]
        self._weights = {index: f"weight_{index}" for index in fixed if isinstance(args[index], torch.Tensor)}
        for index, name in self._weights.items():
            value = args[index]
            if isinstance(value, nn.Parameter):
                self.register_parameter(name, value)
            else:
                self.register_buffer(name, value)  # type: ignore[arg-type]  # filtered above
        for name, value in graph_module.named_buffers():
            self.register_buffer("graph_" + name.replace(".", "_"), value)

    def forward(self, *leaves: torch.Tensor) -> object:
        """Run the graph node by node, so that every node keeps where it came from."""
        args = list(self._args)
        for index, name in self._weights.items():
            args[index] = getattr(self, name)
        for index, leaf in zip(self._free, leaves, strict=True):
            args[index] = leaf
        return fx.Interpreter(self._graph[0]).run(*args)


def _is_weight(node: fx.Node) -> bool:
    return "_dynamo_static_input_type" in node.meta.get("tensor_dict", {})


def _key(value: object) -> LeafKey | int | float | bool | None:
    if isinstance(value, torch.Tensor):
        return key_of(value)
    return value if isinstance(value, (int, float, bool)) else None
