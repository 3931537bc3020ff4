"""A model's functions cache nothing from a trace that the model could use afterwards."""

import functools
from typing import ClassVar

import pytest
import torch
from torch import nn

import torchport
from torchport.capture import capture_graphs
from torchport.structure import tensors_in

TABLE: dict[int, torch.Tensor] = {}
HOLDS_ITSELF: list[object] = []
HOLDS_ITSELF.append(HOLDS_ITSELF)


class RunsCode(dict):
    """A mapping that creates its values on access, like the lazy mappings of libraries."""

    def values(self):
        raise AssertionError("asked for all that it could hold")


LAZY = [RunsCode(a=1)]


@functools.lru_cache(maxsize=8)
def of_a_file(size):
    return torch.arange(size) * 1.0


def around(function):
    remembering = functools.lru_cache(function)

    @functools.wraps(function)
    def wrapper(*args):
        return remembering(*args)

    return wrapper


class Remembers(nn.Module):
    """Gets rows of numbers from functions that cache their results, and returns some of them as they are."""

    seen: ClassVar[list[torch.Tensor]] = []

    @functools.lru_cache(maxsize=2)  # noqa: B019  # what models do
    def of_a_method(self, size):
        return torch.arange(size) * 2.0

    @staticmethod
    @functools.lru_cache
    def of_a_class(size):
        return torch.arange(size) * 3.0

    @around
    def wrapped(self, size):
        return torch.arange(size) * 4.0

    def forward(self, x):
        size = x.shape[-1]
        if size not in TABLE:
            TABLE[size] = torch.arange(size) * 5.0
        if not self.seen:
            self.seen.append(torch.arange(size) * 6.0)
        rows = [of_a_file(size), self.of_a_method(size), self.of_a_class(size), self.wrapped(size)]
        return x + sum(rows) + TABLE[size] + self.seen[0], rows


WAYS = {
    "analyze": lambda model, x: torchport.analyze(model, (x,)),
    "trace_graph": lambda model, x: torchport.trace_graph(model, (x,)),
    "explain": lambda model, x: torchport.explain(model, (x,), target="host"),
    "compile": lambda model, x: torchport.compile(model, (x,), target="host"),
    "capture_graphs": lambda model, x: capture_graphs(model, (x,)),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("as_function", [False, True])
def test_a_model_runs_on_real_numbers_afterwards(way, as_function):
    TABLE.clear()
    Remembers.seen.clear()
    of_a_file.cache_clear()
    model, x = Remembers().eval(), torch.zeros(1, 3)
    called = (lambda y: model(y)) if as_function else model
    WAYS[way](called, x)
    assert not TABLE
    result = model(x)
    assert {type(tensor) for _, tensor in tensors_in(result)} == {torch.Tensor}
    assert result[0].tolist() == [[0.0, 21.0, 42.0]]


def test_what_was_remembered_before_stays():
    TABLE.clear()
    TABLE[3] = row = torch.ones(3)
    of_a_file.cache_clear()
    kept = of_a_file(3)
    torchport.analyze(Remembers().eval(), (torch.zeros(1, 3),))
    assert TABLE[3] is row
    assert of_a_file(3) is kept
