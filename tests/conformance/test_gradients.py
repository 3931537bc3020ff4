"""One step of training through torch.compile's backend: loss, every gradient and buffer as with eager torch.

Models are in training mode, with the same random numbers. The loss is the squared distance from random signs,
since the mean square of what a norm returns hardly depends on its input: gradients before it would be nothing
but rounding. One of the models runs in `make test`.
"""

from __future__ import annotations

import copy
import random
import statistics
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy
import pytest
import torch
import torch._dynamo
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import torchport
from conformance.architectures import MORE_TRANSFORMERS, TIMM, TORCHVISION, TRANSFORMERS
from torchport import zoo
from torchport.compiler import graph_programs
from torchport.structure import flatten, tensors_in
from torchport.verification.tolerance import tolerance_for

QUICK = {"hf-small:bert": "ttnn"}  # tests/compiler/test_training_graph.py trains on openvino
NAMES = [
    *[f"torchvision:{name}" for name in TORCHVISION[:25]],
    *[f"timm:{name}" for name in TIMM[:25]],
    *[f"hf-small:{name}" for name in TRANSFORMERS + MORE_TRANSFORMERS],
]
CASES = [
    pytest.param(name, target, marks=[] if QUICK.get(name) == target else [pytest.mark.conformance])
    for name in NAMES
    for target in ("host", "openvino", "ttnn")
]

STEEP = 1e6  # gradients above this are scaled down


@dataclass
class Step:
    """The results of one training step: the loss, and by name all gradients and the updated buffers."""

    loss: torch.Tensor
    gradients: dict[str, torch.Tensor]
    buffers: dict[str, torch.Tensor]


class _RandomNumbersOfFloat32(TorchDispatchMode):
    """Makes models of other dtypes draw float32's random numbers, which may decide what is dropped."""

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[object, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> object:
        kwargs = kwargs or {}
        if func not in _RANDOM:
            return func(*args, **kwargs)
        dtype = kwargs.get("dtype") or torch.get_default_dtype()
        return func(*args, **kwargs | {"dtype": torch.float32}).to(dtype)


_RANDOM = [torch.ops.aten.rand.default, torch.ops.aten.randn.default]


def train_once(
    module: nn.Module,
    call: Callable[..., object],
    args: object,
    kwargs: object,
    dtype: torch.dtype | None = None,
    steepness: float = 1.0,
) -> Step:
    """Run one step of training, with gradients of the loss divided by `steepness`."""
    inputs = flatten((args, kwargs))
    leaves = [leaf.detach().clone() for leaf in inputs.leaves]
    if dtype is not None:
        leaves = [leaf.to(dtype) if leaf.is_floating_point() else leaf for leaf in leaves]
    given, named = inputs.structure.rebuild(leaves)
    torch.manual_seed(0)
    numpy.random.seed(0)  # some models draw their masks from it
    random.seed(0)
    with nullcontext() if dtype is None else _RandomNumbersOfFloat32():
        outputs = [tensor for _, tensor in tensors_in(call(*given, **named))]
    signs = torch.Generator().manual_seed(0)
    loss = sum(
        (tensor - (torch.randint(2, tensor.shape, generator=signs) * 2 - 1)).square().mean()
        for tensor in outputs
        if tensor.requires_grad
    )
    assert isinstance(loss, torch.Tensor)
    (loss / steepness).backward()
    gradients = {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
    return Step(loss.detach(), gradients, {name: tensor.clone() for name, tensor in module.named_buffers()})


def trainable(name: str) -> tuple[nn.Module, object, object]:
    """Return a model in training mode and its inputs: a batch of two small images if it takes images."""
    model = zoo.load(name, weights=False)
    module = model.module.train().requires_grad_()
    if name.startswith("hf"):
        return module, model.args, dict(model.kwargs)
    small = (torch.randn(2, 3, 64, 64),)
    try:
        probe = copy.deepcopy(module)
        train_once(probe, probe, small, {})
    except (AssertionError, RuntimeError, ValueError):  # its sizes are fixed, or would shrink to 0
        [image] = model.args
        small = (torch.randn(2, *image.shape[1:]),)
    return module, small, {}


def deviations(ours: Step, exact: Step) -> dict[str, float]:
    """Return the errors of gradients and buffers by name, relative to their size.

    Tensors that are nothing but rounding errors, such as the gradient of a bias before a normalisation, are
    measured relative to the model's other gradients.
    """
    mine, theirs = ours.gradients | ours.buffers, exact.gradients | exact.buffers
    assert mine.keys() == theirs.keys()
    sizes = {name: float(_rms(tensor)) for name, tensor in theirs.items() if tensor.numel()}
    usual = statistics.median(sizes.values()) * 1e-3
    return {
        name: float(_rms(mine[name].double() - theirs[name].double())) / max(size, usual, 1e-12)
        for name, size in sizes.items()
    }


def _rms(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double().square().mean().sqrt()


def assert_as_exact_as_eager(
    ours: Step, eager: Step, exact: Callable[[], Step], others: Callable[[], list[Step]]
) -> None:
    """Assert that every tensor matches eager torch, or is as accurate as eager torch with other rounding.

    Gradients of deep models jump where a ReLU's input crosses zero: rounding alone changes some by half. So
    eager torch runs again with other rounding, which shows how much rounding affects the model.
    """
    allowed = tolerance_for(torch.float32).rtol
    far = {name for name, error in deviations(ours, eager).items() if not error <= allowed}
    if not far:
        return
    reference = exact()
    errors = deviations(ours, reference)
    rounding = [deviations(step, reference) for step in [eager, *others()]]
    usual = max(sorted(found.values())[len(found) * 9 // 10] for found in rounding)
    wrong = {
        name: (errors[name], usual)
        for name in far
        if not errors[name] <= 4 * max(usual, *[found[name] for found in rounding])
    }
    assert not wrong, wrong


class NotFinite(TorchDispatchMode):
    """Notices whether an op gives a value that is not finite."""

    any = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.any = self.any or any(
            not tensor.isfinite().all() for _, tensor in tensors_in(result) if tensor.is_floating_point()
        )
        return result


def perturbed(module: nn.Module, seed: int, rounding: float = 2**-22) -> nn.Module:
    """Return a copy whose weights are rounded differently."""
    generator = torch.Generator().manual_seed(seed)
    made = copy.deepcopy(module)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.mul_(1 + rounding * torch.randn(parameter.shape, generator=generator))
    return made


@pytest.mark.parametrize(("name", "target"), CASES)
def test_a_step_of_training(name: str, target: str, torch_compile, monkeypatch) -> None:
    monkeypatch.setattr(graph_programs, "_watched", weakref.WeakSet())  # excludes graphs of other tests
    module, args, kwargs = trainable(name)
    eager_module, kept = copy.deepcopy(module), copy.deepcopy(module)
    eager = train_once(eager_module, eager_module, args, kwargs)
    steepness = max(1.0, *(float(gradient.abs().max()) for gradient in eager.gradients.values()))
    if steepness > STEEP:  # with random weights; an engine leaves values from 2e10 on to eager torch
        eager_module = copy.deepcopy(kept)
        eager = train_once(eager_module, eager_module, args, kwargs, steepness=steepness)
    else:
        steepness = 1.0
    with torch._dynamo.config.patch(use_numpy_random_stream=True):  # as eager torch does
        ours = train_once(module, torch_compile(module, target), args, kwargs, steepness=steepness)

    def in_dtype(dtype: torch.dtype) -> Step | None:
        """Return eager torch's step in another dtype; None if an op does not take it."""
        other = copy.deepcopy(kept).to(dtype)
        try:
            return train_once(other, other, args, kwargs, dtype, steepness)
        except RuntimeError:
            return None

    def exact() -> Step:
        double = in_dtype(torch.float64)  # NaN if masks have float32's least number, and two are added
        if double is None or any(gradient.isnan().any() for gradient in double.gradients.values()):
            return eager
        return double

    def otherwise() -> list[Step]:
        rounding = 2**-22
        if target == "ttnn":  # it computes in bfloat16, so eager torch does here too
            half = in_dtype(torch.bfloat16)
            if half is not None:
                return [half]
            rounding = 2**-9
        changed = [perturbed(kept, seed, rounding) for seed in range(4)]
        return [train_once(one, one, args, kwargs, steepness=steepness) for one in changed]

    rtol = 0.05 if target == "ttnn" else 1e-3
    torch.testing.assert_close(ours.loss, eager.loss, rtol=rtol, atol=1e-5)
    assert_as_exact_as_eager(ours, eager, exact, otherwise)
    record = torchport.fallbacks()
    if record.fallbacks >= record.calls / 2:  # otherwise eager torch would be compared with itself
        assert record.fallbacks < record.calls, record
        assert "not finite" in record.last_reason, record
        again = copy.deepcopy(kept)
        with NotFinite() as eager_has:  # as where a norm of zeros is divided by, and then masked
            train_once(again, again, args, kwargs, steepness=steepness)
        assert eager_has.any, record
