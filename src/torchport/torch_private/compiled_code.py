"""The code that inductor generated for a graph, and torch's static launcher for Triton kernels."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType, MethodType
from typing import Any

from torchport.torch_private.names import find

_MOST = 2000  # objects to visit; a compiled graph consists of a few dozen
_KNOWN = frozenset({"runner", "min", "max"})  # names that a kernel's launcher code may use
_DATA_POINTER = "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR"


@dataclass(frozen=True, slots=True)
class StaticKernel:
    """A Triton kernel that torch's static launcher can launch.

    Args:
        function: the kernel's name in the cubin file.
        cubin: the path of the cubin file.
        warps: the number of warps per block.
        shared: the kernel's shared memory, in bytes.
        types: the types of its arguments, one letter each.
        scratch: the number of trailing scratch arguments, which are always None.
        launcher: the code of a function that computes the grid and calls `runner`.
    """

    function: str
    cubin: str
    warps: int
    shared: int
    types: str
    scratch: int
    launcher: CodeType


def wrapper_function(compiled: object) -> FunctionType | None:
    """Return the `call` function of inductor's generated module; None, and slower packages, without it."""
    seen: set[int] = set()
    waiting = [compiled]
    while waiting and len(seen) < _MOST:
        found = waiting.pop(0)
        if id(found) in seen:
            continue
        seen.add(id(found))
        if isinstance(found, FunctionType) and found.__name__ == "call" and "aten" in found.__globals__:
            return found
        waiting += _parts(found)
    return None


def _parts(found: object) -> Iterator[object]:
    """Yield the parts of a callable: its closure's contents, its bound object, its attributes."""
    if isinstance(found, FunctionType):
        for cell in found.__closure__ or ():
            try:
                yield cell.cell_contents
            except ValueError:  # an empty cell
                continue
        yield from vars(found).values()
    elif isinstance(found, MethodType):
        yield found.__func__
        yield found.__self__
    elif isinstance(found, functools.partial):
        yield found.func
    elif type(found).__module__.startswith(("torch._inductor", "torch._functorch", "torch._dynamo")):
        yield from getattr(found, "__dict__", {}).values()


def static_kernel(kernel: Any, device: int) -> StaticKernel | None:
    """Return how to launch a Triton kernel; None, and slower packages, if torch's static launcher cannot."""
    launchers: Sequence[Any] = getattr(kernel, "launchers", ())
    if type(kernel) is not find("CachingAutotuner") or len(launchers) != 1:
        return None
    [launcher] = launchers
    made: Any = getattr(launcher.__globals__.get("runner"), "__self__", None)
    if not hasattr(made, "arg_tys") or set(launcher.__code__.co_names) - _KNOWN:
        return None
    return StaticKernel(
        made.name,
        f"{find('triton_cache_dir')(device)}/{launcher.cache_hash}/{made.name}.cubin",
        made.num_warps,
        made.shared,
        made.arg_tys,
        sum(getattr(made, name, False) for name in ("has_global_scratch", "has_profile_scratch")),
        launcher.__code__,
    )


def load_static_kernel(path: str, name: str, shared: int, device: int) -> Callable[..., None]:
    """Load a kernel and return its launch function; without it, packages for GPUs load more slowly."""
    launcher = importlib.import_module("torch._C")._StaticCudaLauncher
    function = launcher._load_kernel(path, name, shared, device)[-3]  # 2.13 returns one more value before it
    return functools.partial(launcher._launch_kernel, function)


def load_kernel_library(path: str) -> Callable[..., None]:
    """Return the kernel function of a library that inductor compiled; without it, packages load more slowly.

    The library is a Python extension module. It reads the address of the function that returns a tensor's
    data pointer from an environment variable.
    """
    os.environ[_DATA_POINTER] = str(find("tensor_data_pointer"))
    spec = importlib.util.spec_from_file_location("kernel", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a library")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function: Callable[..., None] = module.kernel
    return function
