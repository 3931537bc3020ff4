"""One step of training through torch.compile's backend: loss, every gradient and buffer as with eager torch.

Models are in training mode, with the same random numbers. A few of them run in `make test`.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import nn

import torchport
from conformance.architectures import MORE_TRANSFORMERS, TIMM, TORCHVISION, TRANSFORMERS
from torchport import zoo
from torchport.bringup.model_trial import ROUGH
from torchport.compiler import graph_programs
from torchport.structure import flatten, tensors_in
from torchport.verification import compare
from torchport.verification.tolerance import tolerance_for

QUICK = {
    "hf-small:llama": "openvino",
    "hf-small:bert": "ttnn",
    "timm:test_efficientnet": "host",
}
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


@dataclass
class Step:
    """What one step of training gives: the loss, and by name all gradients and the buffers after it."""

    loss: torch.Tensor
    gradients: dict[str, torch.Tensor]
    buffers: dict[str, torch.Tensor]


def train_once(
    module: nn.Module,
    call: Callable[..., object],
    args: object,
    kwargs: object,
    dtype: torch.dtype | None = None,
) -> Step:
    inputs = flatten((args, kwargs))
    leaves = [leaf.detach().clone() for leaf in inputs.leaves]
    if dtype is not None:
        leaves = [leaf.to(dtype) if leaf.is_floating_point() else leaf for leaf in leaves]
    given, named = inputs.structure.rebuild(leaves)
    torch.manual_seed(0)
    outputs = [tensor for _, tensor in tensors_in(call(*given, **named))]
    loss = sum(tensor.square().mean() for tensor in outputs if tensor.requires_grad)
    assert isinstance(loss, torch.Tensor)
    loss.backward()
    gradients = {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
    return Step(loss.detach(), gradients, {name: tensor.clone() for name, tensor in module.named_buffers()})


def trainable(name: str) -> tuple[nn.Module, object, object]:
    """Return a model in training mode, with inputs of a batch of two small images where it takes such."""
    model = zoo.load(name, weights=False)
    module = model.module.train().requires_grad_()
    if name.startswith("hf"):
        return module, model.args, dict(model.kwargs)
    small = (torch.randn(2, 3, 64, 64),)
    try:
        probe = copy.deepcopy(module)
        train_once(probe, probe, small, {})
    except (AssertionError, RuntimeError, ValueError):  # its sizes are fixed, or shrink to nothing
        [image] = model.args
        small = (torch.randn(2, *image.shape[1:]),)
    return module, small, {}


def largest_error(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> dict[str, float]:
    """Return by name how far tensors are off, relative to the largest value that is expected."""
    assert ours.keys() == theirs.keys()
    return {
        name: float(
            (mine.double() - theirs[name].double()).abs().max()
            / theirs[name].double().abs().max().clamp(min=1e-6)
        )
        for name, mine in ours.items()
        if mine.numel()
    }


def assert_as_exact_as_eager(ours: Step, eager: Step, exact: Callable[[], Step]) -> None:
    """Every tensor is within the tolerance of float32, or no further from float64 than eager's by much."""
    torch.testing.assert_close(ours.loss, eager.loss, rtol=1e-3, atol=1e-5)
    allowed = tolerance_for(torch.float32).rtol
    mine, theirs = ours.gradients | ours.buffers, eager.gradients | eager.buffers
    far = {name for name, error in largest_error(mine, theirs).items() if not error <= allowed}
    if not far:
        return
    step = exact()
    reference = step.gradients | step.buffers
    errors = largest_error({name: mine[name] for name in far}, {name: reference[name] for name in far})
    eager_errors = largest_error(
        {name: theirs[name] for name in far}, {name: reference[name] for name in far}
    )
    wrong = {
        name: (errors[name], eager_errors[name]) for name in far if not errors[name] <= 4 * eager_errors[name]
    }
    assert not wrong, wrong


@pytest.mark.parametrize(("name", "target"), CASES)
def test_a_step_of_training(name: str, target: str, torch_compile, monkeypatch) -> None:
    monkeypatch.setattr(graph_programs, "_watched", weakref.WeakSet())  # without graphs of other tests
    module, args, kwargs = trainable(name)
    eager_module, exact_module = copy.deepcopy(module), copy.deepcopy(module)
    eager = train_once(eager_module, eager_module, args, kwargs)
    ours = train_once(module, torch_compile(module, target), args, kwargs)
    if target == "ttnn":
        for mine, theirs in (
            (ours.loss, eager.loss),
            (ours.gradients, eager.gradients),
            (ours.buffers, eager.buffers),
        ):
            comparison = compare(mine, theirs, tolerance=ROUGH)
            assert comparison.ok, [row for row in comparison.outputs if not row.ok]
    else:
        assert_as_exact_as_eager(
            ours,
            eager,
            lambda: train_once(exact_module.double(), exact_module, args, kwargs, torch.float64),
        )
    record = torchport.fallbacks()
    assert record.fallbacks < record.calls / 2, record  # else it is eager torch that was compared with itself
