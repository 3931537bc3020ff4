"""Copies TorchScript modules: their state is held in C++, and exposed to Python through wrappers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from torchport.torch_private import (
    SCRIPT_OBJECT,
    TRACED_SCRIPT,
    BufferDict,
    OrderedDictWrapper,
    OrderedModuleDict,
    ParameterDict,
    ScriptMethod,
)


def is_scripted(module: nn.Module) -> bool:
    """Whether a module's tensors and submodules are held by a C++ object."""
    return isinstance(module, torch.jit.ScriptModule) and SCRIPT_OBJECT in vars(module)


def copy_scripted(module: nn.Module, made: nn.Module, stand_in: Callable[[Any], Any]) -> None:
    """Turn an empty object into a copy of a scripted module, with its own C++ object.

    Args:
        module: the module.
        made: a new object of its class, without attributes.
        stand_in: returns the copy of a value, such as a tensor or a submodule.
    """
    held = copy.copy(vars(module)[SCRIPT_OBJECT])  # a shallow copy; submodules and tensors are replaced below
    parts = {name: stand_in(part) for name, part in module._modules.items()}
    for name, part in module._modules.items():
        if part is not None:  # a traced module wraps the scripted one, which has the C++ object
            held.setattr(name, vars(stand_in(vars(part).get(TRACED_SCRIPT, part)))[SCRIPT_OBJECT])
    parameters = OrderedDictWrapper(ParameterDict(held))
    buffers = OrderedDictWrapper(BufferDict(held))
    for name, tensor in [*parameters.items(), *buffers.items()]:
        held.setattr(name, stand_in(tensor))
    wrappers = {
        SCRIPT_OBJECT: held,
        "_parameters": parameters,
        "_buffers": buffers,
        "_modules": OrderedModuleDict(held, parts),
    }
    attributes = vars(made)
    for name, value in vars(module).items():
        # Methods are bound to the original C++ object: torch looks them up again on the copy.
        if name not in wrappers and not isinstance(value, ScriptMethod):
            attributes[name] = stand_in(value)
    attributes.update(wrappers)
