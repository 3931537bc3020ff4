"""Unique ops: names, attributes by schema, tensor types, and which calls are identical."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchport


def ops(function, *args, **options):
    return torchport.analyze(function, args, **options).ops.ops


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda x: torch.conv2d(x, torch.ones(1, 1, 1, 1)), "torch.conv2d"),
        (lambda x: F.linear(x, torch.ones(2, 2)), "torch.nn.functional.linear"),
        (lambda x: F.gelu(x), "torch.nn.functional.gelu"),
        (lambda x: x.view(-1), "torch.Tensor.view"),
        (lambda x: torch.fft.fft2(x), "torch.fft.fft2"),
        (lambda x: torch.linalg.vector_norm(x), "torch.linalg.vector_norm"),
        (lambda x: x.relu_(), "torch.relu_"),
        (lambda x: torch.ops.aten._softmax(x, -1, False), "torch.ops.aten._softmax"),
    ],
)
def test_an_op_is_named_as_python_calls_it(function, name):
    assert name in [op.op_name for op in ops(function, torch.ones(1, 1, 2, 2))]


def test_attributes_are_by_name_with_defaults():
    [op] = ops(lambda x: torch.add(x, 2), torch.ones(3))
    assert op.attributes == {"other": 2, "alpha": 1}
    [op] = ops(lambda x: torch.add(x, x, alpha=3), torch.ones(3))
    assert op.attributes == {"alpha": 3}
    [op] = ops(lambda x: x.sum(-1, keepdim=True), torch.ones(3, 4))
    assert op.attributes == {"dim": [-1], "keepdim": True, "dtype": None}
    [op] = ops(lambda x: torch.std(x, 0, correction=2), torch.ones(3, 4))
    assert op.attributes == {"dim": [0], "correction": 2, "keepdim": False}


def test_lists_of_tensors_and_optional_ones_are_described():
    [op] = ops(lambda x, y: torch.cat([x, y], dim=1), torch.ones(2, 3), torch.ones(2, 4))
    assert {name: entry.shape for name, entry in op.tensor_types.items()} == {
        "tensors[0]": "2x3",
        "tensors[1]": "2x4",
        "output": "2x7",
    }
    assert op.attributes == {"dim": 1}
    [op] = ops(nn.Linear(3, 4, bias=False), torch.ones(2, 3))
    assert op.attributes == {"bias": None}


def test_several_results_are_numbered():
    [op] = ops(lambda x: torch.topk(x, 2), torch.ones(5))
    assert op.tensor_types["output[0]"].dtype == "float32"
    assert op.tensor_types["output[1]"].dtype == "int64"
    assert op.attributes == {"k": 2, "dim": -1, "largest": True, "sorted": True}


def test_dtypes_and_infinities_are_text():
    table = torchport.analyze(lambda x: x.to(torch.bfloat16).clamp(max=float("inf")), (torch.ones(3),)).ops
    to, clamp = table.to_json()["ops"]
    assert to["attributes"]["dtype"] == "bfloat16"
    assert clamp["attributes"] == {"min": None, "max": "Infinity"}


def test_calls_that_differ_in_an_attribute_or_a_type_are_other_ops():
    def function(x):
        return x.add(1), x.add(1.0), x.add(1), x.add(2), x.double().add(1)

    added = [op for op in ops(function, torch.ones(3)) if op.op_name == "torch.add"]
    assert [(op.attributes["other"], len(op.occurrences)) for op in added] == [
        (1, 2),
        (1.0, 1),
        (2, 1),
        (1, 1),
    ]
    assert [type(op.attributes["other"]) for op in added] == [int, float, int, int]


def test_calls_have_names_that_are_unique_within_their_module():
    class Two(nn.Module):
        def forward(self, x):
            return x.relu().relu()

    model = nn.Sequential(Two(), Two())
    [op] = ops(model, torch.ones(3))
    assert [(entry.module_path, entry.node_name) for entry in op.occurrences] == [
        ("0", "relu"),
        ("0", "relu_1"),
        ("1", "relu"),
        ("1", "relu_1"),
    ]
    assert {entry.source_module_id for entry in op.occurrences} == {"mod_001"}


def test_a_composite_op_is_one_op():
    layer = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    x = torch.ones(1, 3, 8)
    names = [op.op_name for op in torchport.analyze(layer, (x, x, x), {"need_weights": False}).ops.ops]
    assert "torch.nn.functional.scaled_dot_product_attention" in names
    assert not [name for name in names if "flash" in name or "addmm" in name]


def test_the_backward_pass_is_marked_and_belongs_to_the_modules():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU())
    table = torchport.analyze(model, (torch.ones(1, 1, 5, 5),), backward=True).ops.ops
    [backward] = [op for op in table if op.overload == "aten.convolution_backward.default"]
    assert backward.phase == "backward"
    assert (backward.source_module_class, backward.occurrences[0].module_path) == ("Conv2d", "0")
    [relu] = [op for op in table if op.overload == "aten.threshold_backward.default"]
    assert relu.occurrences[0].module_path == "1"
    assert [op.op_name for op in table if op.phase == "forward"] == ["torch.conv2d", "torch.relu"]
