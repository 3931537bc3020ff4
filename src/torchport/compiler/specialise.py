"""Compiles a model for inputs of one kind, and tells which inputs are of that kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from torchport import capture
from torchport.compiler.build import Source, build_program
from torchport.compiler.normalise import normalise
from torchport.compiler.weights import WeightGuard
from torchport.runtime.program import Program
from torchport.structure import Flat, Structure
from torchport.targets import Options, Target

LeafKey = tuple[torch.Size, torch.dtype, torch.device, "tuple[int, ...] | None"]


def key_of(leaf: torch.Tensor) -> LeafKey:
    """Return all of an input tensor that a program depends on, but its values."""
    plain = leaf.layout is not torch.strided or leaf.is_contiguous()
    return leaf.shape, leaf.dtype, leaf.device, None if plain else leaf.stride()


def autocast_key() -> tuple[bool, torch.dtype]:
    """Return the state of autocast, which decides the dtypes of what is captured."""
    return torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")


@dataclass(frozen=True, slots=True, eq=False)
class Specialised:
    """A program with what must hold for it to be used.

    Args:
        program: the program.
        guard: tells whether the weights are still those that were built in.
        inputs: the structure of the inputs.
        keys: one for each tensor of the inputs.
        autocast: the state of autocast that it was captured in.
        examples: the tensors that it was tried on.
    """

    program: Program
    guard: WeightGuard
    inputs: Structure
    keys: tuple[LeafKey, ...]
    autocast: tuple[bool, torch.dtype]
    examples: tuple[torch.Tensor, ...] = ()

    def fits(self, flat: Flat) -> bool:
        """Whether the program was built for inputs like these."""
        return (
            len(self.keys) == len(flat.leaves)
            and all(key == key_of(leaf) for key, leaf in zip(self.keys, flat.leaves, strict=True))
            and self.autocast == autocast_key()
            and (self.inputs is flat.structure or self.inputs == flat.structure)
        )


class Specialiser:
    """Compiles one model for one target, for whatever inputs come.

    Args:
        model: a module, or any callable on tensors.
        target, options: what it is compiled for.
        name: the model's name in messages.
    """

    def __init__(
        self, model: nn.Module | Callable[..., object], target: Target, options: Options, name: str
    ) -> None:
        self.module = model if isinstance(model, nn.Module) else capture.CallableModule(model)
        self.name = name or type(model).__name__
        self.target = target
        self.options = options

    def build(self, args: Sequence[object], kwargs: Mapping[str, object]) -> Specialised:
        """Capture and compile the model for inputs like these."""
        captured = capture.export(self.module, args, kwargs, name=self.name)
        graph = normalise(captured, self.target)
        source = Source(captured.name, graph, captured.leaves, captured.inputs.paths, captured.result)
        program, plan = build_program(source, self.target, self.options)
        written = {str(node.target) for node in plan.graph.writes if node.op == "get_attr"}
        frozen = [weight for key, weight in plan.graph.weights.items() if key not in written]
        return Specialised(
            program,
            WeightGuard(frozen, captured.state),
            captured.inputs,
            tuple(key_of(leaf) for leaf in captured.leaves),
            autocast_key(),
            captured.leaves,
        )
