"""Op calls: arguments by name, defaults filled in, tensors described by specs."""

import torch

from torchport.capture import describe_call, schema_arguments, tensor_spec
from torchport.capture.tensor_specs import UNKNOWN_SIZE
from torchport.records import TensorSpec

X = torch.ones(2, 3)


def test_arguments_are_named_and_defaults_filled_in():
    call = describe_call(torch.ops.aten.add.Tensor, (X, X), {}, X)
    assert call.name == "aten::add"
    assert call.arguments == {
        "self": TensorSpec((2, 3), "float32"),
        "other": TensorSpec((2, 3), "float32"),
        "alpha": 1,
    }
    assert describe_call(torch.ops.aten.add.Tensor, (X, X), {"alpha": 3}, X).arguments["alpha"] == 3


def test_tensors_in_lists_and_several_results():
    call = describe_call(torch.ops.aten.cat.default, ([X, X.int()],), {}, X)
    assert [name for name, _ in call.tensors()] == ["tensors[0]", "tensors[1]"]
    call = describe_call(torch.ops.aten.topk.default, (X, 2), {}, torch.topk(X, 2))
    assert [spec.dtype for spec in call.results] == ["float32", "int64"]


def test_arguments_that_are_written():
    assert [a.name for a in schema_arguments(torch.ops.aten.add_.Tensor) if a.written] == ["self"]
    assert [a.name for a in schema_arguments(torch.ops.aten.add.out) if a.written] == ["out"]


def test_a_size_known_at_run_time_only_has_no_number():
    class Shows(torch.nn.Module):
        def forward(self, x):
            return torch.nonzero(x) * 2

    program = torch.export.export(Shows(), (torch.ones(3),))
    values = [node.meta.get("val") for node in program.graph.nodes]
    shapes = [tensor_spec(value).shape for value in values if isinstance(value, torch.Tensor)]
    assert (UNKNOWN_SIZE, 1) in shapes
