"""The functions of ttnn's that programs call, and all that is known of each: one registry; no torch.

A function is registered where it is simulated, over its kernel in `simulator/`: the one place that names its
facts. What is not registered cannot be written into a program, and is not read from one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from torchport.targets.ttnn.ttnn_program import Call, DeviceTensor

Kernel = Callable[..., Any]
KernelType = TypeVar("KernelType", bound=Kernel)
Flops = Callable[[Call, Mapping[str, DeviceTensor]], float]
_PLACE = "memory_config"


@dataclass(frozen=True, slots=True)
class Function:
    """All that is known of one of ttnn's functions.

    Args:
        kernel: checks its arguments as the library does, or more strictly, and computes with torch; of
            tensors without values it infers what comes out. One definition serves verdicts and runs.
        keywords: its keyword arguments; a program may use no others.
        placeable: whether it can be told where its result lies. Others follow their input, as reductions do,
            or are given DRAM.
        flops: how many floating-point operations a call takes, on whole tiles; None for those whose time is
            that of moving their tensors.
        takes_both: whether a call takes tiles and rows alike, and gives what it takes.
        by_host: whether the host does it just as well while a tensor crosses.
        may_share: whether the result may be the operand's memory under another shape.
        reads_dram: whether what it reads lies in DRAM.
    """

    kernel: Kernel
    keywords: frozenset[str]
    placeable: bool
    flops: Flops | None
    takes_both: Callable[[Call], bool]
    by_host: bool
    may_share: bool
    reads_dram: bool

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the kernel; where a result lies changes nothing about it."""
        kwargs.pop(_PLACE, None)
        return self.kernel(*args, **kwargs)


FUNCTIONS: dict[str, Function] = {}


def function(
    *names: str,
    placeable: bool,
    flops: Flops | None,
    takes_both: bool | Callable[[Call], bool] = False,
    by_host: bool = False,
    may_share: bool = False,
    reads_dram: bool = False,
    keywords: str = "",
) -> Callable[[KernelType], KernelType]:
    """Register the decorated kernel under its names in the library, without the leading `ttnn.`.

    Args:
        names: what it is called.
        placeable, flops, takes_both, by_host, may_share, reads_dram: its facts; see `Function`.
        keywords: keyword arguments that its signature does not name.

    Raises:
        ValueError: a name is taken, or the kernel does not say which keyword arguments it takes.
    """
    both = takes_both if callable(takes_both) else lambda call: takes_both

    def register(kernel: KernelType) -> KernelType:
        parameters = inspect.signature(kernel).parameters.values()
        if any(item.kind is item.VAR_KEYWORD for item in parameters) and not keywords:
            raise ValueError(f"which keywords does ttnn.{names[0]} take?")
        known = {item.name for item in parameters if item.kind is item.KEYWORD_ONLY} | set(keywords.split())
        known |= {_PLACE} if placeable else set()
        for name in names:
            if name in FUNCTIONS:
                raise ValueError(f"two kernels for ttnn.{name}")
            FUNCTIONS[name] = Function(
                kernel, frozenset(known), placeable, flops, both, by_host, may_share, reads_dram
            )
        return kernel

    return register
