"""Finds the `nn.Sequential` modules that just call their children in order, and can be kept as they are."""

from __future__ import annotations

from torch import fx, nn

from torchport.codegen.places import find_module
from torchport.codegen.scopes import Scope


def find_chains(top: Scope, model: nn.Module) -> set[str]:
    """Return the paths of `nn.Sequential` modules whose calls are all plain chains of their children."""
    found: dict[str, bool] = {}
    for scope in top.scopes():
        module = find_module(model, scope.path)
        if scope.path and isinstance(module, nn.Sequential):
            found[scope.path] = found.get(scope.path, True) and _is_chain(scope, module)
    return {path for path, is_chain in found.items() if is_chain}


def _is_chain(scope: Scope, module: nn.Sequential) -> bool:
    if len(scope.inputs) != 1 or len(scope.outputs) > 1:
        return False
    names = iter(module._modules)
    value = scope.inputs[0]
    for item in scope.items:
        path = item.path if isinstance(item, Scope) else str(item.target)
        if isinstance(item, Scope):
            if item.inputs != [value] or len(item.outputs) != 1:
                return False
            result = item.outputs[0]
        elif item.op == "call_module" and item.args == (value,) and not item.kwargs:
            result = item
        else:
            return False
        prefix, _, name = path.rpartition(".")
        if prefix != scope.path or name not in names:  # `in` advances the iterator past the match
            return False
        value = result
    return scope.outputs == [value] and _has_uniform_modes(scope)


def _has_uniform_modes(scope: Scope) -> bool:
    return all(
        (item.call.modes if isinstance(item, Scope) else item.meta.get("modes")) == scope.call.modes
        for item in scope.items
        if isinstance(item, (Scope, fx.Node))
    )
