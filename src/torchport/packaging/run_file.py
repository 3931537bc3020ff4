"""Loads a package, runs it, and says what came out and how long it took."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence

import torch

from torchport.packaging.load_model import load
from torchport.packaging.loaded_model import LoadedModel
from torchport.records import OutputSummary, PackageRun
from torchport.structure import tensors_in


def run_package(
    path: str | os.PathLike[str],
    args: Sequence[object] | None = None,
    kwargs: Mapping[str, object] | None = None,
    *,
    classes: Iterable[type] = (),
) -> PackageRun:
    """Load a model from a `.pt2` file and run it.

    Args:
        path: the file.
        args, kwargs: the inputs; by default random ones of the kind that it was compiled for first.
        classes: as in `torchport.load`.

    Raises:
        PackageError: the file cannot be loaded.
        RuntimeRefusal: it has no program for these inputs.

    Example:
        >>> run_package("relu.pt2", (torch.tensor([-1.0, 1.0]),)).outputs[0].maximum
        1.0
    """
    start = time.perf_counter()
    model = load(path, classes=classes)
    loaded = time.perf_counter()
    if args is None and kwargs is None:
        args, kwargs = _random_inputs(model)
    first, result = _timed(model, args or (), kwargs or {})
    summaries = tuple(_summary(name, tensor) for name, tensor in tensors_in(result))
    second, _ = _timed(model, args or (), kwargs or {})
    package = model.package
    return PackageRun(
        os.fspath(path), package.model, package.target, loaded - start, first, second, summaries
    )


def _timed(model: LoadedModel, args: Sequence[object], kwargs: Mapping[str, object]) -> tuple[float, object]:
    start = time.perf_counter()
    with torch.no_grad():
        result = model(*args, **kwargs)
    return time.perf_counter() - start, result


def _random_inputs(model: LoadedModel) -> tuple[tuple[object, ...], dict[str, object]]:
    """Return inputs of the first kind: floats between 0 and 1, the same each time; integers 0."""
    generator = torch.Generator().manual_seed(0)
    kind = model.kinds[0]
    leaves = []
    for shape, dtype, device, strides in kind.keys:
        made = torch.zeros(shape, dtype=dtype, device=device)
        if dtype.is_floating_point:
            made = torch.rand(shape, generator=generator).to(dtype)
        leaves.append(
            made if strides is None else torch.empty_strided(shape, strides, dtype=dtype).copy_(made)
        )
    call = kind.structure.rebuild(leaves)
    assert isinstance(call, tuple)  # the structure of (args, kwargs)
    return call


def _summary(path: str, tensor: torch.Tensor) -> OutputSummary:
    shape, dtype = tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")
    if not tensor.numel() or tensor.is_complex():
        return OutputSummary(path, shape, dtype, None, None, None)
    wide = tensor.double()
    return OutputSummary(path, shape, dtype, wide.min().item(), wide.max().item(), wide.mean().item())
