"""Handles reads of a tensor's values by Python: if they depend on the inputs, they are refused or guarded."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import torch
from torch import fx

from torchport.capture.calls.fake_calls import FakeCalls, RealCalls
from torchport.capture.calls.function_kinds import Described
from torchport.capture.calls.graph_functions import hold
from torchport.capture.calls.recorder import Recorder
from torchport.capture.user_frames import line_of, user_frame
from torchport.errors import CaptureError

OnDataDependent: TypeAlias = Literal["error", "specialize"]

AUGMENTED_OPERATORS = frozenset(
    {operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ior, operator.iand}
)
# Ops whose results differ from run to run.
_RANDOM = frozenset(
    "rand randn randint rand_like randn_like randint_like randperm bernoulli bernoulli_ normal normal_ "
    "uniform_ dropout multinomial poisson exponential_ random_ dropout2d alpha_dropout empty empty_like "
    "empty_strided new_empty".split()
)


class ValueReads:
    """Handles every read of a tensor's values.

    Args:
        recorder: records the graph.
        calls: runs the functions that the model calls.
        policy: whether to refuse (`error`) or guard (`specialize`) reads that depend on the inputs.
        name: the model's name in messages.
        on_refusal: called when a read is refused.
    """

    def __init__(
        self,
        recorder: Recorder,
        calls: FakeCalls | RealCalls,
        policy: OnDataDependent,
        name: str,
        on_refusal: Callable[[], None],
    ) -> None:
        self._recorder = recorder
        self._calls = calls
        self._policy = policy
        self._name = name
        self._on_refusal = on_refusal
        self._weights_read: dict[str, str] = {}

    def read(
        self,
        func: Callable[..., object],
        described: Described,
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> object:
        """Return what was read, recording a guard if it depends on the inputs.

        Raises:
            CaptureError: it depends on the inputs, and the policy is `error` or the tensors are fake.
        """
        known = self._known(args)
        line = line_of(user_frame(self._recorder.outermost))
        if known is not None:
            self._note_weights(args, line)
            return func(*known, **kwargs)
        if self._policy == "error" or isinstance(self._calls, FakeCalls):
            raise self.refusal(described.name.strip("_"), line)
        value: Any = func(*args, **kwargs)
        expected = value if not hasattr(value, "__array__") else value.tolist()
        name = "tolist" if described.name in ("numpy", "__array__") else described.name
        node = self._recorder.record(Described(described.kind, *_spelled(name)), args, kwargs, value)
        check = self._recorder.graph.call_function(hold, (node, expected, _short(line)))
        self._recorder.describe(check, None, user_frame(self._recorder.outermost))
        return value

    def refusal(self, what: str, line: str) -> CaptureError:
        """Return the error for a refused read, with the source line that made it."""
        self._on_refusal()
        return CaptureError(
            f"the model's control flow depends on the values of a tensor ({what})",
            where=f"{self._name}, {line}" if line else self._name,
            remedy='write it with torch.where or torch.cond, or pass on_data_dependent="specialize" to keep '
            "this path with a guard",
        )

    def check_written(self) -> None:
        """Refuse a model that reads the values of a buffer that it also writes: they change between calls.

        Raises:
            CaptureError: the model reads and writes the same buffer.
        """
        for node in self._recorder.graph.nodes:
            name = str(getattr(node.target, "__name__", node.target))
            writes = node.op in ("call_method", "call_function") and (
                name.endswith("_") or name == "setitem" or node.target in AUGMENTED_OPERATORS
            )
            written = node.args[0] if writes and node.args else None
            if isinstance(written, fx.Node) and written.op == "get_attr":
                line = self._weights_read.get(str(written.target))
                if line is not None:
                    raise self.refusal(f"the buffer {written.target}, which it updates", line)

    def _note_weights(self, args: tuple[object, ...], line: str) -> None:
        for arg in args:
            if isinstance(arg, torch.Tensor):
                node = self._recorder.tensors.node_of(arg, self._recorder.call)
                for part in _ancestors(node):
                    if part.op == "get_attr":
                        self._weights_read[str(part.target)] = line

    def _known(self, args: tuple[object, ...]) -> tuple[object, ...] | None:
        """Return the arguments with tensors replaced by their values; None if one depends on an input."""
        known: list[object] = []
        for arg in args:
            if isinstance(arg, torch.Tensor) and self._recorder.tensors.is_known(arg):
                node = self._recorder.tensors.node_of(arg, self._recorder.call)
                value = known_value(node)
                if value is None:
                    return None
                known.append(value)
            else:
                known.append(arg)
        return tuple(known)


def _spelled(name: str) -> tuple[Callable[..., object] | str, str]:
    builtins: dict[str, Callable[..., object]] = {
        "__bool__": bool,
        "__int__": int,
        "__float__": float,
        "__index__": int,
        "__complex__": complex,
        "equal": torch.equal,
        "allclose": torch.allclose,
        "is_nonzero": bool,
    }
    return builtins.get(name, name), name


def _short(line: str) -> str:
    return line.replace("\\", "/").rsplit("/", 1)[-1]


def known_value(node: fx.Node) -> torch.Tensor | None:
    """Return a node's value if it depends neither on inputs nor on random numbers; else None."""
    needed = _ancestors(node)
    for part in needed:
        name = str(getattr(part.target, "__name__", part.target))
        if part.op in ("placeholder", "call_module") or name in _RANDOM or name.endswith("_"):
            return None
        if part.op == "get_attr" and part.meta["val"].is_meta:
            return None
    values: dict[fx.Node, object] = {}
    with torch.no_grad():
        for part in sorted(needed):
            values[part] = _compute(part, values)
    result = values[node]
    return result if isinstance(result, torch.Tensor) else None


def _ancestors(node: fx.Node) -> set[fx.Node]:
    found: set[fx.Node] = set()
    waiting = [node]
    while waiting:
        part = waiting.pop()
        if part not in found:
            found.add(part)
            waiting += part.all_input_nodes
    return found


def _compute(node: fx.Node, values: dict[fx.Node, object]) -> object:
    if node.op == "get_attr":
        return node.meta["val"]
    look_up: Any = values.__getitem__
    args: Any = fx.node.map_arg(node.args, look_up)
    kwargs: Any = fx.node.map_arg(node.kwargs, look_up)
    if callable(node.target):
        return node.target(*args, **kwargs)
    return getattr(args[0], str(node.target))(*args[1:], **kwargs)
