"""Graphs of Dynamo's without gradients: compiled for each shape, their weights frozen."""

import pytest
import torch
from torch import nn

from torchport.compiler import inference_graph
from torchport.compiler.inference_graph import InferenceGraph
from torchport.targets.host import HostTarget

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


@torch.no_grad()
def test_weights_are_frozen_into_the_islands(graphs, torch_compile, target):
    model = nn.Linear(3, 4)
    torch_compile(model, target)(X)
    [graph] = graphs
    [made] = graph._programs.values()
    assert len(made.program.record.frozen) == 2
    assert made.program.record.coverage.complete
    assert [str(spec) for spec in made.program.record.inputs.values()] == ["float32[2, 3]"]


@torch.no_grad()
def test_a_shape_is_compiled_once(builds, torch_compile, target):
    model = nn.Linear(3, 4)
    compiled = torch_compile(model, target)
    for rows in (2, 2, 3, 3, 5, 5, 3):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(compiled(x), model(x))
    assert len(builds) == 3


@torch.no_grad()
def test_beyond_a_few_shapes_a_graph_runs_eagerly(builds, torch_compile, monkeypatch):
    monkeypatch.setattr(inference_graph, "_MOST_PROGRAMS", 2)
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
    assert "a graph runs with eager torch" in caplog.text


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
    builds, torch_compile, target
):
    model = nn.Linear(3, 4)
    compiled = torch_compile(model, target)
    inputs = [torch.randn(rows, 3) for rows in range(2, 2 + inference_graph._MOST_PROGRAMS + 2)]
    for x in inputs:
        torch.testing.assert_close(compiled(x), model(x))
    before = len(builds)
    assert inference_graph._MOST_PROGRAMS <= before < len(inputs)  # Dynamo takes the first shape for fixed
    model.weight.mul_(2)
    for x in inputs:
        torch.testing.assert_close(compiled(x), model(x))
    assert len(builds) >= before + inference_graph._MOST_PROGRAMS
