"""What a target takes, in ops, FLOPs and bytes, compared with numbers computed by hand."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchport
from compiler.graphs import plan
from torchport.compiler.coverage import _REMEDIES
from torchport.records import REASONS

FLOAT = 4


def coverage(model, *args, target="openvino", **options):
    return torchport.explain(model, args, target=target, options=options)


def test_a_linear_layer_by_hand():
    counted = coverage(nn.Linear(8, 5), torch.ones(3, 8))
    assert (counted.ops_before, counted.ops_remain, counted.unique_before) == (1, 0, 1)
    assert counted.flops == counted.flops_covered == 2 * 3 * 8 * 5
    assert counted.bytes == counted.bytes_covered == FLOAT * (3 * 8 + 5 * 8 + 5 + 3 * 5)
    assert counted.transfers == 2
    assert counted.complete


@pytest.mark.parametrize(("groups", "stride", "side"), [(1, 1, 6), (2, 1, 6), (1, 2, 3)])
def test_a_convolution_by_hand(groups, stride, side):
    model = nn.Conv2d(4, 6, 3, stride=stride, groups=groups, bias=False)
    counted = coverage(model, torch.ones(2, 4, 8, 8))
    products = 2 * 6 * side * side * (4 // groups) * 3 * 3
    assert counted.flops == 2 * products
    assert counted.bytes == FLOAT * (2 * 4 * 8 * 8 + 6 * (4 // groups) * 3 * 3 + 2 * 6 * side * side)


def test_attention_by_hand():
    query, key = torch.ones(2, 3, 5, 8), torch.ones(2, 3, 7, 8)
    counted = coverage(F.scaled_dot_product_attention, query, key, key.clone())
    assert counted.flops == 2 * (2 * 3 * 5 * 7 * 8) + 2 * (2 * 3 * 5 * 7 * 8)


def test_matrix_products_by_hand():
    assert coverage(torch.mm, torch.ones(3, 4), torch.ones(4, 5)).flops == 2 * 3 * 4 * 5
    assert coverage(torch.bmm, torch.ones(2, 3, 4), torch.ones(2, 4, 5)).flops == 2 * 2 * 3 * 4 * 5


def test_what_stays_counts_in_the_whole_and_not_in_what_is_covered():
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    counted = coverage(model, torch.ones(1, 4), keep_modules=["2"])
    assert (counted.ops_before, counted.ops_remain) == (3, 1)
    assert (counted.flops, counted.flops_covered) == (2 * 32, 32)
    linear, tanh = FLOAT * (4 + 16 + 4 + 4), FLOAT * (4 + 4)
    assert (counted.bytes, counted.bytes_covered) == (2 * linear + tanh, linear + tanh)
    assert counted.stayed[0].flops == 32
    assert counted.stayed[0].bytes == linear
    assert not counted.complete


def test_unique_ops_are_counted_once():
    model = nn.Sequential(nn.ReLU(), nn.Tanh(), nn.ReLU())
    counted = coverage(model, torch.ones(2), keep_ops=["aten.relu"])
    assert (counted.ops_before, counted.unique_before) == (3, 2)
    assert (counted.ops_remain, counted.unique_remain) == (2, 1)


def test_transfers_are_the_tensors_that_cross():
    # x, y → a → [host] → b → : two inputs, one output; one input, one output
    def model(x, y):
        return torch.tanh(torch.relu(x) + y) * 2

    counted = coverage(model, torch.ones(2), torch.ones(2), keep_ops=["aten.tanh"])
    assert [(island.inputs, island.outputs) for island in counted.islands] == [(2, 1), (1, 1)]
    assert counted.transfers == 5


def test_a_model_that_computes_nothing_has_nothing_to_cover():
    counted = coverage(nn.Identity(), torch.ones(2))
    assert (counted.ops_before, counted.transfers, counted.flops, counted.islands) == (0, 0, 0, ())
    assert counted.complete


def test_sizes_known_at_run_time_only_cost_nothing_and_break_nothing():
    rows = plan(lambda x: torch.nonzero(x) * 2, torch.ones(3), target="openvino").coverage
    assert {row.reason for row in rows.stayed} >= {"shape"}


def test_there_is_a_remedy_for_every_reason():

    assert {"supported", *_REMEDIES} == set(REASONS)


def test_inputs_and_outputs_are_what_a_call_reads_and_makes():
    # z is not read, what stays on the host is not counted, and a result that is returned twice counts once
    def model(x, y, z):
        total = torch.tanh(torch.relu(x) + y)
        return total * 2, total, total, z

    given = [torch.ones(2) for _ in range(3)]
    counted = coverage(model, *given, keep_ops=["aten.tanh"])
    assert (counted.inputs, counted.outputs) == (2, 2)
    assert counted.transfers > 4
    whole = coverage(model, *given)
    assert whole.transfers == whole.inputs + whole.outputs == 4


def test_a_buffer_that_is_read_and_written_is_an_input_and_an_output():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(2))
            self.weight = nn.Parameter(torch.ones(2))

        def forward(self, x):
            self.total.add_(x * self.weight)
            return x.relu()

    counted = coverage(Counter(), torch.ones(2))
    assert (counted.inputs, counted.outputs) == (2, 2)
    assert counted.transfers == 4
