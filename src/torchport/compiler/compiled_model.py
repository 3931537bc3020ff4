"""The compiled model: called as the model is, right for every input, or refusing with a reason."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import nn

from torchport import capture
from torchport.compiler.emission import emit_program, simulated_seconds
from torchport.compiler.specialise import Specialised, Specialiser
from torchport.compiler.weights import Changed
from torchport.errors import RuntimeRefusal
from torchport.records import Coverage, Fallbacks, ModelGraph, ProgramRecord
from torchport.runtime.eager_fallback import EagerFallback
from torchport.runtime.input_kind import refuse_gradients
from torchport.structure import Flat, flatten_call

_log = logging.getLogger(__name__)

# Each holds its weights once more in the device's form; the least recently made goes first.
_MOST_PROGRAMS = 16
# How often a call builds anew while another thread goes on changing the weights.
_MOST_BUILDS = 3

_TRAINING = 'call it under torch.no_grad(), or train with torch.compile(model, backend="torchport")'


class CompiledModel(nn.Module):
    """A model compiled for a target. Made by `torchport.compile`.

    Args:
        specialiser: compiles the model for inputs.
        args, kwargs: example inputs.
        dynamic_shapes: which dimensions may vary.
        lazily: whether it is compiled when it is first called or asked about, rather than now.

    It holds the model's own parameters and buffers under their own names. A change of a weight is
    noticed, and the islands are built again. Inputs of another shape are compiled for when they come.
    """

    def __init__(
        self,
        specialiser: Specialiser,
        args: Sequence[object],
        kwargs: Mapping[str, object],
        dynamic_shapes: object = None,
        *,
        lazily: bool = False,
    ) -> None:
        super().__init__()
        # The same dicts, not copies: state_dict, load_state_dict and parameters are the model's own.
        vars(self)["_parameters"] = specialiser.module._parameters
        vars(self)["_buffers"] = specialiser.module._buffers
        vars(self)["_modules"] = specialiser.module._modules
        self.training = specialiser.module.training
        self._specialiser = specialiser
        self._lock = threading.RLock()
        self._fallback = EagerFallback(specialiser.name)
        self._limits = _limits(specialiser, args, kwargs, dynamic_shapes)
        self._examples = args, kwargs
        self._made_first: Specialised | None = None
        self._programs: tuple[Specialised, ...] = ()
        if not lazily:
            self._build_first()

    @property
    def _first(self) -> Specialised:
        """The program for the example inputs, or what was called for before it was built."""
        with self._lock:
            return self._made_first or self._build_first()

    def _build_first(self) -> Specialised:
        made = self._made_first = self._specialiser.build(*self._examples)
        self._programs = (made, *self._programs)
        return made

    @property
    def coverage(self) -> Coverage:
        """What the target took of the model, and why the rest stayed."""
        return self.record.coverage

    @property
    def record(self) -> ProgramRecord:
        """All that there is to know of the program for the example inputs."""
        return self._first.program.record

    @property
    def graph(self) -> ModelGraph:
        """The graph for the example inputs: every op, what feeds it, and where it runs."""
        return self._first.graph

    @property
    def programs(self) -> list[ProgramRecord]:
        """The records of all programs that were compiled so far, one for each kind of input."""
        return [specialised.program.record for specialised in self._programs]

    @property
    def fallbacks(self) -> Fallbacks:
        """How many calls there were, how many of them eager torch ran after all, and why the last did."""
        return self._fallback.record

    @property
    def original(self) -> nn.Module:
        """The module that was compiled; for a function, one that calls it."""
        return self._specialiser.module

    @property
    def current_programs(self) -> tuple[Specialised, ...]:
        """The programs that hold the weights as they are now, that of the example inputs first."""
        first = self._first
        return tuple(sorted(self.built_programs, key=lambda made: made is not first))

    @property
    def built_programs(self) -> tuple[Specialised, ...]:
        """Those that were built so far and hold the weights as they are now; none is built for this."""
        return tuple(made for made in self._programs if made.guard.unchanged())

    def forward(self, *args: object, **kwargs: object) -> object:
        """Run the model.

        Raises:
            RuntimeRefusal: gradients are asked for, or the shape is outside `dynamic_shapes`.
            CaptureError: the inputs are of another shape, and the model cannot be captured with it.
        """
        flat = flatten_call(args, kwargs)
        refuse_gradients(flat, self._specialiser.name, _TRAINING)
        specialised = self._find(flat, args, kwargs)
        for _ in range(_MOST_BUILDS):
            try:
                return self._fallback.run(
                    partial(specialised.program.run, flat.leaves, flat.objects, specialised.guard.check),
                    lambda: self._run_eagerly(args, kwargs),
                    passing=(Changed,),
                )
            except Changed:
                with self._lock:
                    specialised = self._build(flat, args, kwargs)
        return self._fallback.run_eagerly(
            "its weights change during the call", lambda: self._run_eagerly(args, kwargs)
        )

    def _run_eagerly(self, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        with torch.no_grad():
            return self._specialiser.module(*args, **kwargs)

    def emit(self, path: str | Path) -> list[Path]:
        """Write the program for the example inputs as files that run without torchport.

        Args:
            path: the program's file; others, such as its weights, are written beside it.

        Returns:
            The files that were written.

        Raises:
            CompileError: ops stay on the host, so that no program is all of the model.
            TargetError: the target writes no programs.

        Example:
            >>> compile(model, args, target="ttnn").emit("program.py")
        """
        return emit_program(self._first, self._specialiser.target, self._specialiser.options, Path(path))

    @property
    def simulated_seconds(self) -> float | None:
        """How long a call would take on the device, by an estimate, where it is only simulated here."""
        return simulated_seconds(self._first, self._specialiser.target, self._specialiser.options)

    def train(self, mode: bool = True) -> CompiledModel:
        """Refuse to change the mode: the program was captured in the one that the model was in."""
        if mode != self.training:
            wanted, was = ("training", "evaluation") if mode else ("evaluation", "training")
            raise RuntimeRefusal(
                f"the model was compiled in {was} mode and cannot change to {wanted} mode",
                where=self._specialiser.name,
                remedy=f"call .{'train' if mode else 'eval'}() on the model, then compile it again",
            )
        return self

    def __reduce__(self) -> str | tuple[object, ...]:
        raise RuntimeRefusal(
            "a compiled model cannot be pickled or deep-copied",
            where=self._specialiser.name,
            remedy="pickle or copy the model itself and compile it again",
        )

    def extra_repr(self) -> str:
        """Say what was compiled for what."""
        coverage = self.coverage
        return (
            f"{self._specialiser.name} on {coverage.target}: "
            f"{coverage.ops_before - coverage.ops_remain} of {coverage.ops_before} ops"
        )

    def _find(self, flat: Flat, args: Sequence[object], kwargs: Mapping[str, object]) -> Specialised:
        for specialised in self._programs:
            if specialised.fits(flat):
                return specialised
        with self._lock:
            return self._build(flat, args, kwargs)

    def _build(self, flat: Flat, args: Sequence[object], kwargs: Mapping[str, object]) -> Specialised:
        current = [made for made in self._programs if made.guard.unchanged()]
        for specialised in current:
            if specialised.fits(flat):
                return specialised  # another thread was faster
        if self._limits is not None:
            self._limits.check(flat.leaves, self._specialiser.name)
        if len(current) < len(self._programs):
            _log.info("%s: a weight changed, so its islands are built again", self._specialiser.name)
        else:
            _log.info("%s: inputs of another kind are compiled for", self._specialiser.name)
        made = self._specialiser.build(args, kwargs)
        self._made_first = self._made_first or made
        self._programs = (made, *current)[:_MOST_PROGRAMS]
        return made


def _limits(
    specialiser: Specialiser, args: Sequence[object], kwargs: Mapping[str, object], dynamic_shapes: object
) -> capture.ShapeLimits | None:
    if dynamic_shapes is None:
        return None
    captured = capture.export(
        specialiser.module, args, kwargs, name=specialiser.name, dynamic_shapes=dynamic_shapes
    )
    return capture.ShapeLimits.of(captured.program, captured.inputs.paths)
