"""Copies TorchScript's modules: what they hold is held in C++, and Python sees it through wrappers."""

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
    """Whether a module's tensors and parts are held by a C++ object of its own."""
    return isinstance(module, torch.jit.ScriptModule) and SCRIPT_OBJECT in vars(module)


def copy_scripted(module: nn.Module, made: nn.Module, stand_in: Callable[[Any], Any]) -> None:
    """Make an empty object the copy of a scripted module, on a C++ object of its own.

    Args:
        module: the module.
        made: a new object of its class, without attributes.
        stand_in: gives what stands for a value: for a tensor, for another module.
    """
    held = copy.copy(vars(module)[SCRIPT_OBJECT])  # it shares what it holds; parts and tensors follow
    parts = {name: stand_in(part) for name, part in module._modules.items()}
    for name, part in module._modules.items():
        if part is not None:  # a traced one stands before the scripted one that has the C++ object
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
        # Methods are bound to the C++ object: torch looks them up again.
        if name not in wrappers and not isinstance(value, ScriptMethod):
            attributes[name] = stand_in(value)
    attributes.update(wrappers)
