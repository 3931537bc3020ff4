"""A model that inspects values only in eager mode is written as a compiler sees it."""

import pytest
import torch

import torchport
from codegen import models
from codegen.models import Lambda
from codegen.round_trip import assert_round_trip, generate
from torchport.errors import CaptureError, CodegenError

X = torch.linspace(-1, 1, 12).view(3, 4)
FULL = torch.ones(3, 4)
PADDED = torch.tensor([[1.0, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 1]])


@pytest.fixture(autouse=True)
def nobody_is_a_compiler_afterwards():
    yield
    assert not torch.compiler.is_compiling()
    assert not torch.compiler.is_exporting()


@pytest.mark.parametrize("example", [FULL, PADDED], ids=["full", "padded"])
def test_a_mask_that_eager_mode_skips_is_kept(tmp_path, example):
    model = Lambda(models.leaves_out_full_masks)
    others = [(X, FULL), (X, PADDED)]
    texts = assert_round_trip(model, (X, example), tmp_path, others=others)
    assert "return x * y" in texts["hierarchical"]


def test_values_inspected_in_both_modes_are_refused_with_the_line():
    with pytest.raises(CaptureError, match=r"models\.py:\d+ in looks_though_compiled.*values of a tensor"):
        torchport.trace_graph(Lambda(models.looks_though_compiled), (X, PADDED))


def test_a_model_that_cannot_be_compiled_is_refused_for_its_eager_mode_behavior():
    with pytest.raises(CaptureError, match=r"models\.py:\d+ in needs_a_mask_if_compiled.*values of a tensor"):
        torchport.trace_graph(Lambda(models.needs_a_mask_if_compiled), (X,))


def test_the_compiled_path_may_differ_only_in_rounding(tmp_path):
    model = Lambda(models.rounds_otherwise_if_compiled)
    eager = model(X, FULL)
    _, made = generate(model, (X, FULL), tmp_path)
    assert torch.equal(made(X, FULL), X * (3 / 7))
    assert torch.allclose(made(X, FULL), eager)
    with pytest.raises(CodegenError, match="gives a different result"):
        generate(Lambda(models.is_another_if_compiled), (X, FULL), tmp_path)


def test_specialize_keeps_the_eager_path(tmp_path):
    model = Lambda(models.leaves_out_full_masks)
    _, made = generate(model, (X, FULL), tmp_path, on_data_dependent="specialize")
    assert torch.equal(made(X, FULL), X)
    with pytest.raises(ValueError, match=r"models\.py:\d+"):
        made(X, PADDED)
