"""A model and its inputs → the stream of its ops: on fake tensors, or on copies of real ones."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Literal, cast

import torch
from torch import nn

from torchport.capture.callable_module import as_module, check_not_lazy
from torchport.capture.module_calls import ModuleCall, ModuleCalls, walk_tensors
from torchport.capture.quiet import as_eager, quiet_streams, without_collections
from torchport.capture.stream.live_memory import LiveMemory
from torchport.capture.stream.op_stream import OpRecorder, StreamedOp
from torchport.capture.tensor_specs import tensor_spec
from torchport.capture.untouched import (
    Once,
    StandIn,
    copy_of,
    faker,
    leaves_torch_as_it_was,
    nothing_remembered,
)
from torchport.capture.user_frames import user_line
from torchport.errors import CaptureError, one_line
from torchport.structure import call_arguments, flatten, flatten_call
from torchport.torch_private import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)

Values = Literal["fake", "real"]
# Under `inference_mode`, torch keeps composite ops whole, so they are recorded as the model calls them.
_Pass = Literal["inference", "training"]


@dataclass(frozen=True, slots=True)
class OpStream:
    """The record of a model's run.

    Args:
        module: the model.
        ops: the ops, in execution order.
        module_calls: the module calls, in the order in which they began.
        values: whether the run used fake or real tensors.
        note: why it used real tensors or autograd; empty for the usual run.
        higher_order: the number of runs of each higher-order op, such as `cond`; on fake tensors, all of its
            branches run, and its own kernel is not recorded.
    """

    module: nn.Module
    ops: tuple[StreamedOp, ...]
    module_calls: tuple[ModuleCall, ...]
    values: Values
    note: str
    higher_order: Mapping[str, int] = field(default_factory=dict)


@leaves_torch_as_it_was
def stream_ops(
    model: nn.Module | Callable[..., object],
    args: Sequence[object],
    kwargs: Mapping[str, object] | None = None,
    *,
    backward: bool = False,
    name: str = "",
) -> OpStream:
    """Run a model and return its ops.

    The model is not modified, and torch's state is restored. No weights are needed: a model on the meta
    device runs as it would on the CPU.

    Args:
        model: a module, or any callable on tensors.
        args, kwargs: its inputs, of any class.
        backward: whether to run the backward pass too, from every output that has a gradient. Composite ops
            are then recorded as the ops that autograd decomposes them into.
        name: the model's name in messages.

    Raises:
        CaptureError: the inputs do not match the forward, the model raises, or it needs values and has none.

    Example:
        >>> [op.call.name for op in stream_ops(torch.nn.Linear(2, 3), (torch.ones(1, 2),)).ops]
        ['aten::linear']
    """
    run = _Run(as_module(model), *call_arguments(args, kwargs), name or type(model).__name__)
    run.check_inputs()
    return run.first_that_works(backward)


class _Run:
    """Runs one model on one set of inputs, trying several ways in turn."""

    def __init__(
        self, module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object], name: str
    ) -> None:
        self._module = module
        self._inputs = flatten_call(args, kwargs)
        self._args = args
        self._kwargs = kwargs
        self._name = name
        self._at: ModuleCall | None = None  # the module call in which the last attempt failed

    def check_inputs(self) -> None:
        """Refuse inputs that do not match the signature of the model's forward.

        Raises:
            CaptureError: the inputs do not match; the message names the argument.
        """
        check_not_lazy(self._module, self._name)
        try:
            signature = inspect.signature(self._module.forward)
        except (TypeError, ValueError):
            return
        try:
            signature.bind(*self._args, **self._kwargs)
        except TypeError as error:
            raise CaptureError(
                f"the inputs do not match the model's forward{signature}: {error}",
                where=self._name,
                remedy="pass each argument once: positional ones in args, others by name in kwargs",
            ) from None

    def first_that_works(self, backward: bool) -> OpStream:
        """Return the stream of the first attempt to run the model that succeeds."""
        usual: _Pass = "training" if backward else "inference"
        ways: list[tuple[Values, _Pass]] = [("fake", usual), ("real", usual)]
        if not backward:  # a model that uses autograd within its forward cannot run in inference mode
            ways = [("fake", usual), ("fake", "training"), ("real", usual), ("real", "training")]
        if self._has_no_values():
            ways = [way for way in ways if way[0] == "fake"]
        errors: list[Exception] = []
        for values, kind in ways:
            if values == "fake" and errors and _depends_on_values(errors[0]):
                continue
            try:
                recorder, calls = self._try(values, kind, backward)
            except CaptureError:
                raise
            except Exception as error:  # noqa: BLE001  # a model may raise anything; the last is reported
                errors.append(error)
                continue
            note = self._note(values, kind != usual, errors)
            higher = dict(recorder.higher_order)
            return OpStream(self._module, tuple(recorder.ops), tuple(calls.calls), values, note, higher)
        raise self._explain(errors) from errors[-1]

    def _has_no_values(self) -> bool:
        held = [*self._module.parameters(), *self._module.buffers(), *self._inputs.leaves]
        return any(tensor.is_meta for tensor in held)

    def _try(self, values: Values, kind: _Pass, backward: bool) -> tuple[OpRecorder, ModuleCalls]:
        with ExitStack() as stack:
            stack.enter_context(quiet_streams())
            stack.enter_context(as_eager())
            stack.enter_context(without_collections())
            fake = FakeTensorMode(allow_non_fake_inputs=True) if values == "fake" else None
            substitute = Once(faker(fake) if fake is not None else copy_of)
            call = self._inputs.structure.rebuild([substitute(leaf) for leaf in self._inputs.leaves])
            args, kwargs = cast("tuple[tuple[object, ...], dict[str, object]]", call)
            stand_in = StandIn(self._module, substitute)
            stack.enter_context(nothing_remembered(self._module))
            memory = LiveMemory(substitute.results())
            calls = ModuleCalls(stand_in.module)
            recorder = OpRecorder(calls, memory, _owners(stand_in.module))
            stack.enter_context(torch.inference_mode() if kind == "inference" else torch.enable_grad())
            if fake is not None:
                stack.enter_context(fake)
            stack.enter_context(recorder)
            try:
                result = calls.run(stand_in.module, args, kwargs)
                if backward:
                    calls.recording, recorder.phase = False, "backward"
                    self._run_backward(result)
                    recorder.settle()
            except Exception:
                self._at = calls.current
                raise
            finally:
                for call in calls.calls:
                    call.module = stand_in.original(call.module)
        return recorder, calls

    def _run_backward(self, result: object) -> None:
        outputs = [leaf for _, leaf in walk_tensors(result, "") if leaf.requires_grad]
        if not outputs:
            raise CaptureError(
                "no output has a gradient, so there is no backward pass",
                where=self._name,
                remedy="make a parameter or an input require grad, with .requires_grad_()",
            )
        torch.autograd.backward(outputs, [torch.ones_like(output) for output in outputs])

    def _note(self, values: Values, unusual: bool, errors: list[Exception]) -> str:
        notes = []
        if values == "real":
            line = user_line(errors[0])
            notes.append(
                f"ran on real values, since the model does not run on fake tensors: {one_line(errors[0])}"
                + (f" (at {line})" if line else "")
            )
        if unusual:
            notes.append(
                "ran with autograd, which the model needs: composite ops are decomposed, and what autograd "
                "saves counts as memory"
            )
        return "; ".join(notes)

    def _explain(self, errors: list[Exception]) -> CaptureError:
        error = errors[-1]
        line = user_line(error)
        where = self._name + (f", {line}" if line else "")
        if self._has_no_values() and _depends_on_values(errors[0]):
            return CaptureError(
                f"the model's control flow depends on the values of a tensor, and the meta device has none "
                f"({one_line(errors[0])})",
                where=where,
                remedy="load it on the CPU, with values",
            )
        at = ""
        if self._at is not None:
            at = f" in {self._at.path or 'the model itself'} ({type(self._at.module).__name__})"
        return CaptureError(
            f"the model raises{at}: {one_line(error)}",
            where=where,
            remedy=f"check whether the inputs are right: {self._inputs_described()}",
        )

    def _inputs_described(self) -> str:
        try:
            bound = inspect.signature(self._module.forward).bind(*self._args, **self._kwargs).arguments
        except (TypeError, ValueError):
            bound = {str(index): value for index, value in enumerate(self._args)} | self._kwargs
        texts = []
        for name, value in bound.items():
            flat = flatten(value)
            for path, leaf in zip(flat.structure.paths, flat.leaves, strict=True):
                inner = "" if path == "output" else (path if path.startswith("[") else f".{path}")
                texts.append(f"{name}{inner} is {tensor_spec(leaf)}")
        return ", ".join(texts[:8]) + (", …" if len(texts) > 8 else "") if texts else "there are no tensors"


def _depends_on_values(error: Exception) -> bool:
    return isinstance(error, (DataDependentOutputException, DynamicOutputShapeException))


def _owners(module: nn.Module) -> dict[int, str]:
    return {
        id(parameter): path
        for path, part in module.named_modules()
        for parameter in part._parameters.values()
        if parameter is not None
    }
