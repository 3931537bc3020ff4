"""Tracks nested module calls while a model runs."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import fx, nn
from torch.nn.utils.parametrize import is_parametrized


@dataclass(eq=False, slots=True)
class TracedCall:
    """A call of a module that is not recorded as a single node.

    Args:
        path: the module's path in the model; empty for the model.
        type_name: the name of the module's class.
        parent: the enclosing call.
        inputs: the nodes passed to it, with the names of the parameters.
        names: the names of nodes in the code that ran in the call.
        stack: the path and class of the module and of the enclosing calls, as in fx node metadata.
        modes: the torch modes in which it was called.
    """

    path: str
    type_name: str
    parent: TracedCall | None
    inputs: list[tuple[str, fx.Node]] = field(default_factory=list)
    names: dict[fx.Node, str] = field(default_factory=dict)
    stack: dict[str, tuple[str, str]] = field(default_factory=dict)
    modes: object = None

    @property
    def depth(self) -> int:
        """The number of enclosing calls."""
        return 0 if self.parent is None else self.parent.depth + 1

    def ancestors(self) -> Iterator[TracedCall]:
        """Yield this call and its enclosing calls, innermost first."""
        call: TracedCall | None = self
        while call is not None:
            yield call
            call = call.parent


def is_leaf(module: nn.Module) -> bool:
    """Whether a module's call is recorded as a single node: a torch module without hooks or parametrizations.

    A module with hooks or parametrizations is traced into, since their effects must be recorded.
    """
    if not type(module).__module__.startswith(("torch.nn.modules", "torch.ao.nn")):
        return False
    if isinstance(module, (nn.Sequential, nn.ModuleList, nn.ModuleDict)):
        return False
    return not any(_has_hooks_or_parametrizations(part) for part in module.modules())


def _has_hooks_or_parametrizations(module: nn.Module) -> bool:
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or is_parametrized(module)
    )


class CallListener:
    """Is notified when a module is called and when it returns."""

    def enter(
        self, path: str, module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> None:
        """Handle the beginning of a module call."""
        raise NotImplementedError

    def leave(self, path: str, module: nn.Module, result: object) -> object:
        """Handle the end of a module call; a return value other than None replaces the result."""
        raise NotImplementedError


def leaves(model: nn.Module) -> set[nn.Module]:
    """Return the modules whose calls are recorded as single nodes."""
    found: set[nn.Module] = set()
    inside: set[nn.Module] = set()
    for module in model.modules():
        if module not in inside and module is not model and is_leaf(module):
            found.add(module)
            inside.update(module.modules())
    return found


def follow_modules(model: nn.Module, whole: set[nn.Module], listener: CallListener) -> None:
    """Register hooks that notify a listener of module calls in this thread.

    Args:
        model: a model's stand-in; the hooks are never removed from it.
        whole: the modules that are not traced into.
        listener: the listener to notify.
    """
    thread = threading.get_ident()
    inside = {part for module in whole for part in module.modules()} - whole
    for path, module in model.named_modules():
        # Scripted modules do not support hooks; what they do is recorded op by op.
        if module not in inside and not isinstance(module, torch.jit.ScriptModule):
            _follow(path, module, listener, thread)


def _follow(path: str, module: nn.Module, listener: CallListener, thread: int) -> None:
    def entered(module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        if threading.get_ident() == thread:
            listener.enter(path, module, args, kwargs)

    def left(module: nn.Module, args: object, result: object) -> object:
        if threading.get_ident() == thread:
            return listener.leave(path, module, result)
        return None

    # Innermost, next to forward itself: what a user's own hooks do belongs to the caller.
    module.register_forward_pre_hook(entered, with_kwargs=True)
    module.register_forward_hook(left, prepend=True)


@functools.lru_cache(maxsize=1024)
def _signature(forward: Callable[..., object]) -> inspect.Signature:
    return inspect.signature(forward)


def named_arguments(
    forward: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]
) -> list[tuple[str, object]]:
    """Return the arguments of a call, with the names of their parameters."""
    try:
        bound = _signature(forward).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return [*((f"arg{i}", arg) for i, arg in enumerate(args)), *kwargs.items()]
    named: list[tuple[str, object]] = []
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            named += [(f"{name.rstrip('s')}{i}", item) for i, item in enumerate(value)]
        elif kind is inspect.Parameter.VAR_KEYWORD:
            named += list(value.items())
        else:
            named.append((name, value))
    return named
