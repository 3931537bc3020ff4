"""The registry of ttnn functions that programs may call, with their properties; does not need torch.

A function is registered by a decorator on its simulated kernel in `simulator/`, the only place that states
its properties. A function that is not registered cannot be written into a program or read from one.
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
    """A ttnn function and its properties.

    Args:
        kernel: checks its arguments as the library does, or more strictly, and computes with torch; for
            tensors without values it infers the result. One definition serves verdicts and runs.
        keywords: the keyword arguments that a program may use.
        placeable: whether it takes a `memory_config` for its result. The results of others go where their
            input is, as in reductions, or to DRAM.
        flops: how many floating-point operations a call takes, counting whole tiles; None if only moving its
            tensors takes time.
        takes_both: whether a call accepts tiles and rows alike, and keeps its input's layout.
        by_host: whether the host can do it just as well while a tensor is transferred.
        may_share: whether the result may alias the operand's memory, under another shape.
        reads_dram: whether its operands must lie in DRAM.
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
        """Call the kernel; its memory placement does not affect the result."""
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
        names: the function's names.
        placeable, flops, takes_both, by_host, may_share, reads_dram: its properties; see `Function`.
        keywords: keyword arguments that its signature does not name.

    Raises:
        ValueError: a name is taken, or the kernel has `**kwargs` and `keywords` is empty.
    """
    both = takes_both if callable(takes_both) else lambda call: takes_both

    def register(kernel: KernelType) -> KernelType:
        parameters = inspect.signature(kernel).parameters.values()
        if any(item.kind is item.VAR_KEYWORD for item in parameters) and not keywords:
            raise ValueError(f"the kernel of ttnn.{names[0]} takes **kwargs: list them in keywords=")
        known = {item.name for item in parameters if item.kind is item.KEYWORD_ONLY} | set(keywords.split())
        known |= {_PLACE} if placeable else set()
        for name in names:
            if name in FUNCTIONS:
                raise ValueError(f"ttnn.{name} already has a kernel")
            FUNCTIONS[name] = Function(
                kernel, frozenset(known), placeable, flops, both, by_host, may_share, reads_dram
            )
        return kernel

    return register
