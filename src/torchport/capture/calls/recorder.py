"""Records a model's calls as a `torch.fx` graph while it runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any, cast

import torch
from torch import fx, nn

from torchport.capture.calls.applied_functions import AppliedFunction, apply_frame, collapse
from torchport.capture.calls.fake_calls import FakeCalls, RealCalls, autocast_state
from torchport.capture.calls.function_kinds import Described, as_operator
from torchport.capture.calls.number_nodes import NumberNodes, Place
from torchport.capture.calls.tensor_nodes import TensorNodes
from torchport.capture.calls.traced_calls import CallListener, TracedCall, named_arguments
from torchport.capture.calls.tracked_numbers import Number, Origin, Tracked, TrackedSize, track
from torchport.capture.user_frames import describe_frame, line_of, local_names, user_frame
from torchport.torch_private import last_node

# Python types used as dtypes, which a graph's generated code cannot contain.
_DTYPES = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}


@dataclass(frozen=True, slots=True)
class SizeComparison:
    """A comparison of sizes that the model made, and the answer that the graph is valid for.

    Args:
        target: the comparison operator.
        args: its operands: tracked numbers and constants.
        answer: its result.
        place: where in the run it was made.
        line: the user's source line.
    """

    target: Callable[..., object]
    args: tuple[object, ...]
    answer: bool
    place: Place
    line: str


@dataclass(frozen=True, slots=True)
class Modes:
    """The torch modes in which a node ran.

    Args:
        grad: whether grad mode was enabled.
        autocast: the devices for which autocast was on, each with its dtype.
    """

    grad: bool
    autocast: tuple[tuple[str, torch.dtype], ...]


def current_modes() -> Modes:
    """Return torch's current modes."""
    return Modes(torch.is_grad_enabled(), autocast_state())


class Recorder(CallListener):
    """Turns a model's calls into nodes.

    Args:
        model: the model.
        calls: runs the functions that the model calls.
        whole: the modules whose calls are recorded as single nodes.
        outermost: the frame that bounds the model's code.
    """

    def __init__(
        self,
        model: nn.Module,
        calls: FakeCalls | RealCalls,
        whole: set[nn.Module],
        outermost: FrameType,
    ) -> None:
        self.calls = calls
        self.graph = fx.Graph()
        self.active = True
        self.comparisons: list[SizeComparison] = []
        self.sizes_were_read = False
        self.applied: dict[int, AppliedFunction] = {}
        self.inside_leaf = False
        self.inside_function = False
        self.outermost = outermost
        name = type(model).__name__
        self.call = TracedCall("", name, None, stack={"": ("", name)}, modes=current_modes())
        self.tensors = TensorNodes(self.graph, model)
        self.numbers = NumberNodes(self.graph, lambda value: self.symbolic(value, None))
        self._whole = whole
        self._entered: list[
            tuple[tuple[fx.node.Argument, ...], dict[str, fx.node.Argument], FrameType | None]
        ]
        self._entered = []
        self._dtypes: dict[torch.dtype, tuple[FrameType, int, torch.Tensor]] = {}

    def record(
        self, described: Described, args: tuple[object, ...], kwargs: dict[str, object], result: object
    ) -> fx.Node:
        """Add a call to the graph, and register its result."""
        frame = user_frame(self.outermost)
        described = as_operator(described, args, kwargs)
        with_name = (*args[:1], *described.name_of_property, *args[1:])
        symbolic = tuple(self.symbolic(arg, frame) for arg in with_name)
        if described.swapped:
            symbolic = (symbolic[1], symbolic[0], *symbolic[2:])
        named = {key: self.symbolic(value, frame) for key, value in kwargs.items()}
        if isinstance(described.target, str):
            node = self.graph.call_method(described.target, symbolic, named)
        else:
            node = self.graph.call_function(described.target, symbolic, named)
        self.describe(node, result, frame)
        self._note_applied(node, frame)
        return node

    def _note_applied(self, node: fx.Node, frame: FrameType | None) -> None:
        """Register a node that belongs to a custom autograd function."""
        outer = apply_frame(frame, self.outermost)
        if outer is None:
            return
        if id(outer) not in self.applied:
            args = tuple(self.symbolic(arg, None) for arg in outer.f_locals["args"])
            self.applied[id(outer)] = AppliedFunction(outer, outer.f_locals["cls"], args)
        self.applied[id(outer)].nodes.append(node)

    def finish(self) -> None:
        """Collapse each custom autograd function into a single node."""
        for applied in self.applied.values():
            replaced = collapse(self.graph, applied)
            if replaced is not None:
                self.tensors.replace(*replaced)
        self.applied = {}

    @contextlib.contextmanager
    def as_one(self) -> Iterator[None]:
        """Treat everything that runs inside as one call, without recording its parts."""
        before, self.inside_function = self.inside_function, True
        try:
            yield
        finally:
            self.inside_function = before

    def describe(self, node: fx.Node, result: object, frame: FrameType | None) -> None:
        """Set a node's metadata, and register the tensors in its result."""
        node.meta["module_call"] = self.call
        node.meta["nn_module_stack"] = self.call.stack
        node.meta["stack_trace"] = describe_frame(frame)
        node.meta["modes"] = current_modes()
        node.meta["val"] = result
        self.tensors.register(result, node)

    def enter(
        self, path: str, module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> None:
        """Record the beginning of a module call."""
        if not self.active or self.inside_leaf or not path:
            return
        frame = user_frame(self.outermost)
        if module in self._whole:
            symbolic = tuple(self.symbolic(arg, frame) for arg in args)
            self._entered.append((symbolic, {k: self.symbolic(v, frame) for k, v in kwargs.items()}, frame))
            self.inside_leaf = True
            return
        stack = {**self.call.stack, path: (path, type(module).__name__)}
        call = TracedCall(path, type(module).__name__, self.call, stack=stack, modes=current_modes())
        for name, value in named_arguments(type(module).forward, (module, *args), kwargs):
            if isinstance(value, (torch.Tensor, *Tracked)):
                call.inputs.append((name, self.node_of(value, frame)))
        self.call = call

    def leave(self, path: str, module: nn.Module, result: object) -> object:
        """Record the end of a module call; a result that is an argument is replaced by a distinct object."""
        if not self.active or not path:
            return None
        if self.inside_leaf:
            self.inside_leaf = False
            args, kwargs, frame = self._entered.pop()
            if isinstance(result, torch.Tensor) and self.tensors.is_known(result):
                in_place = getattr(module, "inplace", False)
                result = result if in_place else self.calls.apart(result, [result])
            self.describe(self.graph.call_module(path, args, kwargs), result, frame)
            return result
        if self.call.parent is not None:
            self.call = self.call.parent
        return None

    def symbolic(self, value: Any, frame: FrameType | None) -> fx.node.Argument:
        """Return an argument with its tensors and tracked numbers replaced by nodes."""
        if isinstance(value, (torch.Tensor, *Tracked)):
            return self.node_of(value, frame)
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, torch.device):
            holder = self.tensors.devices.get(id(value))
            return value if holder is None else self._property(holder[1], "device", frame)
        if isinstance(value, torch.dtype):
            tensor = self._dtype_origin(value, frame)
            return value if tensor is None else self._property(tensor, "dtype", frame)
        if isinstance(value, slice):
            return slice(*(self.symbolic(part, frame) for part in (value.start, value.stop, value.step)))
        if isinstance(value, (list, tuple)):
            items = [self.symbolic(item, frame) for item in value]
            if hasattr(value, "_fields"):
                node = self.graph.call_function(type(value), tuple(items))
                self.describe(node, value, frame)
                return node
            return items if isinstance(value, list) else tuple(items)
        if isinstance(value, dict):
            return {key: self.symbolic(item, frame) for key, item in value.items()}
        if isinstance(value, type) and value in _DTYPES:
            return _DTYPES[value]
        return cast(fx.node.Argument, value)

    def node_of(self, value: torch.Tensor | Number, frame: FrameType | None) -> fx.Node:
        """Return the node that a tensor or tracked number comes from, and record the user's name for it."""
        if isinstance(value, torch.Tensor):
            node = self.tensors.node_of(value, self.call)
        else:
            assert isinstance(value, Tracked)
            self._name_parts(value, frame)
            node = self.numbers.node_of(value)
        if frame is not None and node.op != "get_attr" and node not in self.call.names:
            name = local_names(frame).get(id(value))
            if name:
                self.call.names[node] = name
        return node

    def _name_parts(self, number: object, frame: FrameType | None) -> None:
        """Record the user's names for the numbers that a number was computed from."""
        if not isinstance(number, Tracked) or number.origin.node is not None:
            return
        for arg in number.origin.args:
            if isinstance(arg, Tracked):
                self.node_of(arg, frame)

    def here(self) -> Place:
        """Return the current place in the run: after the last recorded node."""
        self.sizes_were_read = True
        return Place(last_node(self.graph), self.call)

    def start_after(self, node: fx.Node) -> Place:
        """Return the place after all inputs, including the nodes that extract tensors from arguments."""
        inputs = [part for part in self.graph.nodes if part.meta.get("input")]
        return Place(inputs[-1] if inputs else node, node.meta["module_call"])

    def sizes(self, tensor: torch.Tensor) -> TrackedSize:
        """Return a tensor's shape as tracked numbers."""
        sizes: Any = (self.number(size, "size", tensor, dim) for dim, size in enumerate(tensor.shape))
        return TrackedSize(sizes)

    def number(self, value: Number, target: Callable[..., object] | str, *args: object) -> Number:
        """Return a tracked number whose origin is `target(*args)`."""
        return track(value, Origin(target, args), self)

    def note_comparison(self, target: Callable[..., object], args: tuple[object, ...], answer: bool) -> None:
        """Record a comparison of sizes."""
        line = line_of(user_frame(self.outermost))
        self.comparisons.append(SizeComparison(target, args, answer, self.here(), line))

    def device_of(self, tensor: torch.Tensor) -> torch.device:
        """Return a tensor's device as a new object, which identifies the tensor later."""
        device = torch.device(str(tensor.device))
        self.tensors.devices[id(device)] = (device, tensor)
        return device

    def note_dtype(self, tensor: torch.Tensor) -> None:
        """Record that the user's code read a tensor's dtype."""
        frame = user_frame(self.outermost)
        if frame is not None:
            self._dtypes[tensor.dtype] = (frame, frame.f_lineno, tensor)

    def _dtype_origin(self, dtype: torch.dtype, frame: FrameType | None) -> torch.Tensor | None:
        """Return the tensor that a dtype was read from, if the running code has read it.

        A dtype is a singleton, so only the code that read it tells where it comes from. The read counts if it
        was on the same line, or if the code still holds the dtype in a local variable.
        """
        reader, line, tensor = self._dtypes.get(dtype, (None, 0, None))
        if frame is None or reader is not frame:
            return None
        held = any(value is dtype for value in frame.f_locals.values())
        return tensor if held or line == frame.f_lineno else None

    def _property(self, tensor: torch.Tensor, name: str, frame: FrameType | None) -> fx.Node:
        node = self.graph.call_function(getattr, (self.node_of(tensor, frame), name))
        node.meta.update(module_call=self.call, nn_module_stack=self.call.stack, val=getattr(tensor, name))
        return node
