"""`torchport.trace`: a model → TorchScript with embedded compiled islands."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from torch import nn

from torchport import targets
from torchport.capture import ANY_BATCH, buffers_kept, values_kept
from torchport.compiler import CompiledModel
from torchport.compiler.kept_modules import check_kept_modules
from torchport.compiler.specialise import Specialiser
from torchport.errors import CompileError, PackageError, VerificationError
from torchport.packaging.compiler_args import read_compiler_args
from torchport.packaging.dynamic_graph import make_general
from torchport.packaging.kept_ops import Keep, keeping_on_host
from torchport.packaging.torchscript import General, Script, plain_result, to_torchscript
from torchport.records import DEFAULT_TARGET, Coverage, write_record
from torchport.targets.child_build import isolated
from torchport.torch_private import tree_map
from torchport.verification import LOW_PRECISION, Tolerance, assert_close
from torchport.verification.copied_tensors import copy_tensors

Callee = nn.Module | Callable[..., object]
Call = tuple[tuple[object, ...], dict[str, object]]


@dataclass(frozen=True, slots=True)
class TraceSettings:
    """Further options of `trace`.

    Args:
        fallback: whether ops may stay on the host; if not, an op that stays is an error.
        keep: a function of an op's name and its module's path that selects ops to keep on the host.
        dynamic_batch_size: whether the first dimension of the inputs may vary.
        dynamic_shapes: which dimensions may vary, in the form that `torch.export` takes; `"any"` for all that
            the model allows. The model's own graph is then embedded too, with its weights: eager torch runs
            it on inputs of other shapes than the example's.
        child_process: whether to run the compiler in a child process, so that it may crash or hang.
        compiled_form: whether to embed the device's own compiled form beside the portable one.
        separate_weights: a safetensors file to write the islands to, with their weights. The TorchScript
            refers to it: it must exist when the model is called.

    Raises:
        PackageError: both `dynamic_batch_size` and `dynamic_shapes` are given.
    """

    fallback: bool = True
    keep: Keep | None = None
    dynamic_batch_size: bool = False
    dynamic_shapes: object = None
    child_process: bool = True
    compiled_form: bool = True
    separate_weights: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        if self.dynamic_shapes is not None and self.dynamic_batch_size:
            raise PackageError(
                "both dynamic_batch_size and dynamic_shapes are given",
                remedy="name the first dimension in dynamic_shapes too",
            )


def trace(
    model: Callee,
    example_inputs: object = (),
    example_kwarg_inputs: Mapping[str, object] | None = None,
    *,
    target: str = DEFAULT_TARGET,
    compiler_args: Sequence[str] | Mapping[str, object] | None = None,
    compiler_timeout: float | None = None,
    compiler_workdir: str | os.PathLike[str] | None = None,
    check_trace: bool = True,
    check_inputs: Sequence[object] | None = None,
    check_tolerance: float | None = None,
    settings: TraceSettings | None = None,
    name: str = "",
) -> Script | Callee:
    """Compile a model ahead of time, and return it as TorchScript with the compiled islands embedded.

    Args:
        model: a module, its `forward`, or a function on tensors.
        example_inputs: a tensor, or a tuple or list of inputs. The traced model takes only these shapes,
            unless `settings` allows others.
        example_kwarg_inputs: keyword inputs by name.
        target: the target's name.
        compiler_args: the target's options, as a list of arguments or a dict; they apply to all islands.
        compiler_timeout: how many seconds the compiler may take per island.
        compiler_workdir: a folder in which to keep the plan and, for each island, what was compiled, the
            compiler's log, and its result.
        check_trace: whether to compare the result with eager torch.
        check_inputs: inputs to check with, each like `example_inputs`; by default `example_inputs`.
        check_tolerance: the relative and absolute tolerance of the check; by default the dtype's.
        settings: further options.
        name: the model's name in records and messages.

    Returns:
        A `ScriptModule` with one `forward`; for a function, a `ScriptFunction`; for a model in training mode,
        the model itself. Its `torchport_report` is the program's record as JSON.

    Raises:
        subprocess.TimeoutExpired: the compiler took longer than `compiler_timeout`.
        VerificationError: the traced model differs from the original; names the output and its error.
        CompileError: an op stays on the host, and `fallback` is off.
        CaptureError, TargetError, PackageError: the model cannot be captured, compiled, or converted to
            TorchScript.

    Example:
        >>> traced = trace(torch.nn.ReLU().eval(), torch.ones(2), target="host")
        >>> traced.save("relu.pt")
    """
    module = _module_of(model)
    if module is not None and module.training:
        return model
    found = targets.find_engine(target)
    wanted = settings or TraceSettings()
    if not isinstance(wanted, TraceSettings):
        raise PackageError(f"settings takes a torchport.TraceSettings, not {settings!r:.60}")
    _check_number("compiler_timeout", compiler_timeout)
    _check_number("check_tolerance", check_tolerance)
    given = {"speed_trial": wanted.fallback}  # without fallback, a slower island must be kept
    if compiler_workdir is not None:
        given["cache"] = False  # a cache hit would leave nothing in the folder
    chosen = found.make_options(given | read_compiler_args(compiler_args, found))
    found.options_from_file(found.options_json(chosen))  # fail now if loading the file would be refused
    callee = module if module is not None else model
    name = name or getattr(callee, "__name__", type(callee).__name__)
    args, kwargs = _inputs(example_inputs, example_kwarg_inputs)
    check_kept_modules(callee, chosen, name)
    builder = isolated(found, compiler_timeout, compiler_workdir) if wanted.child_process else found
    if wanted.keep is not None:
        builder = keeping_on_host(builder, wanted.keep)
    compiled = CompiledModel(Specialiser(callee, builder, chosen, name), args, kwargs)
    if compiler_workdir is not None:
        write_record(compiled.record, Path(compiler_workdir, "plan.json"))
    if not wanted.fallback:
        _refuse_host_ops(compiled.coverage)
    [specialised] = compiled.current_programs
    script = to_torchscript(
        specialised,
        _signature(model),
        args,
        kwargs,
        as_function=not isinstance(callee, nn.Module),
        compiled_form=wanted.compiled_form,
        general=_general(compiled, args, kwargs, wanted),
        separate_weights=None if wanted.separate_weights is None else Path(wanted.separate_weights),
    )
    if check_trace:
        allowed = LOW_PRECISION if found.is_low_precision(chosen) else None
        if check_tolerance is not None:
            allowed = Tolerance(check_tolerance, check_tolerance)
        _check(script, callee, _checks(check_inputs, args, kwargs), allowed, name)
    return script


def _check_number(name: str, value: float | None) -> None:
    if value is None:
        return
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
        raise PackageError(f"{name} must be a number of at least 0, not {value!r:.60}")


def _general(
    compiled: CompiledModel, args: tuple[object, ...], kwargs: dict[str, object], settings: TraceSettings
) -> General | None:
    """Return the model's graph for other shapes, if the settings allow any."""
    shapes = ANY_BATCH if settings.dynamic_batch_size else settings.dynamic_shapes
    if shapes is None:
        return None
    return make_general(compiled.original, args, kwargs, dynamic_shapes=shapes, name=compiled.record.model)


def _module_of(model: Callee) -> nn.Module | None:
    """Return the module, if the model is one or is the `forward` of one."""
    if isinstance(model, nn.Module):
        return model
    owner = getattr(model, "__self__", None)
    is_forward = isinstance(owner, nn.Module) and getattr(model, "__name__", "") == "forward"
    return owner if is_forward else None


def _inputs(example_inputs: object, example_kwarg_inputs: Mapping[str, object] | None) -> Call:
    if isinstance(example_inputs, (tuple, list)):
        args = tuple(example_inputs)
    else:
        args = (example_inputs,)
    seen: set[int] = set()

    def own(value: object) -> object:
        if not isinstance(value, torch.Tensor) or id(value) not in seen:
            seen.add(id(value))
            return value
        return value.clone()  # TorchScript needs a distinct tensor for each input

    return cast("Call", tree_map(own, (args, dict(example_kwarg_inputs or {}))))


def _signature(model: Callee) -> inspect.Signature:
    try:
        return inspect.signature(model.forward if isinstance(model, nn.Module) else model)
    except (TypeError, ValueError):  # a builtin has none
        return inspect.Signature()


def _refuse_host_ops(coverage: Coverage) -> None:
    if coverage.complete:
        return
    first = coverage.stayed[0]
    others = f", and {len(coverage.stayed) - 1} more" if len(coverage.stayed) > 1 else ""
    raise CompileError(
        f"{first.op} stays on the host ({first.reason}: {first.detail}){others}",
        where=first.source or first.module_path or coverage.model,
        remedy=first.remedy or "allow it with settings=TraceSettings(fallback=True)",
    )


def _checks(
    check_inputs: Sequence[object] | None, args: tuple[object, ...], kwargs: dict[str, object]
) -> list[Call]:
    if check_inputs is None:
        return [(args, kwargs)]
    return [_inputs(given, kwargs) for given in check_inputs]


def _check(
    script: Script, callee: Callee, calls: Sequence[Call], allowed: Tolerance | None, name: str
) -> None:
    """Compare the traced model with the original, without changing the state of either."""
    for number, call in enumerate(calls):
        expected = _run(callee, call)
        try:
            assert_close(_run(script, call), plain_result(expected), tolerance=allowed)
        except VerificationError as error:
            raise VerificationError(
                f"the traced model differs from the model on check input {number}: {error.what}",
                where=f"{name}, {error.where}",
                remedy="keep the ops at fault on the host, or pass check_tolerance",
            ) from error


def _run(call: Callable[..., object], inputs: Call) -> object:
    args, kwargs = cast("Call", copy_tensors(inputs))  # the call may mutate them
    if isinstance(call, torch.jit.ScriptModule):
        kept: AbstractContextManager[None] = values_kept(call.buffers())
    else:
        kept = buffers_kept(call if isinstance(call, nn.Module) else nn.Module())
    with torch.no_grad(), torch.random.fork_rng(devices=[]), kept:
        torch.manual_seed(0)
        return copy_tensors(call(*args, **kwargs))
