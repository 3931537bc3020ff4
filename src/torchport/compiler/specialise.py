"""Compiles a model for inputs of one kind, and tells which inputs are of that kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from torchport import capture
from torchport.compiler.build import Source, build_program
from torchport.compiler.normalise import normalise
from torchport.compiler.weights import WeightGuard, frozen_weights
from torchport.records import ModelGraph
from torchport.runtime.input_kind import InputKind
from torchport.runtime.runnable_program import RunnableProgram
from torchport.structure import Flat
from torchport.targets import Options, Target


@dataclass(frozen=True, slots=True, eq=False)
class Specialised:
    """A program with what must hold for it to be used.

    Args:
        program: the program.
        guard: tells whether the weights are still those that were built in.
        kind: the inputs that it was built for.
        graph: what it was planned from, as a record.
        examples: the tensors that it was tried on.
    """

    program: RunnableProgram
    guard: WeightGuard
    kind: InputKind
    graph: ModelGraph
    examples: tuple[torch.Tensor, ...] = ()

    def fits(self, flat: Flat) -> bool:
        """Whether the program was built for inputs like these."""
        return self.kind.fits(flat)


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
        self.module = capture.as_module(model)
        self.name = name or type(model).__name__
        self.target = target
        self.options = options

    def build(self, args: Sequence[object], kwargs: Mapping[str, object]) -> Specialised:
        """Capture and compile the model for inputs like these."""
        captured = capture.export(self.module, args, kwargs, name=self.name)
        graph = normalise(captured, self.target)
        # Before any value is read: a weight that another thread changes meanwhile is noticed afterwards.
        guard = WeightGuard(frozen_weights(graph), captured.state)
        source = Source(captured.name, graph, captured.leaves, captured.inputs.paths, captured.result)
        program, plan = build_program(source, self.target, self.options)
        kind = InputKind.of(captured.inputs, captured.leaves)
        return Specialised(program, guard, kind, plan.record_graph(), captured.leaves)
