"""A stand-in behaves like the model, uses its tensors, and shares nothing that a forward writes."""

import argparse
import collections
import collections.abc
import dataclasses
import enum
import functools
import logging
import threading
import types
import weakref

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from analysis.quantized_engines import quantized_by_each
from torchport.capture import StandIn, copy_of
from torchport.errors import CaptureError


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.again = self.first
        self.tied = nn.Linear(3, 3, bias=False)
        self.tied.weight = self.first.weight
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x):
        return self.norm(self.again(self.tied(self.first(x))))


def zeroed(tensor):
    return nn.Parameter(torch.zeros_like(tensor)) if isinstance(tensor, nn.Parameter) else tensor.clone()


def test_tensors_are_the_models_own_and_modules_are_not():
    model = Net()
    stand_in = StandIn(model)
    made = stand_in.module
    assert type(made) is Net
    assert [name for name, _ in made.named_parameters()] == [name for name, _ in model.named_parameters()]
    assert all(map(lambda a, b: a is b, made.parameters(), model.parameters()))
    assert made.first is made.again is not model.first
    assert made.tied.weight is made.first.weight is model.first.weight
    assert stand_in.original(made.first) is model.first
    assert stand_in.original(made) is model


def test_substitutes_stay_tied():
    made = StandIn(Net(), copy_of).module
    assert made.tied.weight is made.first.weight


def test_a_training_step_on_copies_changes_nothing():
    model, x = Net().train(), torch.randn(4, 3)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    result = StandIn(model, copy_of).module(x)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    torch.testing.assert_close(result, model(x))


@dataclasses.dataclass(slots=True)
class Slotted:
    value: object


class Plain:
    def __init__(self, value):
        self.value = value


HOLDERS = {
    "list": lambda value: [value],
    "nested": lambda value: {"a": [(value,)]},
    "ordered": lambda value: collections.OrderedDict(a=value),
    "default": lambda value: collections.defaultdict(list, a=value),
    "deque": lambda value: collections.deque([value], maxlen=3),
    "namedtuple": lambda value: collections.namedtuple("Pair", "left right")(value, 1),
    "object": Plain,
    "slots": Slotted,
    "namespace": lambda value: types.SimpleNamespace(value=value),
    "arguments": lambda value: argparse.Namespace(value=value),
    "user dict": lambda value: collections.UserDict(value=value),
    "partial": lambda value: functools.partial(lambda v, x: v, value),
    "closure": lambda value: lambda: value,
    "weak": weakref.ref,
    "proxy": weakref.proxy,
}


def found_in(held):
    """Return what one of the holders above holds."""
    if isinstance(held, weakref.ProxyTypes):
        return held.__repr__.__self__
    if isinstance(held, weakref.ref):
        return held()
    if isinstance(held, functools.partial):
        return held(None)
    if isinstance(held, types.FunctionType):
        return held()
    while isinstance(held, (collections.abc.Mapping, list, tuple, collections.deque)):
        held = next(iter(held.values() if isinstance(held, collections.abc.Mapping) else held))
    return held if isinstance(held, (nn.Module, torch.Tensor)) else held.value


@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("what", ["module", "tensor"])
def test_what_is_held_elsewhere_than_as_a_part_is_stood_in_for_too(holder, what):
    model = nn.Sequential(nn.Linear(2, 2))
    model.held = HOLDERS[holder](model[0] if what == "module" else model[0].weight)
    made = StandIn(model, zeroed).module
    assert type(made.held) is type(model.held)
    assert found_in(made.held) is (made[0] if what == "module" else made[0].weight)
    assert found_in(model.held) is (model[0] if what == "module" else model[0].weight)


def test_containers_that_are_shared_stay_shared_and_hold_themselves():
    model = nn.Module()
    model.items = [1, 2]
    model.same = {"items": model.items}
    model.items.append(model.items)
    made = StandIn(model).module
    made.items.append(3)
    assert made.same["items"] is made.items is made.items[2]
    assert len(model.items) == 3


def test_long_chains_are_copied():
    model = nn.Module()
    model.chain = None
    for _ in range(5000):
        model.chain = [model.chain]
    made, depth = StandIn(model).module.chain, 0
    while made is not None:
        made, depth = made[0], depth + 1
    assert depth == 5000


class Sentinel:
    def __init__(self):
        self.note = "one for everybody"


MISSING = Sentinel()


class Colour(enum.Enum):
    RED = "red"


class Refers(nn.Module):
    def __init__(self):
        super().__init__()
        self.default, self.colour = MISSING, Colour.RED
        self.lock, self.log = threading.Lock(), logging.getLogger("model")
        self.graph = torch.fx.symbolic_trace(nn.ReLU()).graph


def test_what_there_is_one_of_is_shared():
    model = Refers()
    made = StandIn(model).module
    assert made.default is MISSING
    assert made.colour is Colour.RED
    for name in ("lock", "log", "graph"):
        assert getattr(made, name) is getattr(model, name)


def test_methods_hooks_and_patched_forwards_are_bound_to_the_stand_in():
    class Hooked(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(2, 2)
            self.calls = 0
            self.handle = self.linear.register_forward_hook(self.note)
            self.linear.forward = functools.partial(self.wrapped, self.linear.forward)
            self.append = (log := []).append
            self.log = log

        def note(self, module, args, result):
            self.calls += 1
            self.handle.remove()

        def wrapped(self, forward, x):
            self.append(1)
            return forward(x) + 1

        def forward(self, x):
            return self.linear(x)

    model, x = Hooked(), torch.ones(1, 2)
    made = StandIn(model).module
    torch.testing.assert_close(made(x), nn.functional.linear(x, model.linear.weight, model.linear.bias) + 1)
    assert (made.calls, model.calls) == (1, 0)
    assert (len(made.log), len(model.log)) == (1, 0)
    assert (len(made.linear._forward_hooks), len(model.linear._forward_hooks)) == (0, 1)
    zero = StandIn(model, zeroed).module
    assert zero(x).tolist() == [[1, 1]]


def test_functions_that_remember_remember_apart():
    class Remembers(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(2, 2)
            self.get = functools.lru_cache(maxsize=4)(self.make)

        def make(self, size):
            return self.linear.weight * size

    model = Remembers()
    made = StandIn(model, zeroed).module
    assert made.get(2).abs().sum() == 0
    assert model.get.cache_info().currsize == 0
    assert made.get.cache_parameters() == model.get.cache_parameters()


GLOBAL = nn.Linear(2, 2)


def test_a_functions_modules_are_stood_in_for():
    inner = nn.Linear(2, 2)
    count = 0

    class Calls(nn.Module):
        def __init__(self):
            super().__init__()

            def function(x):
                nonlocal count
                count += 1
                inner.last = GLOBAL.last = x
                return inner(x) + GLOBAL(x)

            self.function = function

        def forward(self, x):
            return self.function(x)

    model, x = Calls(), torch.ones(1, 2)
    torch.testing.assert_close(StandIn(model).module(x), inner(x) + GLOBAL(x))
    assert StandIn(model, zeroed).module(x).abs().sum() == 0
    assert count == 0
    assert not hasattr(inner, "last")
    assert not hasattr(GLOBAL, "last")


def kinds():
    x = torch.randn(2, 3)
    linear = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    return {
        "lstm": (nn.LSTM(3, 4), x),
        "gru": (nn.GRU(3, 4, bidirectional=True), x),
        "weight norm": (parametrizations.weight_norm(nn.Linear(3, 3)), x),
        "spectral norm": (parametrizations.spectral_norm(nn.Linear(3, 3)).eval(), x),
        "scripted": (torch.jit.script(linear), x),
        "traced": (torch.jit.trace(linear, x), x),
        "scripted within": (nn.Sequential(nn.Linear(3, 3), torch.jit.script(nn.Linear(3, 3))), x),
        "traced within": (nn.Sequential(torch.jit.trace(nn.Linear(3, 3), x)), x),
        "compiled": (torch.compile(nn.Linear(3, 3), backend="eager"), x),
        "compiled within": (nn.Sequential(torch.compile(nn.Linear(3, 3), backend="eager")), x),
        "parallel": (nn.DataParallel(nn.Sequential(nn.Linear(3, 3), nn.ReLU())), x),
        "graph": (torch.fx.symbolic_trace(linear), x),
        "transformer": (nn.TransformerEncoderLayer(4, 2, 8).eval(), torch.randn(2, 1, 4)),
        "quantized": (quantized_by_each(lambda: quantize(linear), x)[0][1], x),
        "parameter list": (ParameterLists(), x),
    }


def quantize(linear):
    return torch.ao.quantization.quantize_dynamic(linear, {nn.Linear}, dtype=torch.qint8).eval()


class ParameterLists(nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = nn.ParameterList([nn.Parameter(torch.randn(3)) for _ in range(2)])
        self.named = nn.ParameterDict({"a": nn.Parameter(torch.randn(3))})

    def forward(self, x):
        return x * self.rows[0] + self.rows[1] * self.named["a"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", list(kinds()))
def test_modules_of_every_kind_run_and_take_substitutes(kind):
    model, x = kinds()[kind]
    before = {key: value.clone() for key, value in model.named_parameters()}
    expected = model(x)
    torch.testing.assert_close(StandIn(model).module(x), expected)
    torch.testing.assert_close(StandIn(model, copy_of).module(x), expected)
    if before:
        other = StandIn(model, lambda tensor: copy_of(tensor) + 1 if tensor.is_floating_point() else tensor)
        changed = other.module(x)
        first = [value[0] if isinstance(value, tuple) else value for value in (changed, expected)]
        assert not torch.equal(*first)
    assert all(torch.equal(value, before[key]) for key, value in model.named_parameters())
    torch.testing.assert_close(model(x), expected)


def test_a_scripted_modules_buffers_are_its_own():
    model, x = torch.jit.script(nn.Sequential(nn.BatchNorm1d(3))).train(), torch.randn(4, 3)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    StandIn(model, copy_of).module(x)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_a_module_that_cannot_be_copied_is_refused():
    class Both(nn.Module, dict):
        """Has the memory layout of a dict."""

        __hash__ = nn.Module.__hash__

    with pytest.raises(CaptureError, match="a module of class Both cannot be copied"):
        StandIn(nn.Sequential(Both()))
