"""Specializes a model: compiles it for one kind of inputs, and decides which inputs are of that kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn

from torchport import capture
from torchport.compiler.build import Source, build_program
from torchport.compiler.normalise import normalise
from torchport.compiler.open_sizes import NotOpen, OpenSizes, find_open_sizes, name_sizes
from torchport.compiler.sizes_of_one import SizesOfOne
from torchport.compiler.weights import WeightGuard, frozen_weights
from torchport.records import ModelGraph
from torchport.runtime.input_kind import InputKind
from torchport.runtime.runnable_program import RunnableProgram
from torchport.structure import Flat
from torchport.targets import Options, Target


@dataclass(frozen=True, slots=True, eq=False)
class Specialised:
    """A program with the conditions for using it.

    Args:
        program: the program.
        guard: checks whether the weights are still those that were built in.
        kind: the inputs that it was built for.
        graph: the record of the graph that it was planned from.
        examples: the tensors that it was tried on.
        ones: for open sizes, what is known about sizes of 1.
    """

    program: RunnableProgram
    guard: WeightGuard
    kind: InputKind
    graph: ModelGraph
    examples: tuple[torch.Tensor, ...] = ()
    ones: SizesOfOne | None = None

    @property
    def is_open(self) -> bool:
        """Whether some dimensions of its inputs may have any size."""
        return bool(self.kind.guards)

    def widened(self, flat: Flat, captured: capture.CapturedModel) -> Specialised | None:
        """Return the program extended to inputs with sizes of 1, if the model makes the same calls for them.

        Args:
            flat: inputs with sizes of 1.
            captured: the model captured for exactly these inputs.
        """
        if self.ones is None or not self.ones.could_be(flat):
            return None
        ones = self.ones.proved_by(flat, captured)
        return None if ones is None else replace(self, kind=ones.kind, ones=ones)

    def fits(self, flat: Flat) -> bool:
        """Whether the program was built for inputs like these."""
        return self.kind.fits(flat)


class Specialiser:
    """Compiles one model for one target, for any given inputs.

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
        return self.build_captured(self.capture_for(args, kwargs))

    def capture_for(self, args: Sequence[object], kwargs: Mapping[str, object]) -> capture.CapturedModel:
        """Capture the model for inputs like these."""
        return capture.export(self.module, args, kwargs, name=self.name)

    def build_captured(self, captured: capture.CapturedModel) -> Specialised:
        """Compile the model for inputs like those that it was captured with."""
        return self._build(captured, None)

    def build_open(self, captured: capture.CapturedModel) -> Specialised:
        """Compile the model for all sizes that it was captured for.

        Raises:
            NotOpen: one program cannot serve all of them.
        """
        if not self.target.takes_open_sizes(self.options):
            raise NotOpen(f"the target {self.target.name} only builds for fixed sizes")
        return self._build(captured, find_open_sizes(captured))

    def _build(self, captured: capture.CapturedModel, sizes: OpenSizes | None) -> Specialised:
        graph = normalise(captured, self.target)
        if sizes is not None:
            name_sizes(graph, sizes)
        # Before any value is read, so that a weight that another thread changes meanwhile is detected later.
        watched = ([], None) if self.options.frozen else (frozen_weights(graph), captured.state)
        guard = WeightGuard(*watched)
        source = Source(captured.name, graph, captured.leaves, captured.inputs.paths, captured.result, sizes)
        program, plan = build_program(source, self.target, self.options)
        kind = InputKind.of(captured.inputs, captured.leaves)
        ones = None
        if sizes is not None:
            shapes = [spec.shape for spec in program.record.inputs.values()]
            kind = kind.with_open_sizes(shapes, sizes.guards)
            ones = SizesOfOne(kind, sizes.unproved, captured.program)
            kind = ones.kind
        return Specialised(program, guard, kind, plan.record_graph(), captured.leaves, ones)
