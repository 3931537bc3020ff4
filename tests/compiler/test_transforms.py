"""Transforms of torch.func in graphs of the torch.compile backend: correct, and torch's state is kept."""

import pytest
import torch
from torch import nn

import torchport
from torchport.compiler import training_graph
from torchport.targets.host import HostTarget

X = torch.linspace(-1, 1, 3)
ROWS = torch.linspace(-1, 1, 12).reshape(4, 3)


def waves(x):
    return (x**2).sin()


def total(w, x):
    return (w * x).sin().sum()


TRANSFORMS = {
    "grad": lambda: torch.func.grad(total)(X, X),
    "vmap": lambda: torch.vmap(lambda row: torch.softmax(row, 0) @ row)(ROWS),
    "vmap of grad": lambda: torch.vmap(torch.func.grad(total), (None, 0))(X, ROWS),
    "vjp": lambda: torch.func.vjp(waves, X)[1](X),
    "jvp": lambda: torch.func.jvp(waves, (X,), (X,)),
    "jacrev": lambda: torch.func.jacrev(waves)(X),
    "jacfwd": lambda: torch.func.jacfwd(waves)(X),
    "hessian": lambda: torch.func.hessian(lambda x: (x**3).sum())(X),
}


def assert_torch_is_as_it_was():
    assert torch._C._functorch.peek_interpreter_stack() is None
    assert torch.allclose(X, X)  # raises if a level of vmap is left over
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("call", TRANSFORMS.values(), ids=TRANSFORMS)
def test_a_transform_equals_eager_torch_s(call, target, torch_compile):
    torch.testing.assert_close(torch_compile(call, target)(), call(), rtol=1e-4, atol=1e-5)
    assert_torch_is_as_it_was()
    assert torchport.fallbacks().fallbacks == 0


@pytest.mark.parametrize("call", TRANSFORMS.values(), ids=TRANSFORMS)
def test_a_transform_that_cannot_be_compiled_runs_with_eager_torch(call, torch_compile, monkeypatch):
    def fail(*_):
        raise RuntimeError("no")

    monkeypatch.setattr(HostTarget, "verdict", fail)
    torch.testing.assert_close(torch_compile(call, "host")(), call())
    assert_torch_is_as_it_was()
    assert torchport.fallbacks().fallbacks == 1


def test_where_aot_autograd_fails_torch_is_as_it_was(torch_compile, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("in the middle of a trace")

    monkeypatch.setattr(HostTarget, "decompositions", lambda self: {torch.ops.aten.sin.default: fail})
    call = TRANSFORMS["vmap of grad"]
    torch.testing.assert_close(torch_compile(call, "host")(), call())
    assert_torch_is_as_it_was()


class PerSample(nn.Module):
    """Per-sample gradients, as differential privacy needs them."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))

    def forward(self, rows):
        weights = dict(self.net.named_parameters())

        def loss(weights, row):
            return torch.func.functional_call(self.net, weights, (row,)).square().sum()

        return torch.vmap(torch.func.grad(loss), (None, 0))(weights, rows)


@pytest.mark.parametrize("gradients", [False, True])
def test_a_model_with_gradients_of_each_sample(gradients, target, torch_compile):
    model = PerSample()
    compiled = torch_compile(model, target)
    with torch.set_grad_enabled(gradients):
        ours, theirs = compiled(ROWS), model(ROWS)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert_torch_is_as_it_was()
    if gradients:
        weights = list(model.parameters())
        both = [
            torch.autograd.grad(sum(item.sum() for item in each.values()), weights, allow_unused=True)
            for each in (ours, theirs)
        ]
        torch.testing.assert_close(*both, rtol=1e-4, atol=1e-5)


def test_a_transform_of_what_is_compiled(target, torch_compile):
    compiled = torch_compile(waves, target)
    torch.testing.assert_close(torch.vmap(compiled)(ROWS), waves(ROWS))
    torch.testing.assert_close(torch.func.jacrev(compiled)(X), torch.func.jacrev(waves)(X))
    assert_torch_is_as_it_was()


def test_islands_are_built_for_what_transforms_resolve_to(torch_compile, monkeypatch):
    made = []
    build = training_graph.build_program
    monkeypatch.setattr(training_graph, "build_program", lambda *args: made.append(build(*args)) or made[-1])
    torch_compile(TRANSFORMS["vmap of grad"], "host")()
    [(program, _)] = made
    assert program.record.coverage.complete
