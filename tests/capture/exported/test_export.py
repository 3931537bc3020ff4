"""Models of every kind become a graph from tensors to tensors."""

import collections

import pytest
import torch
from torch import nn
from transformers import DynamicCache

from torchport.capture import export, module_path
from torchport.errors import CaptureError

Pair = collections.namedtuple("Pair", "left right")


def run(captured, *args, **kwargs):
    """Run a captured graph on inputs of the same kind."""
    from torchport.structure import flatten

    flat = flatten((args, kwargs))
    outputs = captured.program.module()(*flat.leaves)
    return captured.result.rebuild(outputs, flat.leaves, flat.objects)


def test_a_module_becomes_a_graph():
    model = nn.Linear(2, 3)
    captured = export(model, (torch.ones(1, 2),))
    x = torch.randn(1, 2)
    assert torch.equal(run(captured, x), model(x))
    assert captured.name == "Linear"


def test_a_function_becomes_a_graph():
    captured = export(lambda x: x * 2, (torch.ones(3),), name="twice")
    assert run(captured, torch.full((3,), 4.0)).tolist() == [8.0, 8.0, 8.0]
    assert captured.name == "twice"


def test_nested_and_keyword_inputs():
    def model(pairs, *, scale=None, names=("a",)):
        return {name: pair.left * scale + pair.right[0] for name, pair in zip(names, pairs, strict=True)}

    def inputs():
        return [Pair(torch.randn(2), (torch.randn(2),)) for _ in range(2)], {
            "scale": torch.randn(2),
            "names": ("a", "b"),
        }

    pairs, keywords = inputs()
    captured = export(model, (pairs,), keywords)
    pairs, keywords = inputs()
    torch.testing.assert_close(run(captured, pairs, **keywords), model(pairs, **keywords))


def test_a_class_that_torch_does_not_know_comes_in_and_goes_out():
    def model(x, cache):
        cache.update(x, x * 2, 0)
        return cache

    captured = export(model, (torch.ones(1, 1, 3, 2), DynamicCache()))
    cache = DynamicCache()
    assert run(captured, torch.ones(1, 1, 3, 2), cache) is cache
    assert cache.layers[0].values.unique().item() == 2.0


def test_dynamic_dimensions_stay_open():
    batch = torch.export.Dim("batch", min=1, max=16)
    captured = export(nn.ReLU(), (torch.ones(2, 3),), dynamic_shapes=({0: batch},))
    assert run(captured, torch.full((7, 3), -1.0)).shape == (7, 3)


def test_the_example_inputs_and_the_buffers_are_left_as_they_were():
    def model(x, box):
        x.mul_(2)
        box.append(x)
        return x

    x, box = torch.ones(2), []
    export(model, (x, box))
    assert x.tolist() == [1.0, 1.0]
    assert box == []
    norm = nn.BatchNorm1d(2).train()
    export(norm, (torch.randn(3, 2),))
    assert norm.num_batches_tracked == 0
    assert norm.running_mean.tolist() == [0.0, 0.0]


def test_an_input_may_be_a_view_of_another():
    boxes = torch.randn(90, 4)
    some = boxes[5:35]

    def widths(some, boxes):
        return some[:, None, 2:] - boxes[None, :, 2:]

    captured = export(widths, (some, boxes))
    (found,) = captured.program.run_decompositions().module()(some.clone(), boxes)
    assert torch.equal(found, widths(some, boxes))


def test_nothing_is_drawn_from_the_generator():
    state = torch.get_rng_state()
    export(nn.Dropout().train(), (torch.ones(8),))
    assert torch.equal(torch.get_rng_state(), state)


def test_the_mode_of_the_model_is_captured():
    model = nn.BatchNorm1d(2)
    names = {
        training: {
            str(node.target)
            for node in export(model.train(training), (torch.ones(3, 2),)).program.graph.nodes
        }
        for training in (True, False)
    }
    assert names[True] != names[False]


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64, torch.int8, torch.bool])
def test_any_dtype(dtype):
    x = torch.tensor([1, 0, 1]).to(dtype)
    captured = export(lambda x: x.flip(0), (x,))
    assert torch.equal(run(captured, x), x.flip(0))


def test_modules_are_found_whatever_an_earlier_trace_left_behind(monkeypatch):
    left = {"nn_module_stack": {"other": ("other", "Other")}, "stack_trace": "elsewhere"}
    monkeypatch.setattr(torch.fx.traceback, "current_meta", left)
    captured = export(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), (torch.ones(1, 2),))
    paths = [module_path(node) for node in captured.program.graph.nodes if node.op == "call_function"]
    assert paths == ["0", "1"]
    assert torch.fx.traceback.current_meta is left


def test_a_number_that_depends_on_values_is_refused_as_a_result():
    with pytest.raises(CaptureError, match="returns a number that depends on the values of a tensor"):
        export(lambda x: (x * 2, x[x > 0].shape[0]), (torch.tensor([1.0, -1.0, 2.0]),))
