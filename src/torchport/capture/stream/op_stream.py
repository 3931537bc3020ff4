"""Records every op that a model runs: the ops that its code calls, and the kernels that they decompose into.

The run uses fake tensors, so it needs neither weights nor memory. Where fake tensors do not work, because the
model's control flow depends on values or an op does not support them, it uses copies of the real tensors.
"""

from __future__ import annotations

import functools
import os
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, cast

import torch

from torchport.capture.module_calls import ModuleCall, ModuleCalls
from torchport.capture.stream.live_memory import LiveMemory, Owned
from torchport.capture.stream.op_call import OpCall, describe_call
from torchport.capture.stream.workspace import Workspace, workspace_of
from torchport.capture.tensor_specs import is_dense
from torchport.structure import tensors_within
from torchport.torch_private import (
    DispatchKey,
    OpOverload,
    TorchDispatchMode,
    current_autograd_node,
    has_kernel,
    next_sequence_number,
    run_kernel,
    sequence_number,
)

Phase = Literal["forward", "backward"]

_AUTOGRAD = os.path.dirname(torch.autograd.__file__) + os.sep
_COMPOSITE = DispatchKey.CompositeImplicitAutograd
# Metadata queries and assertions: not part of the model's work.
_QUESTIONS = frozenset(
    """
    aten::_assert_async aten::_assert_tensor_metadata aten::_has_compatible_shallow_copy_type aten::dim
    aten::is_complex aten::is_contiguous aten::is_floating_point aten::is_inference aten::is_nested
    aten::is_non_overlapping_and_dense aten::is_same_size aten::is_signed aten::is_strides_like_format
    aten::numel aten::result_type aten::size aten::storage_offset aten::stride aten::sym_constrain_range
    aten::sym_constrain_range_for_size aten::sym_is_contiguous aten::sym_numel aten::sym_size
    aten::sym_storage_offset aten::sym_stride aten::_version
    """.split()
)


@dataclass(frozen=True, slots=True)
class Kernel:
    """An op that ran without being decomposed: below it, there is only the device's own code.

    Args:
        call: the call.
        allocated: the bytes of new memory in its results.
        live: of the bytes that the run has allocated, those that were live after the op.
        workspace: the temporary memory that it used.
    """

    call: OpCall
    allocated: int
    live: int
    workspace: Workspace


@dataclass(slots=True, eq=False)
class StreamedOp:
    """An op called by the model's code or by autograd.

    Args:
        call: the call.
        path: the path of the module that called it.
        phase: whether it ran in the forward or the backward pass.
        module_call: the call of that module, if known.
        sources: the numbers of the ops that produced its inputs, without duplicates.
        kernels: the kernels that it decomposed into; the op itself if it is a kernel.
    """

    call: OpCall
    path: str
    phase: Phase
    module_call: ModuleCall | None
    sources: tuple[int, ...]
    kernels: list[Kernel] = field(default_factory=list)


class OpRecorder(TorchDispatchMode):
    """While active, records every op.

    Args:
        calls: tracks which module is running.
        memory: tracks the allocated memory.
        owners: the paths of the modules that hold parameters, by the parameters' ids.
    """

    supports_higher_order_operators = True

    def __init__(
        self,
        calls: ModuleCalls,
        memory: LiveMemory,
        owners: Mapping[int, str],
    ) -> None:
        super().__init__()
        self.phase: Phase = "forward"
        self.higher_order: Counter[str] = Counter()  # the number of runs of each higher-order op
        self.ops: list[StreamedOp] = []
        self._calls = calls
        self._memory = memory
        self._owners = owners
        self._outer: StreamedOp | None = None  # the model's op that is being decomposed
        self._origin = _Origins()
        self._calls_by_number: dict[int, ModuleCall | None] = {}
        # The last op and the storage of its first operand, if autograd accumulated a gradient with it.
        self._sum: tuple[StreamedOp, Owned] | None = None

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # True would make torch import Dynamo, which takes seconds

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        kwargs = kwargs or {}
        if not isinstance(func, OpOverload):
            return self._run_higher_order(func, args, kwargs)
        name = func._schema.name
        if func.namespace == "prim" or name in _QUESTIONS:
            return func(*args, **kwargs)
        # Tensors that are not dense have their own kernels for ops that are composite for dense ones.
        if _is_composite(func) and all(is_dense(tensor) for tensor in tensors_within((args, kwargs))):
            return self._decompose(func, args, kwargs)
        return self._run_kernel(func, args, kwargs)

    def _run_higher_order(
        self, func: Callable[..., object], args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> object:
        """Run a higher-order op: count it, and record the ops of the functions that it calls."""
        self.higher_order[getattr(func, "__name__", str(func))] += 1
        return func(*(self._recorded(arg) for arg in args), **kwargs)

    def _recorded(self, argument: object) -> object:
        """Wrap a function so that it runs under this mode; return anything else as is."""
        if isinstance(argument, torch.Tensor) or not callable(argument):
            return argument

        @functools.wraps(argument)
        def run(*args: object, **kwargs: object) -> object:
            with self:
                return argument(*args, **kwargs)

        return run

    def _decompose(self, func: OpOverload, args: tuple[object, ...], kwargs: Mapping[str, object]) -> object:
        """Run a composite op as the ops it decomposes into; only the outermost one counts as the model's."""
        if self._outer is not None:
            with self:
                return run_kernel(func, _COMPOSITE, args, kwargs)
        place = len(self.ops)
        self._outer = streamed = self._begin(func, args, kwargs)
        try:
            with self:
                result = run_kernel(func, _COMPOSITE, args, kwargs)
        except BaseException:
            del self.ops[place:]
            raise
        finally:
            self._outer = None
        self._finish(streamed, place, args, kwargs, result)
        return result

    def _run_kernel(self, func: OpOverload, args: tuple[object, ...], kwargs: Mapping[str, object]) -> object:
        self.settle()
        for tensor in tensors_within((args, kwargs)):
            self._memory.ignore(tensor)
        place = len(self.ops)
        own = self._begin(func, args, kwargs) if self._outer is None else None
        try:
            result = func(*args, **kwargs)
        except BaseException:
            del self.ops[place:]
            raise
        allocated = sum(self._memory.count(tensor) for tensor in tensors_within(result))
        workspace = workspace_of(func, args, kwargs, result)
        if own is not None:
            self._finish(own, place, args, kwargs, result)
            own.kernels.append(Kernel(own.call, allocated, self._memory.live, workspace))
            if self.phase == "backward" and func is torch.ops.aten.add.Tensor and _is_called_by_autograd():
                added_to = self._memory.owned(cast(torch.Tensor, args[0]))
                self._sum = None if added_to is None else (own, added_to)
        else:
            assert self._outer is not None
            call = describe_call(func, args, kwargs, result)
            self._outer.kernels.append(Kernel(call, allocated, self._memory.live, workspace))
        return result

    def settle(self) -> None:
        """Correct the live memory after autograd accumulated a gradient, if the old gradient has been freed.

        Nothing else referred to the old gradient, so a real run would add in place; under a mode, autograd
        does not.
        """
        if self._sum is not None:
            sum_op, added_to = self._sum
            self._sum = None
            if not self._memory.lives(added_to):
                [kernel] = sum_op.kernels
                sum_op.kernels = [replace(kernel, live=kernel.live - added_to.size)]

    def _begin(self, func: OpOverload, args: tuple[object, ...], kwargs: Mapping[str, object]) -> StreamedOp:
        path, caller = self._caller()
        sources = tuple(self._origin.find(tensor) for tensor in tensors_within((args, kwargs)))
        streamed = StreamedOp(
            OpCall(func, {}, ()),
            path,
            self.phase,
            caller,
            tuple(dict.fromkeys(source for source in sources if source >= 0)),
        )
        self.ops.append(streamed)
        return streamed

    def _finish(
        self,
        streamed: StreamedOp,
        place: int,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
        result: object,
    ) -> None:
        streamed.call = describe_call(streamed.call.op, args, kwargs, result)
        for tensor in tensors_within(result):
            self._origin.note(tensor, place)

    def _caller(self) -> tuple[str, ModuleCall | None]:
        """Return the module path and call that an op belongs to: for a backward op, its forward op's."""
        current = self._calls.current
        if self.phase == "forward" and not torch.is_inference_mode_enabled():
            # Autograd's node for this op has the sequence number assigned last. Without gradients there is no
            # node: the number is another op's, unless this op is the first in a custom autograd function.
            number = next_sequence_number() - 1
            if torch.is_grad_enabled():
                self._calls_by_number[number] = current
            else:
                self._calls_by_number.setdefault(number, current)
        if self.phase == "backward" and current is None:  # not None: activation checkpointing recomputes
            node = current_autograd_node()
            if node is not None and hasattr(node, "variable"):  # it accumulates a parameter's gradient
                return self._owners.get(id(node.variable), ""), None
            current = None if node is None else self._calls_by_number.get(sequence_number(node))
        return (current.path if current is not None else "", current)


class _Origins:
    """Maps tensors to the ops that produced them."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}

    def note(self, tensor: torch.Tensor, number: int) -> None:
        """Record that an op produced a tensor."""
        self._made[id(tensor)] = (weakref.ref(tensor), number)

    def find(self, tensor: torch.Tensor) -> int:
        """Return the number of the op that produced a tensor; -1 if none did."""
        known = self._made.get(id(tensor))
        return known[1] if known is not None and known[0]() is tensor else -1


def _is_called_by_autograd() -> bool:
    """Whether autograd's engine called the op being dispatched directly, not through Python code."""
    caller = sys._getframe(2).f_back  # skips this function, `_run_kernel` and `__torch_dispatch__`
    return caller is None or caller.f_code.co_filename.startswith(_AUTOGRAD)


def _is_composite(op: OpOverload) -> bool:
    known = _composites.get(op)
    if known is None:
        known = _composites[op] = has_kernel(op.name(), _COMPOSITE)
    return known


_composites: dict[OpOverload, bool] = {}
