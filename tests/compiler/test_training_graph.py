"""Graphs with gradients: AOTAutograd's forward and backward, each with islands."""

import copy
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import torchport
from torchport.compiler import training_graph
from torchport.errors import CompileError
from torchport.targets.host import HostTarget


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 3)
        self.norm = nn.BatchNorm2d(3)
        self.head = nn.Linear(3 * 9, 2)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)
        return self.head(x.flatten(1))


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.norm = nn.LayerNorm(8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, ids):
        x = self.embed(ids)
        y = self.norm(x)
        return x + self.attention(y, y, y, need_weights=False)[0]


CASES = {
    "convolutions": (ConvNet, lambda: torch.randn(2, 1, 8, 8)),
    "attention": (Mixer, lambda: torch.randint(0, 11, (2, 5))),
}


@pytest.mark.parametrize(("make", "inputs"), CASES.values(), ids=CASES)
def test_steps_of_training_equal_eager_torch_s(make, inputs, target, torch_compile):
    model = make().train()
    eager = copy.deepcopy(model)
    compiled = torch_compile(model, target)
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (model, eager)]
    for _ in range(3):
        x = inputs()
        ours, theirs = compiled(x), eager(x)
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
        for result, optimizer in zip((ours, theirs), optimizers, strict=True):
            optimizer.zero_grad()
            result.square().mean().backward()
        grads = [{name: p.grad for name, p in each.named_parameters()} for each in (model, eager)]
        torch.testing.assert_close(grads[0], grads[1], rtol=1e-3, atol=1e-4)
        for optimizer in optimizers:
            optimizer.step()
        torch.testing.assert_close(model.state_dict(), eager.state_dict(), rtol=1e-3, atol=1e-4)


@pytest.fixture
def programs(monkeypatch):
    """Collects the programs of the forward and backward graphs."""
    made = []
    build = training_graph.build_program

    def remember(*args):
        program, plan = build(*args)
        made.append(program)
        return program, plan

    monkeypatch.setattr(training_graph, "build_program", remember)
    return made


def test_forward_and_backward_both_have_islands(programs, target, torch_compile):
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh())
    torch_compile(model, target)(torch.randn(2, 3)).sum().backward()
    assert len(programs) == 2
    assert all(program.islands for program in programs)


def test_gradients_of_inputs(target, torch_compile):
    x = torch.randn(3, requires_grad=True)
    torch_compile(lambda x: (x * x * x).sum(), target)(x).backward()
    torch.testing.assert_close(x.grad, 3 * x.detach() ** 2)


def test_dropout_equals_eager_torch_s_for_the_same_seed(target, torch_compile):
    model = nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.5), nn.Linear(16, 4)).train()
    eager = copy.deepcopy(model)
    compiled, x = torch_compile(model, target), torch.randn(4, 16)
    for seed in (1, 2):
        torch.manual_seed(seed)
        ours = compiled(x)
        torch.manual_seed(seed)
        theirs = eager(x)
        torch.testing.assert_close(ours, theirs)
    ours.sum().backward()
    theirs.sum().backward()
    torch.testing.assert_close(model[0].weight.grad, eager[0].weight.grad)


def test_a_new_batch_size_in_training(target, torch_compile):
    model = nn.Linear(3, 2)
    compiled = torch_compile(model, target)
    for rows in (2, 5, 3):
        x = torch.randn(rows, 3)
        model.zero_grad()
        compiled(x).sum().backward()
        torch.testing.assert_close(model.weight.grad, x.sum(0).expand(2, 3))


def test_a_graph_that_the_target_cannot_build_is_trained_eagerly(torch_compile, monkeypatch, caplog):
    def fail(*_):
        raise CompileError("no")

    monkeypatch.setattr(training_graph, "build_program", fail)
    x = torch.randn(3, requires_grad=True)
    torch_compile(lambda x: x.square().sum(), "host")(x).backward()
    torch.testing.assert_close(x.grad, 2 * x.detach())
    assert "this call runs with eager torch: the graph cannot be compiled: no" in caplog.text


def test_nan_in_training_stays_nan(target, torch_compile):
    x = torch.tensor([1.0, float("nan")], requires_grad=True)
    result = torch_compile(torch.relu, target)(x)
    torch.testing.assert_close(result, torch.relu(x), equal_nan=True)


def step_of(model, *args):
    """Return the loss and all gradients of one step."""
    loss = model(*args).square().sum()
    loss.backward()
    return loss.detach()


def test_constants_come_along(target, torch_compile):
    """AOTAutograd lifts the results of `torch.tensor` into the graph as attributes."""

    def model(x):
        return x * torch.tensor([1.0, 2.0, 3.0]) + torch.tensor(0.5).exp()

    x = torch.randn(3, requires_grad=True)
    ours = step_of(torch_compile(model, target), x)
    gradient, x.grad = x.grad, None
    torch.testing.assert_close(ours, step_of(model, x))
    torch.testing.assert_close(gradient, x.grad)
    record = torchport.fallbacks()
    assert (record.calls, record.fallbacks) == (2, 0)


def test_symbolic_shapes_are_compiled_for(target, torch_compile, programs):
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    eager = copy.deepcopy(model)
    compiled = torch_compile(model, target, dynamic=True)
    for rows in (2, 5, 2, 3):
        x = torch.randn(rows, 3)
        for each in (model, eager):
            each.zero_grad()
        torch.testing.assert_close(step_of(compiled, x), step_of(eager, x), rtol=1e-4, atol=1e-5)
        gradients = [[p.grad for p in each.parameters()] for each in (model, eager)]
        torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)
    assert torchport.fallbacks().fallbacks == 0
    assert len(programs) == 6  # forward and backward of three shapes
    assert all(program.islands for program in programs)


def test_beyond_a_few_shapes_training_runs_eagerly(torch_compile, monkeypatch):
    monkeypatch.setattr(training_graph, "MOST_PROGRAMS", 2)
    model = nn.Linear(3, 2)
    compiled = torch_compile(model, "host", dynamic=True)
    for rows in range(2, 6):
        x = torch.randn(rows, 3)
        model.zero_grad()
        compiled(x).sum().backward()
        torch.testing.assert_close(model.weight.grad, x.sum(0).expand(2, 3))
    record = torchport.fallbacks()
    assert (record.calls, record.fallbacks) == (8, 4)
    assert "more than 2 shapes" in record.last_reason


@pytest.mark.usefixtures("devices")
@pytest.mark.parametrize(
    ("device", "reason"),
    [("picky", "a negative number"), ("moody", "RuntimeError: the device is gone")],
)
def test_a_device_that_raises_in_training(device, reason, torch_compile, caplog):
    x = torch.ones(3, requires_grad=True)
    compiled = torch_compile(lambda x: (x * 3).exp(), device)
    compiled(x).sum().backward()
    first = torchport.fallbacks()
    for _ in range(2):
        y = torch.full((3,), -1.0, requires_grad=True)
        compiled(y).sum().backward()
        torch.testing.assert_close(y.grad, 3 * torch.exp(torch.full((3,), -3.0)))
    last = torchport.fallbacks()
    assert (first.calls, first.fallbacks) == (2, 0)
    assert last.calls == 6
    assert last.fallbacks >= 2
    assert last.last_reason == reason
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert 1 <= len(said) <= 2  # once for each graph
    assert all(reason in text for text in said)


def test_what_aot_autograd_cannot_take_apart_runs_as_aot_eager_does(torch_compile, monkeypatch, caplog):
    def fail(*_):
        raise RuntimeError("no such decomposition")

    monkeypatch.setattr(HostTarget, "decompositions", lambda self: {torch.ops.aten.tanh.default: fail})
    x = torch.randn(3, requires_grad=True)
    torch_compile(lambda x: x.tanh().sum(), "host")(x).backward()
    torch.testing.assert_close(x.grad, 1 - x.detach().tanh() ** 2)
    record = torchport.fallbacks()
    assert (record.calls, record.fallbacks) == (1, 1)
    assert "no such decomposition" in record.last_reason
    assert "no such decomposition" in caplog.text


def test_a_graph_that_writes_in_place_is_not_taken_apart(torch_compile, programs):
    """Islands and host ops may be reordered, so the order of writes would be lost."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.empty(2)
    doubled = graph.call_function(torch.ops.aten.mul.Tensor, (x, 2))
    written = graph.call_function(torch.ops.aten.copy_.default, (x, doubled))
    total = graph.call_function(torch.ops.aten.add.Tensor, (written, 1))
    for node in (doubled, written, total):
        node.meta["val"] = torch.empty(2)
    graph.output((total,))
    module = torch.fx.GraphModule({}, graph)
    target = HostTarget()
    made = training_graph._AtenGraph(module, target, target.make_options({}))
    value = torch.ones(2)
    assert made(value)[0].tolist() == [3.0, 3.0]
    assert value.tolist() == [2.0, 2.0]
    assert not programs


def test_two_threads_train_one_model(torch_compile):
    model = nn.Linear(3, 2)
    compiled = torch_compile(model, "host")
    compiled(torch.ones(2, 3)).sum().backward()

    def train(rows):
        x = torch.full((2, 3), float(rows))
        [gradient] = torch.autograd.grad(compiled(x).sum(), [model.weight])
        return torch.equal(gradient, torch.full((2, 3), 2.0 * rows))

    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(train, range(20)))
    assert torchport.fallbacks().calls == 42


def test_random_numbers_in_a_checkpoint_are_drawn_anew_in_each_step(target, torch_compile):
    def noisy(x):
        return x * torch.bernoulli(torch.full((64,), 0.5)) * x

    def model(x):
        return checkpoint(noisy, x.sin(), use_reentrant=False).sum()

    compiled = torch_compile(model, target)
    for seed in (1, 2):
        ours, theirs = torch.ones(64, requires_grad=True), torch.ones(64, requires_grad=True)
        torch.manual_seed(seed)
        compiled(ours).backward()
        torch.manual_seed(seed)
        model(theirs).backward()
        torch.testing.assert_close(ours.grad, theirs.grad)


def test_a_checkpoint_that_runs_eagerly_after_all_draws_the_same_numbers(target, torch_compile):
    def model(x, y):
        return torch.relu(checkpoint(F.dropout, x.sin() * 2, use_reentrant=False) + y)

    compiled, x, y = torch_compile(model, target), torch.ones(64, requires_grad=True), torch.zeros(64)
    compiled(x, y)
    y[3] = float("nan")  # a device that loses NaN refuses it, after the random numbers are drawn
    torch.manual_seed(4)
    ours, after = compiled(x, y), torch.rand(1)
    torch.manual_seed(4)
    torch.testing.assert_close(ours, model(x, y), equal_nan=True)
    assert torch.equal(after, torch.rand(1))
