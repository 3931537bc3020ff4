"""Shapes and strides are compared with what they were, in one call where the modes are as before."""

import pytest
import torch
from torch import nn

from torchport.compiler.shape_guard import ShapeGuard


def tensors():
    return [nn.Parameter(torch.ones(3, 3)), torch.ones(2), torch.ones(())]


def refuse(*_):
    raise AssertionError("each tensor is asked")


def as_strided(tensor):
    return tensor.data.as_strided((3, 3), (1, 3))


@pytest.mark.parametrize(
    "change",
    [lambda t: t.data.view(9), as_strided, lambda t: t.data[:2]],
    ids=["shape", "strides", "fewer rows"],
)
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_changes_are_found_in_every_mode(change, mode):
    held = tensors()
    guard = ShapeGuard(held)
    with mode():
        assert guard.unchanged(held)
        held[0].data = change(held[0])
        assert not guard.unchanged(held)
    assert not guard.unchanged(held)


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_each_tensor_is_asked_only_on_the_first_call_in_a_mode(mode, monkeypatch):
    held = tensors()
    guard = ShapeGuard(held)
    with mode():
        assert guard.unchanged(held)
        monkeypatch.setattr(torch.Tensor, "size", refuse)
        assert guard.unchanged(held)


def test_a_tensor_may_occur_twice_and_there_may_be_none():
    [first, *_] = tensors()
    assert ShapeGuard([first, first]).unchanged([first, first])
    assert ShapeGuard([]).unchanged([])


def test_autocast_is_no_change():
    held = tensors()
    guard = ShapeGuard(held)
    with torch.autocast("cpu", torch.bfloat16):
        assert guard.unchanged(held)
    assert guard.unchanged(held)
