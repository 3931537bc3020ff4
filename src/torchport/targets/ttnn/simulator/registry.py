"""Which of ttnn's functions the simulator has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Kernel = Callable[..., Any]
KernelType = TypeVar("KernelType", bound=Kernel)

KERNELS: dict[str, Kernel] = {}


def kernel(*names: str) -> Callable[[KernelType], KernelType]:
    """Register a function under its names in the library, without the leading `ttnn.`."""

    def register(function: KernelType) -> KernelType:
        for name in names:
            assert name not in KERNELS, f"two kernels for {name}"
            KERNELS[name] = function
        return function

    return register
