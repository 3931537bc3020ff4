"""The stream of a model's ops: the ops, their kernels, the calling modules, the sources of the inputs."""

import torch
from torch import nn

from torchport.capture import stream_ops


def test_a_composite_op_is_one_with_its_kernels_below():
    stream = stream_ops(nn.Linear(4, 5), (torch.ones(2, 3, 4),))
    [op] = stream.ops
    assert op.call.name == "aten::linear"
    assert "aten::addmm" in [kernel.call.name for kernel in op.kernels]
    assert stream.values == "fake"
    assert stream.note == ""


def test_dropout_of_a_model_that_does_not_train_does_nothing():
    [op] = stream_ops(nn.Dropout().eval(), (torch.ones(3),)).ops
    assert (op.call.name, op.kernels) == ("aten::dropout", [])


def test_ops_know_the_module_that_calls_them_and_where_their_tensors_come_from():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Tanh()

        def forward(self, x):
            y = x * 2
            return self.inner(y) + y

    stream = stream_ops(nn.Sequential(Block()), (torch.ones(3),))
    assert [(op.call.name, op.path, op.sources) for op in stream.ops] == [
        ("aten::mul", "0", ()),
        ("aten::tanh", "0.inner", (0,)),
        ("aten::add", "0", (1, 0)),
    ]
    assert [call.path for call in stream.module_calls] == ["", "0", "0.inner"]


def test_the_backward_pass_belongs_to_the_modules_of_the_forward():
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    stream = stream_ops(model, (torch.ones(2, 4),), backward=True)
    backward = [(op.call.name, op.path) for op in stream.ops if op.phase == "backward"]
    products = [path for name, path in backward if name == "aten::mm"]
    assert products == ["2", "2", "0"]
    assert ("aten::tanh_backward", "1") in backward


def test_every_op_is_seen_whatever_it_is_called_by():
    def function(x):
        y = x + 1
        y[0] = 3
        y += torch.zeros(3)
        return y.mT.contiguous()

    names = [op.call.name.removeprefix("aten::") for op in stream_ops(function, (torch.ones(3, 3),)).ops]
    assert names == ["add", "lift_fresh", "select", "fill_", "zeros", "add_", "mT", "contiguous"]


def test_memory_follows_the_life_of_tensors():
    def function(x):
        y = x + 1
        z = y * 2
        del y
        return z + 1

    lives = [kernel.live for op in stream_ops(function, (torch.ones(10),)).ops for kernel in op.kernels]
    assert lives == [40, 80, 80]
