"""The compiled model: called like the model; correct for every input, or refuses with a reason."""

from __future__ import annotations

import logging
import subprocess
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import nn

from torchport import capture
from torchport.compiler.emission import emit_program, simulated_seconds
from torchport.compiler.open_sizes import why_not_open
from torchport.compiler.specialise import Specialised, Specialiser
from torchport.compiler.weights import Changed, run_with_current_weights
from torchport.errors import CaptureError, RuntimeRefusal
from torchport.records import Coverage, Fallbacks, ModelGraph, ProgramRecord, Tries
from torchport.runtime.eager_fallback import EagerFallback, NotCompiled
from torchport.runtime.input_kind import refuse_gradients
from torchport.structure import Flat, flatten_call

_log = logging.getLogger(__name__)

# Each holds another copy of the weights in the device's format; the oldest is evicted first.
_MOST_PROGRAMS = 16

TRAINING = 'call it under torch.no_grad(), or train with torch.compile(model, backend="torchport")'


class CompiledModel(nn.Module):
    """A model compiled for a target. Made by `torchport.compile`.

    Args:
        specialiser: compiles the model for given inputs.
        args, kwargs: example inputs.
        dynamic_shapes: which dimensions may vary.
        lazily: whether to compile when it is first called or inspected, rather than now.
        captured: the model captured for the example inputs, if it was already.

    It holds the model's own parameters and buffers under their own names. It detects changes to weights, and
    rebuilds the islands. Inputs of another shape are compiled for when they first occur, unless there is a
    program for all sizes of the dimensions that vary.
    """

    def __init__(
        self,
        specialiser: Specialiser,
        args: Sequence[object],
        kwargs: Mapping[str, object],
        dynamic_shapes: object = None,
        *,
        lazily: bool = False,
        captured: capture.CapturedModel | None = None,
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
        self._tries: Tries | None = None
        self._examples = args, kwargs
        self._dynamic_shapes = dynamic_shapes
        self._limits: capture.ShapeLimits | None = None
        takes_open = specialiser.target.takes_open_sizes(specialiser.options)
        self._is_open = dynamic_shapes is not None and takes_open
        self._captured = self._capture_open() if dynamic_shapes is not None else None
        self._explained: set[str] = set()
        self._made_first: Specialised | None = None
        self._programs: tuple[Specialised, ...] = ()
        if not lazily:
            self._build_first(captured)

    @property
    def _first(self) -> Specialised:
        """The program for the example inputs, or the one that a call made first."""
        with self._lock:
            return self._made_first or self._build_first()

    def _build_first(self, captured: capture.CapturedModel | None = None) -> Specialised:
        captured = captured if self._dynamic_shapes is None else None  # it is for fixed sizes
        made = self._build_open()
        if made is None and captured is not None:
            made = self._specialiser.build_captured(captured)
        made = self._made_first = made or self._specialiser.build(*self._examples)
        self._programs = (made, *self._programs)
        return made

    def _capture_open(self) -> capture.CapturedModel:
        """Capture the model with open sizes, and record their limits."""
        module, name = self._specialiser.module, self._specialiser.name
        captured = capture.export(module, *self._examples, name=name, dynamic_shapes=self._dynamic_shapes)
        self._limits = capture.ShapeLimits.of(captured.program, captured.inputs.paths)
        return captured

    def _build_open(self) -> Specialised | None:
        """Return one program for all sizes that may vary; None, now and later, if that fails."""
        if not self._is_open:
            return None
        captured, self._captured = self._captured or self._capture_open(), None
        try:
            return self._specialiser.build_open(captured)
        except subprocess.TimeoutExpired:
            raise  # the caller who set the limit should see it
        except Exception as error:  # noqa: BLE001  # if it is the model's fault, it is raised again
            _log.warning(
                "%s: each size is compiled separately: %s", self._specialiser.name, why_not_open(error)
            )
            self._is_open = False
            return None

    @property
    def coverage(self) -> Coverage:
        """Which ops the target took, and why the rest stayed on the host."""
        return self.record.coverage

    @property
    def record(self) -> ProgramRecord:
        """The full record of the program for the example inputs."""
        return self._first.program.record

    @property
    def graph(self) -> ModelGraph:
        """The graph for the example inputs: every op, what feeds it, and where it runs."""
        return self._first.graph

    @property
    def programs(self) -> list[ProgramRecord]:
        """The records of all programs compiled so far, one for each kind of input."""
        return [specialised.program.record for specialised in self._programs]

    @property
    def fallbacks(self) -> Fallbacks:
        """How many calls there were, how many fell back to eager torch, and why the last one did."""
        return self._fallback.record

    @property
    def tries(self) -> Tries | None:
        """The result of trying each engine, for a model compiled for `auto`; otherwise None."""
        return self._tries

    def keep_tries(self, tries: Tries) -> None:
        """Store the result of trying each engine."""
        self._tries = tries

    @property
    def original(self) -> nn.Module:
        """The module that was compiled; for a function, one that calls it."""
        return self._specialiser.module

    def prove_sizes_of_one(self) -> None:
        """Find out for which sizes of 1 the programs with open sizes are correct, before they are saved."""
        with self._lock:
            for each in list(self._programs):
                self._prove_sizes_of_one(each)

    def _prove_sizes_of_one(self, specialised: Specialised) -> None:
        for leaves in () if specialised.ones is None else specialised.ones.unknown(specialised.examples):
            call = specialised.kind.structure.rebuild(leaves)
            assert isinstance(call, tuple)  # the structure of (args, kwargs)
            try:
                captured = self._specialiser.capture_for(*call)
            except CaptureError:
                continue  # the model does not accept it
            widened = specialised.widened(flatten_call(*call), captured)
            if widened is not None:
                self._made_first = widened if self._made_first is specialised else self._made_first
                self._programs = tuple(widened if each is specialised else each for each in self._programs)
                specialised = widened

    @property
    def current_programs(self) -> tuple[Specialised, ...]:
        """The programs built with the current weights, that of the example inputs first."""
        first = self._first
        return tuple(sorted(self.built_programs, key=lambda made: made is not first))

    @property
    def built_programs(self) -> tuple[Specialised, ...]:
        """The programs built so far with the current weights; builds none."""
        return tuple(made for made in self._programs if made.guard.unchanged())

    def forward(self, *args: object, **kwargs: object) -> object:
        """Run the model.

        Raises:
            RuntimeRefusal: gradients are required, or the shape is outside `dynamic_shapes`.
            CaptureError: the inputs have a new shape, and the model cannot be captured with it.
        """
        flat = flatten_call(args, kwargs)
        refuse_gradients(flat, self._specialiser.name, TRAINING)
        eager = partial(self._run_eagerly, args, kwargs)

        def run(made: Specialised) -> object:
            compiled = partial(made.program.run, flat.leaves, flat.objects, made.guard.check)
            return self._fallback.run(compiled, eager, passing=(Changed,))

        def rebuild(_: Specialised) -> Specialised:
            with self._lock:
                return self._build(flat, args, kwargs)

        found = self._find(flat, args, kwargs)
        try:
            return run_with_current_weights(found, run, rebuild)
        except NotCompiled as error:
            reason = str(error)
        return self._fallback.run_eagerly(reason, eager)

    def _run_eagerly(self, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        with torch.no_grad():
            return self._specialiser.module(*args, **kwargs)

    def emit(self, path: str | Path) -> list[Path]:
        """Write the program for the example inputs as files that run without torchport.

        Args:
            path: the program's file; others, such as its weights, are written next to it.

        Returns:
            The files that were written.

        Raises:
            CompileError: ops stay on the host, so no program covers the whole model.
            TargetError: the target cannot write programs.

        Example:
            >>> compile(model, args, target="ttnn").emit("program.py")
        """
        return emit_program(self._first, self._specialiser.target, self._specialiser.options, Path(path))

    @property
    def simulated_seconds(self) -> float | None:
        """An estimate of a call's time on the device, if the device is only simulated here."""
        return simulated_seconds(self._first, self._specialiser.target, self._specialiser.options)

    def train(self, mode: bool = True) -> CompiledModel:
        """Refuse to change the mode: the program was captured in the model's mode at that time."""
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
        """Return the model's name, the target, and how many ops it takes."""
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
            _log.info("%s: a weight changed, so its islands are rebuilt", self._specialiser.name)
        else:
            _log.info("%s: compiling for a new kind of inputs", self._specialiser.name)
        made, others = self._make(flat, args, kwargs, current)
        self._made_first = self._made_first or made
        self._programs = (made, *others)[:_MOST_PROGRAMS]
        return made

    def _make(
        self, flat: Flat, args: Sequence[object], kwargs: Mapping[str, object], current: list[Specialised]
    ) -> tuple[Specialised, list[Specialised]]:
        """Return a program for new inputs, for all sizes if possible, and the other programs to keep."""
        if self._is_open and not any(each.is_open for each in current):
            made = self._build_open()
            if made is not None and made.fits(flat):
                return made, current
            current = current if made is None else [made, *current]
        captured = self._specialiser.capture_for(args, kwargs)
        for each in current:
            widened = each.widened(flat, captured)
            if widened is not None:
                self._made_first = widened if self._made_first is each else self._made_first
                return widened, [other for other in current if other is not each]
        self._explain_another(flat, current)
        return self._specialiser.build_captured(captured), current

    def _explain_another(self, flat: Flat, current: Sequence[Specialised]) -> None:
        """Log, once for each reason, why inputs get a program of their own although sizes may vary."""
        if self._dynamic_shapes is None or not current:
            return
        reason = next((each.kind.why_not(flat) for each in current if each.is_open), "")
        target = self._specialiser.target
        if not target.takes_open_sizes(self._specialiser.options):
            reason = f"the target {target.name} only builds for fixed sizes"
        if reason and reason not in self._explained:
            self._explained.add(reason)
            _log.warning(
                "%s: these inputs, and each other size of them, are compiled separately: %s",
                self._specialiser.name,
                reason,
            )
