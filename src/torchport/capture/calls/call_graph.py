"""Captures a model as the calls that its code makes: modules, functions, methods, properties."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType

from torch import fx, nn

from torchport.capture.callable_module import as_module, check_not_lazy
from torchport.capture.calls.call_inputs import Argument, list_arguments, place_inputs
from torchport.capture.calls.call_outputs import output_of
from torchport.capture.calls.dispatch_mode import OpMode
from torchport.capture.calls.fake_calls import FakeCalls, RealCalls
from torchport.capture.calls.function_mode import CallMode
from torchport.capture.calls.recorder import Recorder
from torchport.capture.calls.second_run import first_difference, guard_sizes
from torchport.capture.calls.tensor_nodes import LostTensor
from torchport.capture.calls.traced_calls import follow_modules, leaves
from torchport.capture.calls.value_reads import OnDataDependent, ValueReads
from torchport.capture.calls.varied_inputs import OTHER_VALUES, Size, with_other_values
from torchport.capture.replaced_buffers import HeldBuffer, held_buffers, replaced
from torchport.capture.untouched import StandIn, copy_of, leaves_torch_as_it_was, nothing_remembered
from torchport.capture.user_frames import user_line
from torchport.errors import CaptureError, TorchportError, one_line
from torchport.structure import flatten
from torchport.torch_private import FAKE_TENSOR_LOGGER, compiling


@dataclass(frozen=True, slots=True)
class CallGraph:
    """A model as the calls that its code makes.

    Args:
        graph: the calls.
        parts: the modules and tensors that it uses, by path.
        model: the model.
        arguments: the example inputs.
        free: the input sizes that may vary; None if the model reads no size.
    """

    graph: fx.Graph
    parts: dict[str, object]
    model: nn.Module
    arguments: tuple[Argument, ...]
    free: tuple[Size, ...] | None


@leaves_torch_as_it_was
def capture_calls(
    model: nn.Module | Callable[..., object],
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
    *,
    name: str = "",
    on_data_dependent: OnDataDependent = "error",
) -> CallGraph:
    """Capture the calls that a model makes on example inputs.

    The model runs on fake tensors; on real ones with `specialize`, or if it does not run on fake ones. It may
    run several times, with other sizes and values.

    Args:
        model: a module or function.
        args: its positional inputs.
        kwargs: its keyword inputs.
        name: the model's name in messages.
        on_data_dependent: what to do when the model reads a tensor's value: `error` or `specialize`.

    Raises:
        CaptureError: the model raises, or its control flow depends on values.

    Example:
        >>> graph = capture_calls(torch.nn.Sequential(torch.nn.Linear(2, 3)), (torch.ones(1, 2),)).graph
        >>> [node.op for node in graph.nodes]
        ['placeholder', 'call_module', 'output']
    """
    module = as_module(model)
    name = name or type(model).__name__
    check_not_lazy(module, name)
    session = _Session(module, name, on_data_dependent, sys._getframe())
    arguments = list_arguments(module, args, kwargs or {})
    try:
        return session.capture(arguments)
    except TorchportError:
        raise
    except LostTensor as error:
        raise CaptureError(
            "a tensor comes from a source that cannot be traced", where=f"{session.name}, {user_line(error)}"
        ) from error
    except Exception as error:  # a model may raise anything: it is explained here, once
        raise CaptureError(
            f"the model raises {one_line(error)}",
            where=f"{session.name}, {user_line(error)}",
            remedy="call the model on these inputs without torchport, and fix it or the inputs first",
        ) from error


class _Session:
    """Captures one model, with inputs of several sizes where needed.

    Args:
        model: the model.
        name: its name in messages.
        policy: what to do when the model reads a tensor's value.
        outermost: the frame that bounds the model's code.
    """

    def __init__(self, model: nn.Module, name: str, policy: OnDataDependent, outermost: FrameType) -> None:
        self.model = model
        self.name = name
        self._policy = policy
        self._outermost = outermost
        # On real tensors, a result that was not recorded would look like a constant.
        self._sees_ops = policy != "error"
        self._calls: FakeCalls | RealCalls = FakeCalls() if policy == "error" else RealCalls()
        self._as_compiler = False
        self._values_were_read = False

    def capture(self, arguments: list[Argument]) -> CallGraph:
        """Capture the model, with guards on whatever does not hold for other sizes.

        A model that reads values in eager mode may not do so under a compiler: transformers reads its masks
        to skip them, but keeps them when compiling. So a refused model is captured again as if compiled.
        """
        try:
            return self._capture(arguments)
        except CaptureError as refusal:
            if not self._values_were_read:
                raise
            in_eager_mode = refusal
        self._as_compiler = True
        self._sees_ops = False
        self._calls = FakeCalls()
        self._values_were_read = False
        try:
            return self._capture(arguments)
        except Exception as refusal:  # it may not support compilation: then the eager-mode error counts
            if self._values_were_read:
                raise
            raise in_eager_mode from refusal

    def _capture(self, arguments: list[Argument]) -> CallGraph:
        recorder = self._run_with_fallback(arguments)
        if isinstance(self._calls, RealCalls) and self._policy == "error":
            self._try_other_values(recorder, arguments)
        free = None
        if recorder.sizes_were_read:
            free = guard_sizes(recorder, arguments, self._run)
        parts = _used_parts(self.model, recorder)
        return CallGraph(recorder.graph, parts, self.model, tuple(arguments), free)

    def _try_other_values(self, recorder: Recorder, arguments: list[Argument]) -> None:
        """Refuse a model whose calls change with the values, which fake tensors would have detected."""
        others = [with_other_values(arguments, change) for change in OTHER_VALUES]
        tried = [changed for changed in others if changed is not None]
        if not tried:
            return  # the inputs contain no values that can be varied
        ran = 0
        for changed in tried:
            try:
                second = self._run(changed)
            except TorchportError:
                raise
            except Exception:  # noqa: BLE001  # the model may not accept other values
                continue
            line = first_difference(recorder, second)
            if line is not None:
                raise self._reads(recorder).refusal("a data-dependent shape", line)
            ran += 1
        if not ran:
            raise CaptureError(
                "the shapes of its tensors depend on values, and it does not run on values other than the "
                "example's, so nothing shows whether its calls depend on them too",
                where=self.name,
                remedy='trace it with on_data_dependent="specialize", for the values of the example',
            )

    def _run_with_fallback(self, arguments: list[Argument]) -> Recorder:
        """Run on fake tensors, or on real ones if the model does not run on fake ones."""
        try:
            return self._run(arguments)
        except TorchportError:
            raise
        except LostTensor:
            self._sees_ops = True
            return self._run(arguments)
        except Exception:  # a model may raise anything, and fake tensors may raise where real ones do not
            if isinstance(self._calls, RealCalls) or _has_no_values(self.model, arguments):
                raise
            self._calls = RealCalls()
            self._sees_ops = True
            return self._run(arguments)

    def _reads(self, recorder: Recorder) -> ValueReads:
        def note() -> None:
            self._values_were_read = True

        return ValueReads(recorder, self._calls, self._policy, self.name, note)

    def _run(self, arguments: list[Argument]) -> Recorder:
        calls = self._calls
        stand_in = StandIn(self.model, copy_of if isinstance(calls, RealCalls) else None)
        model = stand_in.module
        whole = leaves(model)
        recorder = Recorder(model, calls, whole, self._outermost)
        reads = self._reads(recorder)
        args, kwargs = place_inputs(recorder, calls, arguments)
        with nothing_remembered(self.model), _without_logs():
            buffers = held_buffers(model)
            follow_modules(model, whole, recorder)
            try:
                mode = CallMode(recorder, calls, reads, sees_ops=self._sees_ops)
                ops = OpMode(recorder) if self._sees_ops else contextlib.nullcontext()
                seen_as = compiling() if self._as_compiler else contextlib.nullcontext()
                with seen_as, ops, mode:
                    result = model(*args, **kwargs)
            finally:
                recorder.active = False
            _write_replaced(recorder, buffers, self.name)
            reads.check_written()
            recorder.graph.output(output_of(recorder, result, self.name))
            recorder.finish()
        constants = recorder.tensors.constants
        constants.update({path: stand_in.original(tensor) for path, tensor in constants.items()})
        return recorder


@contextlib.contextmanager
def _without_logs() -> Iterator[None]:
    """Suppress what this thread's fake tensors log: full tracebacks of errors that are also raised."""
    thread = threading.get_ident()
    logger = logging.getLogger(FAKE_TENSOR_LOGGER)

    def keep(record: logging.LogRecord) -> bool:
        return record.thread != thread

    logger.addFilter(keep)
    try:
        yield
    finally:
        logger.removeFilter(keep)


def _has_no_values(model: nn.Module, arguments: list[Argument]) -> bool:
    """Whether the model or its inputs are on the meta device, so that it cannot run on real values."""
    inputs = flatten([argument.value for argument in arguments]).leaves
    return any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers(), *inputs))


def _write_replaced(recorder: Recorder, before: list[HeldBuffer], name: str) -> None:
    """Turn the reassignment of a buffer, `self.count = self.count + 1`, into a write."""
    try:
        for _, old, new in replaced(before):
            args = (recorder.node_of(old, None), recorder.node_of(new, None))
            recorder.describe(recorder.graph.call_method("copy_", args), None, None)
    except ValueError as error:
        raise CaptureError(str(error), where=name) from error


def _used_parts(model: nn.Module, recorder: Recorder) -> dict[str, object]:
    parts: dict[str, object] = dict(recorder.tensors.constants)
    for node in recorder.graph.nodes:
        if node.op in ("call_module", "get_attr") and node.target not in parts:
            parts[node.target] = _find(model, node.target)
    return parts


def _find(model: nn.Module, path: str) -> object:
    found: object = model
    for name in path.split("."):
        found = getattr(found, name)
    return found
