"""A model loaded from a file: called as the original was; refuses inputs that it has no program for."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from torchport.errors import RuntimeRefusal
from torchport.packaging.loaded_graph import LoadedGraph
from torchport.records import Coverage, Fallbacks, Package, ProgramRecord, Tries
from torchport.records.quantization import QuantizationPlan
from torchport.runtime.eager_fallback import EagerFallback
from torchport.runtime.input_kind import InputKind, refuse_gradients
from torchport.runtime.island import NO_MODEL
from torchport.runtime.runnable_program import RunnableProgram
from torchport.runtime.shape_guards import check_guards
from torchport.structure import Flat, flatten_call
from torchport.targets.machine import machine
from torchport.targets.target import OutOfRange

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class LoadedProgram:
    """A program from a package, with the kind of inputs that it was built for."""

    program: RunnableProgram
    kind: InputKind


class LoadedModel(nn.Module):
    """A compiled model from a file. Created by `torchport.load`.

    Args:
        package: the file's description of the model.
        programs: its programs, ready to run.
        graph: the model's own graph, if the file contains it.
    """

    def __init__(
        self, package: Package, programs: Sequence[LoadedProgram], graph: LoadedGraph | None = None
    ) -> None:
        super().__init__()
        self._graph = graph
        self.package = package
        self._programs = tuple(programs)
        self._fallback = EagerFallback(package.model)
        self.training = False
        tries = package.tries
        self._elsewhere = tries is not None and tries.machine != machine()
        if self._elsewhere and graph is None:
            _log.warning(
                "%s: its engine was chosen on another machine and may not be the best here; save it with "
                "with_graph=True to choose again on each machine",
                package.model,
            )

    @property
    def tries(self) -> Tries | None:
        """The outcome for each engine that `auto` tried: here, if it chose again, else where it was saved."""
        anew = self._graph.tries if self._graph is not None else None
        return anew or self.package.tries

    @property
    def plan(self) -> QuantizationPlan | None:
        """The quantization plan, if the model was quantized."""
        return self.package.plan

    @property
    def record(self) -> ProgramRecord:
        """The record of the program for the example inputs."""
        return self.package.programs[0].record

    @property
    def coverage(self) -> Coverage:
        """Which ops run on the target, and why the rest stay on the host."""
        return self.record.coverage

    @property
    def programs(self) -> list[ProgramRecord]:
        """The records of all programs, one per kind of inputs."""
        return [packaged.record for packaged in self.package.programs]

    @property
    def fallbacks(self) -> Fallbacks:
        """How many calls were made, how many fell back to eager torch, and why the last one did."""
        own = self._fallback.record
        inner = self._graph.fallbacks if self._graph is not None else Fallbacks()
        return Fallbacks(own.calls, own.fallbacks + inner.fallbacks, own.last_reason or inner.last_reason)

    @property
    def kinds(self) -> list[InputKind]:
        """The kinds of inputs that have programs."""
        return [loaded.kind for loaded in self._programs]

    def forward(self, *args: object, **kwargs: object) -> object:
        """Run the model.

        Raises:
            RuntimeRefusal: there is no program for these inputs, or gradients are required.
        """
        flat = flatten_call(args, kwargs)
        refuse_gradients(flat, self.package.model, "call it under torch.no_grad()")
        for loaded in self._programs:
            # Another machine's measurements do not apply here, so engines are tried again on the graph.
            if loaded.kind.fits(flat) and not (self._elsewhere and self._graph is not None):
                return self._run(loaded.program, flat)
        first = self._programs[0].kind
        if self._graph is None or first.structure != flat.structure or not first.fits_autocast():
            raise self._unknown(flat)
        return self._fallback.run(
            partial(self._graph.run, flat), partial(self._graph.run_eagerly, flat), passing=(RuntimeRefusal,)
        )

    def _run(self, program: RunnableProgram, flat: Flat) -> object:
        eager = None if self._graph is None else partial(self._graph.run_eagerly, flat)
        try:
            return self._fallback.run(partial(program.run, flat.leaves, flat.objects), eager)
        except OutOfRange as reason:
            raise RuntimeRefusal(str(reason), where=self.package.model, remedy=NO_MODEL) from reason

    def _unknown(self, flat: Flat) -> RuntimeRefusal:
        given = ", ".join(_described(leaf) for leaf in flat.leaves)
        known = " or ".join(
            f"({', '.join(str(spec) for spec in record.inputs.values())})" for record in self.programs
        )
        for kind in self.kinds:
            if kind.guards and kind.structure == flat.structure and kind.fits_autocast():
                try:
                    check_guards(list(kind.guards), [leaf.shape for leaf in flat.leaves], self.package.model)
                except RuntimeRefusal as refusal:  # its message names the guard that fails
                    return refusal
        return RuntimeRefusal(
            f"the package has no program for the inputs ({given}): it was built for {known}",
            where=self.package.model,
            remedy="call the compiled model with such inputs before saving it",
        )

    def train(self, mode: bool = True) -> LoadedModel:
        """Refuse training mode: the program was captured in the mode that the model was in."""
        if mode:
            raise RuntimeRefusal("a loaded package cannot be trained", where=self.package.model)
        return self

    def extra_repr(self) -> str:
        """Describe the model for its repr."""
        return f"{self.package.model} on {self.package.target}: {len(self._programs)} programs"


def _described(leaf: torch.Tensor) -> str:
    order = "" if leaf.is_contiguous() else ", not contiguous"
    return f"{str(leaf.dtype).removeprefix('torch.')}{list(leaf.shape)}{order}"
