"""Real architectures: both ways to compile equal eager torch, outputs keep their type.

All of them run in `make conformance`, the first few of each family in `make test`.
"""

from __future__ import annotations

import pytest
import torch

import torchport
from conformance.architectures import TIMM, TORCHVISION, TRANSFORMERS, marked
from torchport import zoo
from torchport.errors import CaptureError
from torchport.structure import flatten

ALL = [
    *marked("torchvision", TORCHVISION, 1),
    *marked("timm", TIMM[:30], 0),
    *marked("hf-small", TRANSFORMERS[:30], 1),
]


def _copy(value: object) -> object:
    flat = flatten(value)
    return flat.structure.rebuild([leaf.detach().clone() for leaf in flat.leaves])


def _call(function: object, model: zoo.Model) -> object:
    with torch.no_grad():
        return function(*_copy(model.args), **_copy(dict(model.kwargs)))


def _assert_same(actual: object, expected: object) -> None:
    assert type(actual) is type(expected)
    ours, theirs = flatten(actual), flatten(expected)
    assert ours.structure.paths == theirs.structure.paths
    for path, mine, eager in zip(ours.structure.paths, ours.leaves, theirs.leaves, strict=True):
        torch.testing.assert_close(
            mine, eager, rtol=1e-3, atol=1e-3, check_stride=False, msg=lambda text: f"{path}: {text}"
        )


@pytest.mark.parametrize("name", ALL)
def test_torch_compile_backend_equals_eager(name: str) -> None:
    model = zoo.load(name, weights=False)
    expected = _call(model.module, model)
    torch._dynamo.reset()
    _assert_same(_call(torch.compile(model.module, backend="torchport"), model), expected)


@pytest.mark.parametrize("name", ALL)
def test_torchport_compile_equals_eager_and_keeps_types(name: str) -> None:
    model = zoo.load(name, weights=False)
    expected = _call(model.module, model)
    compiled = torchport.compile(model.module, model.args, model.kwargs)
    _assert_same(_call(compiled, model), expected)
    assert compiled.coverage.flops_covered > 0.9 * compiled.coverage.flops


@pytest.mark.conformance
@pytest.mark.parametrize("engine", ["onnxruntime", "inductor"])
@pytest.mark.parametrize("name", [one.values[0] for one in ALL])
def test_the_other_engines_equal_eager(name: str, engine: str) -> None:
    model = zoo.load(name, weights=False)
    expected = _call(model.module, model)
    options = {"child_trial": False}
    compiled = torchport.compile(model.module, model.args, model.kwargs, target=engine, options=options)
    _assert_same(_call(compiled, model), expected)
    assert compiled.coverage.flops_covered > 0.5 * compiled.coverage.flops


def test_a_model_that_reads_its_own_values_is_refused_with_the_line() -> None:
    model = zoo.load("hf-small:longformer", weights=False)
    with pytest.raises(CaptureError, match=r"modeling_longformer\.py:\d+"):
        torchport.compile(model.module, model.args, model.kwargs)
