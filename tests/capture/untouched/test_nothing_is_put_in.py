"""During a capture, the model is unchanged for other threads: its weights, its results, its attributes."""

import threading

import pytest
import torch
from torch import nn

import torchport
from torchport.capture import capture_graphs, export
from torchport.structure import tensors_in


class Store:
    """Holds a tensor."""

    def __init__(self):
        self.row = None


class Waits(nn.Module):
    """Lets another thread proceed in the middle of a capture, after all of its own writes."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.norm = nn.BatchNorm1d(2)
        self.seen, self.cache, self.store = [], {}, Store()
        self.count = 0

    def forward(self, x):
        y = self.linear(x)
        self.count += 1
        self.seen.append(y)
        self.cache[self.count] = y
        self.store.row = y
        self.linear.last = y
        if threading.current_thread() is not threading.main_thread():
            INSIDE.set()
            assert GO_ON.wait(60)
        return self.norm(y) + self.seen[-1] + self.cache[self.count] + self.store.row


INSIDE, GO_ON = threading.Event(), threading.Event()
WAYS = {
    "export": lambda model, x: export(model, (x,)),
    "analyze": lambda model, x: torchport.analyze(model, (x,)),
    "trace_graph": lambda model, x: torchport.trace_graph(model, (x,)),
    "explain": lambda model, x: torchport.explain(model, (x,), target="host"),
    "compile": lambda model, x: torchport.compile(model, (x,), target="host"),
    "capture_graphs": lambda model, x: capture_graphs(model, (x,)),
}


def held_by(model):
    """Return what a model holds, as plain values: each object by its id."""
    parts = [*model.modules(), model.store]
    containers = (model.seen, model.cache)
    return [
        [{name: id(value) for name, value in vars(part).items()} for part in parts],
        [[id(value) for value in part._parameters.values()] for part in model.modules()],
        [list(map(id, c.values() if isinstance(c, dict) else c)) for c in containers],
    ]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("as_function", [False, True])
def test_another_thread_finds_the_model_as_it_is(way, as_function):
    INSIDE.clear()
    GO_ON.clear()
    torch.manual_seed(0)
    model, x = Waits().eval(), torch.randn(3, 2)
    other = {key: value + 1 for key, value in model.state_dict().items()}
    before = held_by(model)
    with torch.no_grad():
        expected = model.norm(model.linear(x)) + 3 * model.linear(x)
    called = (lambda y: model(y)) if as_function else model
    errors = []

    def capture():
        try:
            WAYS[way](called, x)
        except torchport.TorchportError as error:  # a refusal is fine: the model's state meanwhile matters
            errors.append(error)

    thread = threading.Thread(target=capture)
    thread.start()
    try:
        assert INSIDE.wait(120)
        assert held_by(model) == before
        assert {type(value) for value in model.state_dict().values()} == {torch.Tensor}
        with torch.no_grad():
            result = model(x)
        assert [type(tensor) for _, tensor in tensors_in(result)] == [torch.Tensor]
        torch.testing.assert_close(result, expected)
        model.load_state_dict(other)
    finally:
        GO_ON.set()
        thread.join(120)
    assert all(torch.equal(value, other[key]) for key, value in model.state_dict().items())
    assert model.count == 1
    assert [type(value) for value in (*model.seen, *model.cache.values(), model.store.row)] == [
        torch.Tensor
    ] * 3


class Interrupted(Waits):
    """Is interrupted after all of its writes."""

    def forward(self, x):
        super().forward(x)
        raise KeyboardInterrupt


@pytest.mark.parametrize("way", WAYS)
def test_an_interrupted_capture_leaves_nothing_behind(way):
    model = Interrupted().eval()
    before = held_by(model)
    with pytest.raises(KeyboardInterrupt):
        WAYS[way](model, torch.randn(3, 2))
    assert held_by(model) == before
