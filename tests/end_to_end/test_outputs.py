"""Outputs keep their class, and shared memory stays shared."""

import collections
import dataclasses
import types

import pytest
import torch
from torch import nn
from transformers import DynamicCache
from transformers.modeling_outputs import BaseModelOutputWithPast

import torchport

Pair = collections.namedtuple("Pair", "left right")


@dataclasses.dataclass
class Data:
    x: torch.Tensor
    note: str = "kept"


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    x: torch.Tensor
    note: str = "kept"


class Plain:
    def __init__(self, x):
        self.x = x


def cache_of(x):
    cache = DynamicCache()
    cache.update(x[None, None, None], x[None, None, None] * 2, 0)
    return cache


MAKES = {
    "tensor": lambda x: x,
    "dict": lambda x: {"a": x, "b": [x * 2, None, 3]},
    "tuple": lambda x: (x, (x * 2,)),
    "list": lambda x: [x],
    "named tuple": lambda x: Pair(x, 4),
    "dataclass": lambda x: Data(x),
    "frozen dataclass with slots": lambda x: Frozen(x),
    "class": lambda x: Plain(x),
    "ordered dict": lambda x: collections.OrderedDict(a=x),
    "namespace": lambda x: types.SimpleNamespace(x=x),
    "model output": lambda x: BaseModelOutputWithPast(last_hidden_state=x),
    "model output with a cache": lambda x: BaseModelOutputWithPast(
        last_hidden_state=x, past_key_values=cache_of(x)
    ),
    "cache": cache_of,
    "return type": lambda x: torch.max(x.view(1, 3), 1),
    "no tensor": lambda x: {"n": x.shape[0], "dtype": x.dtype, "none": None},
    "nothing": lambda x: None,
}


@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
@pytest.mark.parametrize("target", ["host", pytest.param("openvino", marks=pytest.mark.conformance)])
def test_an_output_keeps_its_class_and_its_values(make, target):
    def model(x):
        return make(x + 1)

    x = torch.tensor([1.0, 2.0, 3.0])
    compiled = torchport.compile(model, (torch.zeros(3),), target=target)
    result, expected = compiled(x), model(x)
    assert type(result) is type(expected)
    assert torchport.compare(result, expected).ok


def test_two_calls_give_two_results(target):
    compiled = torchport.compile(lambda x: {"y": x * 2}, (torch.zeros(2),), target=target)
    first, second = compiled(torch.ones(2)), compiled(torch.zeros(2))
    assert first is not second
    assert first["y"].tolist() == [2.0, 2.0]


def test_what_is_returned_twice_is_one(target):
    compiled = torchport.compile(lambda x: ((y := x * 2), y, [y]), (torch.zeros(2),), target=target)
    first, second, third = compiled(torch.ones(2))
    assert first is second
    assert third[0] is first


def test_an_object_that_the_model_holds_is_that_object(target):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.config = {"layers": 3}

        def forward(self, x):
            return x + 1, self.config

    model = Model()
    assert torchport.compile(model, (torch.ones(1),), target=target)(torch.ones(1))[1] is model.config


class Gives(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.register_buffer("buffer", torch.zeros(3))

    def forward(self, x):
        return x, self.weight, self.buffer, x * self.weight


def test_an_output_that_is_an_input_a_parameter_or_a_buffer_is_that_one(bring_up):
    model, x = Gives(), torch.randn(3)
    compiled = bring_up(model, torch.ones(3))
    given, weight, buffer, product = compiled(x)
    assert given is x
    assert weight is model.weight
    assert buffer.data_ptr() == model.buffer.data_ptr()
    torch.testing.assert_close(product, x * model.weight)
    model.weight = nn.Parameter(torch.full((3,), 5.0))
    assert compiled(x)[1] is model.weight


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x,
        lambda x: x.contiguous(),
        lambda x: x.float(),
        lambda x: x.to(torch.float32),
        nn.Identity(),
    ],
)
def test_what_eager_torch_gives_back_itself_is_given_back_itself(function, target):
    x = torch.ones(3)
    assert function(x) is x
    assert torchport.compile(function, (torch.ones(3),), target=target)(x) is x


@pytest.mark.xfail(strict=True, reason="torch takes dropout in evaluation mode apart into a copy")
def test_dropout_in_evaluation_mode_gives_its_input_back(target):
    x = torch.ones(3)
    model = nn.Dropout().eval()
    assert model(x) is x
    assert torchport.compile(model, (torch.ones(3),), target=target)(x) is x
