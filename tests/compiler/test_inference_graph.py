"""Dynamo's graphs without gradients: compiled for each shape, with frozen weights."""

import gc
import weakref

import pytest
import torch
from torch import nn

import torchport
from torchport.compiler import inference_graph, weight_sets
from torchport.compiler.graph_programs import recording_coverage
from torchport.compiler.inference_graph import InferenceGraph
from torchport.targets.host import HostTarget
from torchport.targets.openvino import OpenVinoTarget

X = torch.ones(2, 3)


@pytest.fixture
def graphs(monkeypatch):
    """Collects the graphs that are compiled."""
    made = []
    start = InferenceGraph.__init__

    def remember(self, *args):
        made.append(self)
        start(self, *args)

    monkeypatch.setattr(InferenceGraph, "__init__", remember)
    return made


@pytest.fixture
def builds(monkeypatch):
    """Counts the islands that are built or read."""
    counted = []
    build = inference_graph.build_program

    def count(source, target, options):
        counted.append(source.name)
        return build(source, target, options)

    monkeypatch.setattr(inference_graph, "build_program", count)
    return counted


@pytest.fixture
def fixed_sizes(monkeypatch):
    """Makes each size be compiled separately."""
    for kind in (HostTarget, OpenVinoTarget):
        monkeypatch.setattr(kind, "takes_open_sizes", lambda self, options: False)


@torch.no_grad()
def test_weights_are_frozen_into_the_islands(graphs, torch_compile, target):
    model = nn.Linear(3, 4)
    torch_compile(model, target)(X)
    [graph] = graphs
    [made] = graph._programs.values()[0].by_shape.values()
    assert len(made.program.record.frozen) == 2
    assert made.program.record.coverage.complete
    assert [str(spec) for spec in made.program.record.inputs.values()] == ["float32[2, 3]"]


@torch.no_grad()
def test_a_shape_is_compiled_once(builds, torch_compile, target, fixed_sizes):
    model = nn.Linear(3, 4)
    compiled = torch_compile(model, target)
    for rows in (2, 2, 3, 3, 5, 5, 3):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(compiled(x), model(x))
    assert len(builds) == 3


@torch.no_grad()
@pytest.mark.parametrize(("dynamic", "count"), [(True, 1), (None, 2)])
def test_sizes_that_vary_are_compiled_for_once(builds, torch_compile, target, dynamic, count):
    """Dynamo specializes to the first shape unless told otherwise, and makes sizes open with the next one."""
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    compiled = torch_compile(lambda x: model(x).view(x.shape[0] * 2, 2) + x.shape[0], target, dynamic=dynamic)
    for rows in range(2, 22):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(compiled(x), model(x).view(rows * 2, 2) + rows)
    assert len(builds) == count
    assert torchport.fallbacks().fallbacks == 0
    model[0].weight.mul_(2)
    for x in (torch.randn(5, 3), torch.randn(6, 3)):
        torch.testing.assert_close(compiled(x), model(x).view(len(x) * 2, 2) + len(x))
    assert len(builds) == count + 1


@torch.no_grad()
@pytest.mark.parametrize("frozen", [True, False])
def test_a_graph_follows_its_weights_unless_it_is_said_not_to_change(torch_compile, frozen):
    model, x = nn.Linear(3, 4), torch.randn(2, 3)
    compiled = torch_compile(model, "host", frozen=frozen)
    before = compiled(x)
    torch.testing.assert_close(before, model(x))
    model.weight.data.mul_(2)  # invisible to Dynamo
    torch.testing.assert_close(compiled(x), before if frozen else model(x))


@torch.no_grad()
def test_a_number_that_is_no_size_is_not_open(builds, torch_compile, target):
    compiled = torch_compile(lambda x, n: x[:n] * 2, target, dynamic=True)
    for n in (2, 3, 4):
        torch.testing.assert_close(compiled(torch.ones(6, 2), n), torch.ones(n, 2) * 2)
    assert len(builds) == 3
    assert torchport.fallbacks().fallbacks == 0


@torch.no_grad()
def test_beyond_a_few_shapes_a_graph_runs_eagerly(builds, torch_compile, monkeypatch, fixed_sizes):
    monkeypatch.setattr(inference_graph, "MOST_PROGRAMS", 2)
    model = nn.Linear(3, 4)
    compiled = torch_compile(model, "host")
    torch._dynamo.mark_dynamic(x := torch.randn(2, 3), 0)
    compiled(x)
    for rows in (3, 4, 5, 6):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(compiled(x), model(x))
    assert len(builds) == 2


@torch.no_grad()
def test_a_graph_that_cannot_be_built_runs_eagerly(torch_compile, monkeypatch, caplog):
    def fail(*_):
        raise RuntimeError("no")

    monkeypatch.setattr(HostTarget, "verdict", fail)
    model = nn.Linear(3, 4)
    torch.testing.assert_close(torch_compile(model, "host")(X), model(X))
    assert "a graph: this call runs with eager torch: the graph cannot be compiled" in caplog.text


@torch.no_grad()
def test_a_changed_weight_is_built_anew(builds, torch_compile, target):
    model = nn.Linear(3, 4)
    compiled = torch_compile(model, target)
    compiled(X)
    model.weight.mul_(2)
    torch.testing.assert_close(compiled(X), model(X))
    compiled(X)
    assert len(builds) == 2


@torch.no_grad()
def test_numbers_are_part_of_the_kind(torch_compile, target):
    compiled = torch_compile(lambda x, n: x * n + x.shape[0], target)
    for n in (2, 3, 0.5, 4, True):
        torch.testing.assert_close(compiled(X, n), X * n + 2)


def test_autocast_is_part_of_the_kind(torch_compile, target):
    model = nn.Linear(3, 4).requires_grad_(False)
    compiled = torch_compile(model, target)
    assert compiled(X).dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        result, expected = compiled(X), model(X)
    assert result.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(result, expected, rtol=2e-2, atol=2e-2)
    assert compiled(X).dtype == torch.float32


@torch.no_grad()
def test_a_known_shape_is_built_again_when_a_weight_changed_however_many_there_are(
    builds, torch_compile, target, fixed_sizes
):
    model = nn.Linear(3, 4)
    compiled = torch_compile(model, target)
    inputs = [torch.randn(rows, 3) for rows in range(2, 2 + inference_graph.MOST_PROGRAMS + 2)]
    for x in inputs:
        torch.testing.assert_close(compiled(x), model(x))
    before = len(builds)
    assert inference_graph.MOST_PROGRAMS <= before < len(inputs)  # Dynamo specializes to the first shape
    model.weight.mul_(2)
    for x in inputs:
        torch.testing.assert_close(compiled(x), model(x))
    assert len(builds) >= before + inference_graph.MOST_PROGRAMS


@torch.no_grad()
def test_shapes_beyond_the_limit_are_not_remembered(graphs, torch_compile, monkeypatch, fixed_sizes):
    monkeypatch.setattr(inference_graph, "MOST_PROGRAMS", 2)
    model = nn.Linear(3, 4)
    compiled = torch_compile(model, "host", dynamic=True)
    for rows in range(2, 9):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(compiled(x), model(x))
    [graph] = graphs
    [programs] = graph._programs.values()
    assert len(programs.by_shape) == 2
    record = torchport.fallbacks()
    assert (record.calls, record.fallbacks) == (7, 5)
    assert record.last_reason == "the graph was called with more than 2 shapes"


@pytest.mark.parametrize(
    "optimizer",
    [torch.optim.SGD, pytest.param(torch.optim.Adam, marks=pytest.mark.conformance), torch.optim.AdamW],
)
def test_a_whole_step_of_training_with_its_optimizer(optimizer, target, torch_compile):
    """Dynamo keeps the optimizer's tensors in the graph itself, which writes them."""

    def train(compile):
        torch.manual_seed(0)
        model = nn.Linear(3, 3)
        chosen = optimizer(model.parameters(), lr=0.1)

        def step(x):
            chosen.zero_grad()
            loss = model(x).square().sum()
            loss.backward()
            chosen.step()
            return loss

        run = compile(step)
        losses = [run(torch.randn(2, 3)).detach() for _ in range(4)]
        return losses, model.state_dict(), chosen.state_dict()["state"]

    ours = train(lambda step: torch_compile(step, target))
    torch.testing.assert_close(ours, train(lambda step: step), rtol=1e-4, atol=1e-5)
    assert torchport.fallbacks().fallbacks == 0


@torch.no_grad()
def test_a_capture_that_fails_writes_nothing(torch_compile, monkeypatch):
    count = torch.zeros(())

    def fail(*_):
        raise RuntimeError("no")

    monkeypatch.setattr(HostTarget, "verdict", fail)
    for calls in (1, 2):
        torch_compile(lambda x: x + count.add_(1), "host")(X)
        assert count.item() == calls


def test_each_graph_tells_what_its_target_takes():
    def model(x):
        y = torch.relu(x) * 2
        torch._dynamo.graph_break()
        return y.sin()

    with torch.no_grad(), recording_coverage() as built:
        torch.compile(model, backend="torchport", options={"target": "host"})(torch.ones(3))
    assert [each.ops_before for each in built] == [2, 1]


def test_a_graph_takes_views_of_its_other_inputs():
    def distances(some, others):
        return (some[:, None, 2:] - others[None, :, 2:]).abs().sum(2)

    points = torch.rand(9, 4)
    compiled = torch.compile(distances, backend="torchport", options={"target": "host"})
    with torch.no_grad(), recording_coverage() as built:
        for stop in (5, 7):
            assert torch.equal(compiled(points[2:stop], points), distances(points[2:stop], points))
    assert len(built) == 2


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(3), nn.Linear(3, 3)

    def forward(self, x):
        return x + self.linear(self.norm(x))


class Layers(nn.Module):
    """Layers with the same code, each compiled separately: Dynamo makes one graph for them."""

    def __init__(self, count, target, **options):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(count))
        for layer in self.layers:
            layer.compile(backend="torchport", options={"target": target, **options})

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

    def eagerly(self, x):
        for layer in self.layers:
            x = layer.forward(x)
        return x


@torch.no_grad()
@pytest.mark.parametrize("dynamic", [False, True])
def test_layers_that_share_a_graph_are_built_once_each(builds, graphs, target, dynamic):
    torch._dynamo.reset()
    model = Layers(4, target)
    for _ in range(3):
        x = torch.randn(2, 3)
        if dynamic:
            torch._dynamo.mark_dynamic(x, 0)
        torch.testing.assert_close(model(x), model.eagerly(x))
    assert (len(graphs), len(builds)) == (1, 4)
    model.layers[2].linear.weight.mul_(2)
    model.layers[3].linear.weight.data = torch.randn(3, 3)
    for _ in range(2):
        torch.testing.assert_close(model(x), model.eagerly(x))
    assert len(builds) == 6
    model.layers[0].linear.weight = nn.Parameter(torch.randn(3, 3))
    for _ in range(2):
        torch.testing.assert_close(model(x), model.eagerly(x))
    assert len(builds) == 7
    assert torchport.fallbacks().fallbacks == 0


@torch.no_grad()
@pytest.mark.parametrize(
    "kept", [(), ("aten.linear", "aten.addmm", "aten.layer_norm", "aten.native_layer_norm")]
)
def test_programs_are_freed_with_the_weights_that_they_are_for(graphs, target, kept):
    """Dynamo keeps the graph: it belongs to the code, not to the model."""
    torch._dynamo.reset()
    model = Layers(3, target, keep_ops=kept)
    model(X)
    [graph] = graphs
    assert len(graph._programs.values()) == 3
    weights = [weakref.ref(parameter) for parameter in model.parameters()]
    del model
    gc.collect()
    assert not graph._programs.values()
    assert not any(weight() is not None for weight in weights)


@torch.no_grad()
def test_beyond_many_sets_of_weights_a_graph_runs_eagerly(builds, monkeypatch):
    monkeypatch.setattr(weight_sets, "MOST_SETS", 2)
    torch._dynamo.reset()
    model = Layers(4, "host")
    for _ in range(2):
        torch.testing.assert_close(model(X), model.eagerly(X))
    assert len(builds) == 2
    record = torchport.fallbacks()
    assert (record.calls, record.fallbacks) == (8, 4)


@torch.no_grad()
def test_why_there_is_a_program_for_each_size_is_logged_once(builds, torch_compile, caplog):
    cache = torch.rand(2, 3, 16, 4)
    model = Doubled()
    compiled = torch_compile(model, "host")
    for length in (3, 4, 5, 6):  # of slices of a cache, which have a stride that Dynamo passes as a number
        torch.testing.assert_close(compiled(cache[:, :, :length]), 2 * cache[:, :, :length])
    assert len(builds) == 4
    assert caplog.text.count("a graph: each size is compiled separately: ") == 1


class Doubled(nn.Module):
    def forward(self, x):
        return x * 2
