"""A model from a file: called as the model was, right for what it holds programs for, else refusing."""

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
    """A program of a package, with the inputs that it was built for."""

    program: RunnableProgram
    kind: InputKind


class LoadedModel(nn.Module):
    """A compiled model from a file. Made by `torchport.load`.

    Args:
        package: what the file says of it.
        programs: its programs, ready to run.
        graph: the model's own graph, if the file holds it.
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
                "%s: its engine was chosen on another machine, and may not be the best here; save it with "
                "with_graph=True to have it chosen anew",
                package.model,
            )

    @property
    def tries(self) -> Tries | None:
        """What came of each engine, where `auto` chose: here, if it chose anew, or where it was saved."""
        anew = self._graph.tries if self._graph is not None else None
        return anew or self.package.tries

    @property
    def plan(self) -> QuantizationPlan | None:
        """What each layer computes in, if the model was quantized."""
        return self.package.plan

    @property
    def record(self) -> ProgramRecord:
        """All that there is to know of the program for the example inputs."""
        return self.package.programs[0].record

    @property
    def coverage(self) -> Coverage:
        """What the target took of the model, and why the rest stayed."""
        return self.record.coverage

    @property
    def programs(self) -> list[ProgramRecord]:
        """The records of all programs, one for each kind of input."""
        return [packaged.record for packaged in self.package.programs]

    @property
    def fallbacks(self) -> Fallbacks:
        """How many calls there were, how many of them eager torch ran after all, and why the last did."""
        own = self._fallback.record
        inner = self._graph.fallbacks if self._graph is not None else Fallbacks()
        return Fallbacks(own.calls, own.fallbacks + inner.fallbacks, own.last_reason or inner.last_reason)

    @property
    def kinds(self) -> list[InputKind]:
        """The kinds of inputs that there are programs for."""
        return [loaded.kind for loaded in self._programs]

    def forward(self, *args: object, **kwargs: object) -> object:
        """Run the model.

        Raises:
            RuntimeRefusal: there is no program for such inputs, or gradients are asked for.
        """
        flat = flatten_call(args, kwargs)
        refuse_gradients(flat, self.package.model, "call it under torch.no_grad()")
        for loaded in self._programs:
            # What another machine measured says nothing here, so that the model's own graph is tried anew.
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
                except RuntimeRefusal as refusal:  # which says what about the sizes does not hold
                    return refusal
        return RuntimeRefusal(
            f"the package has no program for the inputs ({given}) as they are: it has been built for {known}",
            where=self.package.model,
            remedy="call the compiled model with such inputs before it is saved",
        )

    def train(self, mode: bool = True) -> LoadedModel:
        """Refuse training mode: the program was captured in the one that the model was in."""
        if mode:
            raise RuntimeRefusal("a package cannot be trained", where=self.package.model)
        return self

    def extra_repr(self) -> str:
        """Say what was compiled for what."""
        return f"{self.package.model} on {self.package.target}: {len(self._programs)} programs"


def _described(leaf: torch.Tensor) -> str:
    order = "" if leaf.is_contiguous() else ", not contiguous"
    return f"{str(leaf.dtype).removeprefix('torch.')}{list(leaf.shape)}{order}"
