"""Shapes that are known at once: those that torch finds."""

import contextlib
import itertools

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from torchport.capture.aot.quick_shapes import _KNOWN, QuickFakeTensorMode

aten = torch.ops.aten

IMAGES = [(2, 3, 4, 5), (1, 3, 1, 1), (4, 1, 3, 3), (3, 4)]
LAYOUTS = {
    "as it is": lambda x: x,
    "channels last": lambda x: x.to(memory_format=torch.channels_last) if x.dim() == 4 else x,
    "transposed": lambda x: x.transpose(0, -1).contiguous().transpose(0, -1),
    "expanded": lambda x: x[:1].expand(x.shape),
    "half": lambda x: x.half(),
    "double": lambda x: x.double(),
    "empty": lambda x: x[:0],
}


def described(mode, function):
    """Whatever the ops give, in words, or what they raise."""
    FakeTensorMode.cache.clear()
    try:
        with mode:
            found = function()
    except Exception as error:  # noqa: BLE001  # whatever torch raises
        return type(error).__name__
    found = found if isinstance(found, tuple) else (found,)
    return [x if x is None else (tuple(x.shape), x.stride(), x.dtype, x.device) for x in found]


def calls(shape, layout, other):
    """Every op that is known, on an input of a layout and a gradient of another."""
    change, change_other = LAYOUTS[layout], LAYOUTS[other]

    def weights():
        return [torch.ones(shape[1]) for _ in range(4)]

    def given():
        return change(torch.ones(shape))

    def gradient():
        return change_other(torch.ones(shape))

    yield lambda: aten._native_batch_norm_legit_no_training(given(), *weights(), 0.1, 1e-5)
    none = torch.ones(0)
    for training, mask in itertools.product([False, True], [[True, True, True], [True, False, False]]):

        def backward(training=training, mask=mask):
            weight, mean, variance, _ = weights()
            saved = (mean, variance) if training else (none, none)
            arguments = (weight, mean, variance, *saved, training, 1e-5, mask)
            return aten.native_batch_norm_backward(gradient(), given(), *arguments)

        yield backward
    # More channels than there are numbers for: torch raises, or not, as it does.
    yield lambda: aten._native_batch_norm_legit_no_training(
        torch.ones(2, shape[1] + 1, 3, 3), *weights(), 0.1, 1e-5
    )
    yield lambda: aten.threshold_backward(gradient(), given(), 0)
    yield lambda: aten.gelu_backward(gradient(), given())
    yield lambda: aten.gelu_backward(gradient(), given(), approximate="tanh")
    yield lambda: aten.silu_backward(gradient(), given())
    yield lambda: aten.sigmoid_backward(gradient(), given())
    yield lambda: aten.threshold_backward(gradient(), given()[:, :1], 0)  # of another shape


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("other", ["as it is", "channels last", "expanded", "double"])
def test_the_shapes_are_those_that_torch_finds(layout, other):
    for shape in IMAGES:
        for call in calls(shape, layout, other):
            expected = described(FakeTensorMode(allow_non_fake_inputs=True), call)
            assert described(QuickFakeTensorMode(allow_non_fake_inputs=True), call) == expected, shape


def test_torch_is_not_asked_for_what_is_known(monkeypatch):
    asked = []
    original = FakeTensorMode._dispatch_impl

    def noting(self, func, *rest):
        asked.append(func)
        return original(self, func, *rest)

    monkeypatch.setattr(FakeTensorMode, "_dispatch_impl", noting)
    FakeTensorMode.cache.clear()
    with QuickFakeTensorMode(allow_non_fake_inputs=True):
        for call in calls((2, 3, 4, 5), "as it is", "as it is"):
            with contextlib.suppress(RuntimeError):  # channels that do not fit
                call()
    assert asked
    # Training, another mask, other shapes and a keyword are left to torch.
    known = {func: asked.count(func) for func in _KNOWN if func in asked}
    assert known == {
        aten._native_batch_norm_legit_no_training.default: 1,
        aten.native_batch_norm_backward.default: 3,
        aten.gelu_backward.default: 1,
        aten.threshold_backward.default: 1,
    }
