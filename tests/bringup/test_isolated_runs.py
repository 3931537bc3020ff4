"""Two runs of one model do not affect each other."""

import torch
from torch import nn

from torchport.bringup.isolated_runs import buffers_kept, copy_inputs, copy_tensors, run_isolated

from .modules import Counts, Doubles, Rolls, model


def test_a_call_cannot_change_the_models_inputs():
    doubling = model(Doubles(), torch.ones(2))
    for _ in range(2):
        outcome = run_isolated(doubling.module, doubling)
        assert outcome.result.tolist() == [2, 2]
        assert outcome.inputs["args"][0].tolist() == [2, 2]
    assert doubling.args[0].tolist() == [1, 1]


def test_buffers_are_restored_but_not_the_result():
    counting = model(Counts())
    for _ in range(2):
        assert run_isolated(counting.module, counting).result[0].tolist() == [1, 1]
    assert counting.module.calls.tolist() == [0, 0]


def test_a_replaced_or_resized_buffer_is_restored():
    module = nn.BatchNorm1d(2)
    before = module.running_mean
    with buffers_kept(module):
        module.running_mean = torch.ones(2)
        module.running_var.resize_(3)
    assert module.running_mean is before
    assert module.running_var.tolist() == [1, 1]


def test_an_unchanged_buffer_is_not_written():
    module = nn.BatchNorm1d(2).eval()
    version = module.running_mean._version
    with buffers_kept(module):
        module(torch.ones(1, 2))
    assert module.running_mean._version == version


def test_random_numbers_are_reproducible_and_the_global_state_is_unchanged():
    rolling = model(Rolls())
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    first, second = (run_isolated(rolling.module, rolling).result for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(torch.rand(3), expected)


def test_no_gradients_are_recorded():
    weighted = model(nn.Linear(2, 2))
    assert not run_isolated(weighted.module, weighted).result.requires_grad


def test_copies_keep_structure_strides_sharing_and_gradients():
    base = torch.arange(6.0).reshape(2, 3)
    wants = torch.ones(1, requires_grad=True)
    args, kwargs = copy_inputs(model(nn.Identity(), base, base.t(), wants, mask={"a": base[0]}))
    assert args[1].stride() == (1, 3)
    assert args[2].requires_grad
    args[0].zero_()
    assert kwargs["mask"]["a"].tolist() == [0, 0, 0]
    assert base[0].tolist() == [0, 1, 2]


def test_a_value_without_tensors_is_itself():
    assert copy_tensors((1, "a", None)) == (1, "a", None)
