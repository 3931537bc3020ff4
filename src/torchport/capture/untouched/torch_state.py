"""Leaves torch as it was, whatever a capture does: its modes, its defaults, its random numbers.

A model may raise anywhere, and torch's tracers do not always clear up behind it: a level of functorch's that
is left pushed makes later, unrelated calls fail.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import ParamSpec, TypeVar

import torch
import torch.fx.traceback

from torchport.torch_private import (
    InferenceMode,
    default_device_state,
    dispatch_modes,
    dual_level,
    exit_dual_level,
    forget_traced_nodes,
    function_modes,
    functorch_depth,
    keep_notes_of_threads_apart,
    lock_of_compilations,
    pop_dispatch_mode,
    pop_function_mode,
    pop_functorch_levels,
    push_dispatch_mode,
    push_function_mode,
    set_grad_enabled,
    state_variables,
    tracing_state,
)

P = ParamSpec("P")
R = TypeVar("R")

_one_at_a_time = threading.RLock()
_capturing: list[int] = []  # the thread whose turn it is, once for each time that it came here


@contextmanager
def torch_as_it_was() -> Iterator[None]:
    """Put torch's state back afterwards, also after an error or an interrupt; one thread at a time.

    That is: modes (gradients, inference, autocast, dispatch, function), functorch's levels, the default dtype
    and device, deterministic algorithms, the CPU's random numbers, and what fx and torch.export are tracing.
    """
    # Much of it is the process's, and one thread would put back what another is about to change. Dynamo's
    # lock first, always: who compiles holds it, and may capture.
    with lock_of_compilations(), _one_at_a_time, _turn():
        state = _State()
        # On leaving it, torch puts back autograd's modes and the thread's dispatch keys, whatever they are.
        with InferenceMode(torch.is_inference_mode_enabled()):
            set_grad_enabled(state.grad)
            torch.fx.traceback.current_meta = {}  # a dict that torch writes to: what was noted there stays
            try:
                yield
            finally:
                state.restore()


@contextmanager
def _turn() -> Iterator[None]:
    """Have only this thread note in a graph what it runs."""
    keep_notes_of_threads_apart(_may_note)
    _capturing.append(threading.get_ident())
    try:
        yield
    finally:
        _capturing.pop()


def _may_note() -> bool:
    """Say whether what this thread runs is part of what is being exported: by us, or else by itself."""
    turn = _capturing[-1:]
    return turn == [threading.get_ident()] if turn else torch.compiler.is_exporting()


def leaves_torch_as_it_was(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function so that torch's state is afterwards as it was."""

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        with torch_as_it_was():
            return function(*args, **kwargs)

    return wrapper


class _State:
    """Torch's state when this is made."""

    def __init__(self) -> None:
        self.grad = torch.is_grad_enabled()
        self._levels = functorch_depth()
        self._dual_level = dual_level()
        self._dispatch = dispatch_modes()
        self._functions = function_modes()
        self._device_context = getattr(default_device_state, "device_context", None)
        self._dtype = torch.get_default_dtype()
        self._random = torch.default_generator.get_state()
        self._deterministic = (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        )
        self._precision = torch.get_float32_matmul_precision()
        self._autocast = {kind: _autocast(kind) for kind in ("cpu", "cuda")}
        self._autocast_cache = torch.is_autocast_cache_enabled()
        self._variables = [(module, name, vars(module)[name]) for module, name in state_variables()]
        self._tracing = dict(vars(tracing_state))

    def restore(self) -> None:
        """Put all of it back."""
        # The levels first: each has dispatch keys, and a mode, of its own.
        if functorch_depth() > self._levels:
            pop_functorch_levels(self._levels)
            with suppress(RuntimeError):  # it was not open, as for most transforms
                exit_dual_level(level=self._dual_level + 1)
        _restore_stack(self._dispatch, dispatch_modes, pop_dispatch_mode, push_dispatch_mode)
        _restore_stack(self._functions, function_modes, pop_function_mode, push_function_mode)
        default_device_state.device_context = self._device_context
        if torch.get_default_dtype() != self._dtype:
            torch.set_default_dtype(self._dtype)
        for module, name, value in self._variables:
            setattr(module, name, value)
        vars(tracing_state).clear()
        vars(tracing_state).update(self._tracing)
        forget_traced_nodes()
        self._restore_switches()

    def _restore_switches(self) -> None:
        now = torch.are_deterministic_algorithms_enabled()
        warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
        if (now, warn_only) != self._deterministic:
            torch.use_deterministic_algorithms(self._deterministic[0], warn_only=self._deterministic[1])
        if torch.get_float32_matmul_precision() != self._precision:
            torch.set_float32_matmul_precision(self._precision)
        for kind, (enabled, dtype) in self._autocast.items():
            if _autocast(kind) != (enabled, dtype):
                torch.set_autocast_enabled(kind, enabled)
                torch.set_autocast_dtype(kind, dtype)
        torch.set_autocast_cache_enabled(self._autocast_cache)
        if not torch.equal(torch.default_generator.get_state(), self._random):
            torch.default_generator.set_state(self._random)


def _autocast(kind: str) -> tuple[bool, torch.dtype]:
    return torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)


def _restore_stack(
    before: list[R], current: Callable[[], list[R]], pop: Callable[[], object], push: Callable[[R], object]
) -> None:
    """Make a stack of modes what it was: from the top down to where they are the same, and up again."""
    now = current()
    same = 0
    while same < min(len(now), len(before)) and now[same] is before[same]:
        same += 1
    for _ in now[same:]:
        pop()
    for mode in before[same:]:
        push(mode)
