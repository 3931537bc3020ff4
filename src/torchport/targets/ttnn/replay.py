"""Checks a program that was read, call by call, by running simulated kernels on tensors without values.

The builder did the same when it wrote the program. An untrusted program may declare one shape and compute
another, or need more memory than there is: both are detected here, without allocating anything.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from torchport.errors import TargetError, one_line
from torchport.records import TensorSpec
from torchport.targets.ttnn.arguments import mapped
from torchport.targets.ttnn.builder import kernel_sees, without_values
from torchport.targets.ttnn.program_check import MOST_BYTES
from torchport.targets.ttnn.simulator import FUNCTIONS, Held
from torchport.targets.ttnn.transfers import peak_bytes
from torchport.targets.ttnn.ttnn_program import Argument, Call, Crossing, Ref, TtnnProgram
from torchport.torch_private import TorchDispatchMode, tree_leaves

_REMEDY = "compile the model again"


def check_calls(program: TtnnProgram, *, simulated: bool) -> None:
    """Refuse a program whose calls do not compute what it declares, or that needs too much memory.

    Args:
        program: the program that was read.
        simulated: whether it will use this machine's memory instead of a chip's.

    Raises:
        TargetError: the program is refused; the error names the call.
    """
    most = min(MOST_BYTES, _memory()) if simulated else MOST_BYTES
    if peak_bytes(program) > most:
        raise TargetError(
            f"the program needs {peak_bytes(program):,} bytes of memory, but there are only {most:,}",
            where="ttnn",
            remedy=_REMEDY,
        )
    values = {item.name: without_values(item.tensor) for item in program.weights}
    with _MemoryLimit():
        for call in program.load:
            values[call.results[0]] = _checked_result(call, values)
        values.update({item.name: without_values(item.tensor) for item in program.inputs})
        for call in program.calls:
            values[call.results[0]] = _checked_result(call, values)
            for name in call.frees:
                del values[name]
    for crossing in program.outputs:
        if values[crossing.name].description != crossing.tensor:
            raise TargetError(
                f"the program computes {values[crossing.name].description}, not {crossing.tensor}",
                where=f"ttnn, {crossing.name}",
                remedy=_REMEDY,
            )


def _memory() -> int:
    """Return how many bytes of memory this machine has."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not available on this operating system
        return MOST_BYTES


def check_crossings(
    program: TtnnProgram, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
) -> None:
    """Refuse a program whose inputs or outputs differ from the island's.

    Raises:
        TargetError: the error says whether the inputs or the outputs differ.
    """
    for kind, crossings, specs in (
        ("inputs", program.inputs, inputs),
        ("outputs", program.outputs, outputs),
    ):
        said = [_spec(crossing) for crossing in crossings]
        if said != [(spec.shape, spec.dtype) for spec in specs]:
            raise TargetError(f"the program's {kind} differ from the island's", where="ttnn", remedy=_REMEDY)


def _spec(crossing: Crossing) -> tuple[tuple[int, ...], str]:
    return crossing.host_shape, crossing.host_dtype


def _checked_result(call: Call, values: Mapping[str, Held]) -> Held:
    def seen(item: Argument) -> Any:
        return values[item.name] if isinstance(item, Ref) else kernel_sees(item)

    kwargs = {key: mapped(item, seen) for key, item in call.kwargs}
    try:
        found: Held = FUNCTIONS[call.function](*mapped(call.args, seen), **kwargs)
        same = found.description == call.tensors[0]
    except TargetError:
        raise
    except Exception as error:  # a kernel called with wrong arguments may raise anything
        raise TargetError(
            f"ttnn.{call.function} rejects the call: {one_line(error)[:200]}",
            where=f"ttnn, {call.results[0]}",
            remedy=_REMEDY,
        ) from error
    if not same:
        raise TargetError(
            f"ttnn.{call.function} returns {found.description}, not {call.tensors[0]}",
            where=f"ttnn, {call.results[0]}",
            remedy=_REMEDY,
        )
    return found


class _MemoryLimit(TorchDispatchMode):
    """Refuses tensors too large for any chip, including a kernel's intermediate tensors."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.nbytes > MOST_BYTES:
                raise TargetError(
                    "a tensor needs more memory than any chip has",
                    where=f"ttnn, {list(leaf.shape)}",
                    remedy=_REMEDY,
                )
        return result
