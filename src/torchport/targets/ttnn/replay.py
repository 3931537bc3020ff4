"""Judges a program that was read, call by call, by simulated kernels on tensors without values.

This is what the builder did when it wrote the program. A program from elsewhere may say one shape and compute
another, or fill more memory than there is: both are found here, where nothing is allocated.
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
    """Refuse a program whose calls do not give what it says, or fill more memory than there is.

    Args:
        program: what was read.
        simulated: whether it takes this machine's memory, and not a chip's.

    Raises:
        TargetError: names the call.
    """
    most = min(MOST_BYTES, _memory()) if simulated else MOST_BYTES
    if peak_bytes(program) > most:
        raise TargetError(
            f"the program takes {peak_bytes(program):,} bytes at once, and there are {most:,}",
            where="ttnn",
            remedy=_REMEDY,
        )
    values = {item.name: without_values(item.tensor) for item in program.weights}
    with _Bounded():
        for call in program.load:
            values[call.results[0]] = _judged(call, values)
        values.update({item.name: without_values(item.tensor) for item in program.inputs})
        for call in program.calls:
            values[call.results[0]] = _judged(call, values)
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
    except (AttributeError, ValueError, OSError):  # another system
        return MOST_BYTES


def check_crossings(
    program: TtnnProgram, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
) -> None:
    """Refuse a program that takes or gives other tensors than the island.

    Raises:
        TargetError: names the first that differs.
    """
    for kind, crossings, specs in (
        ("takes", program.inputs, inputs),
        ("gives", program.outputs, outputs),
    ):
        said = [_spec(crossing) for crossing in crossings]
        if said != [(spec.shape, spec.dtype) for spec in specs]:
            raise TargetError(
                f"the program {kind} other tensors than the island", where="ttnn", remedy=_REMEDY
            )


def _spec(crossing: Crossing) -> tuple[tuple[int, ...], str]:
    return crossing.host_shape, crossing.host_dtype


def _judged(call: Call, values: Mapping[str, Held]) -> Held:
    def seen(item: Argument) -> Any:
        return values[item.name] if isinstance(item, Ref) else kernel_sees(item)

    kwargs = {key: mapped(item, seen) for key, item in call.kwargs}
    try:
        found: Held = FUNCTIONS[call.function](*mapped(call.args, seen), **kwargs)
        same = found.description == call.tensors[0]
    except TargetError:
        raise
    except Exception as error:  # a kernel that is called wrongly may raise anything
        raise TargetError(
            f"ttnn.{call.function} refuses: {one_line(error)[:200]}",
            where=f"ttnn, {call.results[0]}",
            remedy=_REMEDY,
        ) from error
    if not same:
        raise TargetError(
            f"ttnn.{call.function} gives {found.description}, not {call.tensors[0]}",
            where=f"ttnn, {call.results[0]}",
            remedy=_REMEDY,
        )
    return found


class _Bounded(TorchDispatchMode):
    """Refuses tensors that no chip has the memory for, also those that a kernel needs in between."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.nbytes > MOST_BYTES:
                raise TargetError(
                    "a tensor takes more memory than any chip has",
                    where=f"ttnn, {list(leaf.shape)}",
                    remedy=_REMEDY,
                )
        return result
