"""Loads a package, runs it, and summarizes its results and timings."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from torchport.errors import PackageError
from torchport.packaging.load_model import load
from torchport.packaging.loaded_model import LoadedModel
from torchport.records import OutputSummary, PackageRun
from torchport.runtime.input_kind import InputKind, LeafKey
from torchport.structure import tensors_in

if TYPE_CHECKING:
    from torchport.packaging.loaded_generation import LoadedGeneratingModel

_MOST_ELEMENTS = 1 << 31  # in all random inputs together
_SIZES = (2, 1, *range(3, 65), *(1 << power for power in range(7, 15)))  # values to try for open sizes


def run_package(
    path: str | os.PathLike[str],
    args: Sequence[object] | None = None,
    kwargs: Mapping[str, object] | None = None,
    *,
    classes: Iterable[type] = (),
    namespaces: Iterable[str] = (),
) -> PackageRun:
    """Load a model from a `.pt2` file and run it.

    Args:
        path: the file.
        args, kwargs: the inputs; by default random ones of the kind that the model was first compiled for. If
            the file only generates: a prompt's token ids, which `prefill` runs; by default one token, 0.
        classes, namespaces: as in `torchport.load`.

    Raises:
        PackageError: the file cannot be loaded.
        RuntimeRefusal: the file has no program for these inputs.

    Example:
        >>> run_package("relu.pt2", (torch.tensor([-1.0, 1.0]),)).outputs[0].maximum
        1.0
    """
    start = time.perf_counter()
    model = load(path, classes=classes, namespaces=namespaces)
    loaded = time.perf_counter()
    call: Callable[..., object] = model
    if model.package.generation is not None and not model.kinds:
        call = _logits_of(model)  # type: ignore[arg-type]  # `load` returns that class for such a file
        args = (torch.zeros(1, 1, dtype=torch.long),) if args is None else args
    elif args is None and kwargs is None:
        args, kwargs = _random_inputs(model)
    first, result = _timed(call, args or (), kwargs or {})
    summaries = tuple(_summary(name, tensor) for name, tensor in tensors_in(result))
    second, _ = _timed(call, args or (), kwargs or {})
    package = model.package
    return PackageRun(
        os.fspath(path), package.model, package.target, loaded - start, first, second, summaries
    )


def _logits_of(model: LoadedGeneratingModel) -> Callable[[torch.Tensor], dict[str, torch.Tensor]]:
    """Return a stand-in for the missing forward: token ids in, the next token's logits out."""
    return lambda ids: {"logits": model.prefill(ids)[0]}


def _timed(
    model: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]
) -> tuple[float, object]:
    start = time.perf_counter()
    with torch.no_grad():
        result = model(*args, **kwargs)
    return time.perf_counter() - start, result


def _random_inputs(model: LoadedModel) -> tuple[tuple[object, ...], dict[str, object]]:
    """Return inputs of the first kind: reproducible random floats in [0, 1); zeros for integers."""
    kind = model.kinds[0]
    generator = torch.Generator().manual_seed(0)
    keys = _with_sizes(kind)
    if sum(_elements(key) for key in keys) > _MOST_ELEMENTS:
        raise _no_inputs(", ".join(map(_described, keys)))
    leaves = [_random_input(key, generator) for key in keys]
    call = kind.structure.rebuild(leaves)
    if not (isinstance(call, tuple) and len(call) == 2 and isinstance(call[1], dict)):
        raise PackageError("the package does not record its inputs", remedy="get the file again")
    return call


def _with_sizes(kind: InputKind) -> list[LeafKey]:
    """Return the kinds of tensors that a program takes, with the same number for all open sizes."""
    if not any(-1 in key[0] for key in kind.keys):
        return list(kind.keys)
    for size in _SIZES:
        shapes = [torch.Size(size if each == -1 else each for each in key[0]) for key in kind.keys]
        if kind.holds_for(shapes):
            return [(shape, *key[1:]) for shape, key in zip(shapes, kind.keys, strict=True)]
    raise _no_inputs(", ".join(map(_described, kind.keys)))


def _random_input(key: LeafKey, generator: torch.Generator) -> torch.Tensor:
    shape, dtype, device, strides = key
    if device.type != "cpu":
        raise _no_inputs(_described(key))
    made = torch.zeros(shape, dtype=dtype)
    if dtype.is_floating_point:
        made = torch.rand(shape, generator=generator).to(dtype)
    if strides is None:
        return made
    # Of elements that share memory, as in an expanded tensor, torch writes only one: the first.
    placed = torch.empty_strided(shape, strides, dtype=dtype)
    first = tuple(slice(None) if stride else slice(1) for stride in strides)
    placed[first] = made[first]
    return placed


def _no_inputs(taken: str) -> PackageError:
    return PackageError(
        f"the model takes {taken}, for which no random inputs are generated", remedy="give the inputs"
    )


def _described(key: LeafKey) -> str:
    shape, dtype, device, _ = key
    return f"{str(dtype).removeprefix('torch.')}{list(shape)} on {device}"


def _elements(key: LeafKey) -> int:
    """Return how many elements of memory a tensor occupies."""
    shape, _, _, strides = key
    if min((0, *shape)) < 0:
        raise _no_inputs(_described(key))
    return math.prod(shape) if strides is None else _span(shape, strides)


def _span(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Return how many elements of memory a strided tensor spans."""
    if len(shape) != len(strides) or min((0, *shape, *strides)) < 0:
        raise PackageError(f"an input has the strides {strides}, which do not fit its shape")
    return 1 + sum(max(size - 1, 0) * stride for size, stride in zip(shape, strides, strict=True))


def _summary(path: str, tensor: torch.Tensor) -> OutputSummary:
    shape, dtype = tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")
    if not tensor.numel() or tensor.is_complex():
        return OutputSummary(path, shape, dtype, None, None, None)
    wide = tensor.double()
    return OutputSummary(path, shape, dtype, wide.min().item(), wide.max().item(), wide.mean().item())
