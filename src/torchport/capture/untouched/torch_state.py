"""Restores torch's state after a capture: its modes, its defaults, its random number generator.

A model may raise anywhere, and torch's tracers do not always clean up afterwards: a functorch level that is
left pushed makes later, unrelated calls fail.
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
    dynamo_lock,
    exit_dual_level,
    filter_annotations,
    forget_traced_nodes,
    function_modes,
    functorch_depth,
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

_capture_lock = threading.RLock()
_capturing: list[int] = []  # the id of the thread that holds the lock, once per nested acquisition


@contextmanager
def torch_as_it_was() -> Iterator[None]:
    """Restore torch's state on exit, even after an error or an interrupt; one thread at a time.

    The state is: modes (grad, inference, autocast, dispatch, function), functorch's levels, the default dtype
    and device, deterministic algorithms, the CPU's random number generator, and the tracing state of fx and
    torch.export.
    """
    # Much of the state is process-wide: one thread could restore what another is about to change. Dynamo's
    # lock always comes first: a thread that compiles holds it, and may start a capture.
    with dynamo_lock(), _capture_lock, _annotated_by_this_thread():
        state = _State()
        # On exit, torch restores autograd's modes and the thread's dispatch keys, whatever they are.
        with InferenceMode(torch.is_inference_mode_enabled()):
            set_grad_enabled(state.grad)
            torch.fx.traceback.current_meta = {}  # torch writes to this dict; the previous one stays intact
            try:
                yield
            finally:
                state.restore()


@contextmanager
def _annotated_by_this_thread() -> Iterator[None]:
    """Let only this thread annotate the nodes that are being traced."""
    filter_annotations(_may_annotate)
    _capturing.append(threading.get_ident())
    try:
        yield
    finally:
        _capturing.pop()


def _may_annotate() -> bool:
    """Whether this thread is the one that captures; if none does, whether torch.export is running."""
    owner = _capturing[-1:]
    return owner == [threading.get_ident()] if owner else torch.compiler.is_exporting()


def leaves_torch_as_it_was(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function so that torch's state is restored when it returns or raises."""

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        with torch_as_it_was():
            return function(*args, **kwargs)

    return wrapper


class _State:
    """A snapshot of torch's state."""

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
        """Restore the whole snapshot."""
        # The levels first: each has its own dispatch keys and mode.
        if functorch_depth() > self._levels:
            pop_functorch_levels(self._levels)
            with suppress(RuntimeError):  # no dual level was open, as for most transforms
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
    """Restore a stack of modes: pop down to the common prefix, then push the missing modes."""
    now = current()
    same = 0
    while same < min(len(now), len(before)) and now[same] is before[same]:
        same += 1
    for _ in now[same:]:
        pop()
    for mode in before[same:]:
        push(mode)
