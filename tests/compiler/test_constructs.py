"""Constructs that torch.compile may hand to a backend run as with eager torch, with or without islands."""

import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils.checkpoint import checkpoint


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        [x] = ctx.saved_tensors
        return 2 * x * gradient


def gradients_of(compile, function, *shape):
    x = torch.randn(*(shape or (4,)), requires_grad=True)
    result = compile(function)(x)
    result.sum().backward()
    return result.detach(), x.grad


def autocast(compile):
    model = nn.Linear(4, 3)
    run, x = compile(model), torch.randn(2, 4)
    with torch.autocast("cpu", torch.bfloat16):
        low = run(x)
        with torch.autocast("cpu", enabled=False):
            high = run(x)
    (low.float().sum() + high.sum()).backward()
    return low, high, model.weight.grad


def data_dependent_sizes(compile):
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        mask = torch.tensor([True, False, True, True])
        return gradients_of(compile, lambda x: x[mask].exp())


def hook(compile):
    model = nn.Linear(4, 3)
    model.weight.register_hook(lambda gradient: 2 * gradient)
    compile(model)(torch.ones(2, 4)).sum().backward()
    return model.weight.grad


def recomputed_dropout(compile):
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(), nn.Tanh()).train()
    result = gradients_of(compile, lambda x: checkpoint(model, x, use_reentrant=False), 2, 4)
    return result, [weight.grad for weight in model.parameters()], torch.rand(2)


def sparse_gradient(compile):
    model = nn.Embedding(10, 3, sparse=True)
    compile(model)(torch.tensor([1, 2, 1])).sum().backward()
    return model.weight.grad.to_dense()


def subclass(compile):
    x = TwoTensor(torch.randn(3), torch.randn(3))
    with torch.no_grad():
        result = compile(lambda x: x.sin() * 2)(x)
    assert type(result) is TwoTensor
    return result.a, result.b


def subclass_in_training(compile):
    x = TwoTensor(torch.randn(3), torch.randn(3)).requires_grad_()
    compile(lambda x: x.sin() * 2)(x).sum().backward()
    return x.grad.a, x.grad.b


def written_input(compile):
    x, weight = torch.randn(4), torch.randn(4, requires_grad=True)
    compile(lambda x, weight: (x.mul_(2) * weight).sum())(x, weight).backward()
    return x, weight.grad


def jagged(compile):
    parts = [torch.randn(2, 3), torch.randn(4, 3)]
    return compile(lambda x: x.sin() * 2)(torch.nested.nested_tensor(parts, layout=torch.jagged)).values()


CONSTRUCTS = {
    "autocast within autocast": autocast,
    "a branch that is an op": lambda compile: gradients_of(
        compile, lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))
    ),
    "a function with its own backward": lambda compile: gradients_of(compile, Square.apply),
    "a hook on a weight": hook,
    "a number that is read": lambda compile: gradients_of(compile, lambda x: x * x.sum().item()),
    "a tensor subclass": subclass,
    "a tensor subclass in training": subclass_in_training,
    "a view as the result": lambda compile: gradients_of(compile, lambda x: x.view(2, 2)),
    "an input that is written": written_input,
    "complex numbers": lambda compile: gradients_of(compile, lambda x: torch.fft.fft(x).abs()),
    "float64": lambda compile: gradients_of(compile, lambda x: x.double().exp()),
    "jagged tensors": jagged,
    "random numbers": lambda compile: (gradients_of(compile, lambda x: x * torch.rand(4)), torch.rand(2)),
    "recomputed dropout": recomputed_dropout,
    "sizes that depend on data": data_dependent_sizes,
    "sparse gradients": sparse_gradient,
}


@pytest.mark.parametrize("construct", CONSTRUCTS.values(), ids=CONSTRUCTS)
def test_it_runs_as_with_eager_torch(construct, target, torch_compile):
    torch.manual_seed(1)
    ours = construct(lambda model: torch_compile(model, target))
    torch.manual_seed(1)
    theirs = construct(lambda model: model)
    rtol, atol = (2e-2, 2e-3) if construct is autocast else (1e-3, 1e-4)  # steps of bfloat16, and of float32
    torch.testing.assert_close(ours, theirs, rtol=rtol, atol=atol)


def test_double_backward_is_refused_as_aot_eager_refuses_it(torch_compile):
    x = torch.randn(3, requires_grad=True)
    [gradient] = torch.autograd.grad(torch_compile(lambda x: (x**3).sum(), "host")(x), x, create_graph=True)
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        torch.autograd.grad(gradient.sum(), x)
