"""Several models, several threads, and models that were moved before they were compiled."""

import copy
import io
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

import torchport


class Net(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, width), nn.GELU(), nn.Linear(width, 6))
        self.register_buffer("scale", torch.rand(6))

    def forward(self, x):
        return torch.softmax(self.layers(x) * self.scale, -1)


def test_two_models_in_one_process(bring_up):
    models = [Net().eval(), Net().eval(), Net(4).eval()]
    x = torch.randn(2, 6)
    compiled = [bring_up(model, x) for model in models]
    for _ in range(2):
        for ours, model in zip(compiled, models, strict=True):
            torch.testing.assert_close(ours(x), model(x))


def test_one_model_for_two_targets():
    model, x = Net().eval(), torch.randn(2, 6)
    host, device = (torchport.compile(model, (x,), target=target) for target in ("host", "openvino"))
    torch.testing.assert_close(host(x), device(x))
    assert (host.record.target, device.record.target) == ("host", "openvino")


def test_the_same_model_from_four_threads(bring_up):
    model = Net().eval()
    compiled = bring_up(model, torch.randn(1, 6))
    compiled(torch.randn(1, 6))

    # Beforehand: while a model is compiled, torch's tracing replaces its weights by fakes, so that the model
    # itself must not be called.
    calls = {seed: [torch.randn(1 + (seed + turn) % 3, 6) for turn in range(15)] for seed in range(4)}
    expected = {seed: [model(x) for x in inputs] for seed, inputs in calls.items()}

    def work(seed):
        with torch.no_grad():
            return [compiled(x) for x in calls[seed]]  # new sizes occur while other threads are running

    with ThreadPoolExecutor(4) as pool:
        done = {seed: pool.submit(work, seed) for seed in calls}
    for seed, results in done.items():
        torch.testing.assert_close(results.result(), expected[seed])


def test_calls_that_run_eagerly_while_another_thread_compiles():
    model = Net().eval()
    compiled = torchport.compile(model, (torch.ones(1, 6),), target="openvino")
    bad = torch.full((1, 6), float("nan"))

    def work(index):
        if index % 2:
            return [compiled(bad).isnan().all() for _ in range(20)]
        return [compiled(torch.ones(size, 6)).isfinite().all() for size in range(2 + index, 5 + index)]

    with ThreadPoolExecutor(4) as pool:
        done = [pool.submit(work, index) for index in range(4)]
    assert all(all(each.result()) for each in done)


def test_four_threads_each_with_a_model_of_its_own(target, torch_compile):
    models = [Net().eval() for _ in range(4)]
    ways = [torch_compile(model, target) for model in models[:2]]
    x = torch.randn(2, 6)

    def work(index):
        with torch.no_grad():
            made = ways[index] if index < 2 else torchport.compile(models[index], (x,), target=target)
            for _ in range(5):
                torch.testing.assert_close(made(x), models[index](x))

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work, index) for index in range(4)]:
            done.result()


def torch_saved(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def pickled(model):
    return pickle.loads(pickle.dumps(model))


@pytest.mark.parametrize("move", [copy.deepcopy, pickled, torch_saved])
def test_a_model_that_was_copied_before_compiling(move, bring_up):
    original, x = Net().eval(), torch.randn(2, 6)
    first = bring_up(original, x)
    torch.testing.assert_close(first(x), original(x))
    moved = move(original)
    second = bring_up(moved, x)
    torch.testing.assert_close(second(x), original(x))
    moved.layers[0].weight.zero_()  # the copy is independent
    torch.testing.assert_close(second(x), moved(x))
    torch.testing.assert_close(first(x), original(x))


def test_a_model_can_be_copied_and_pickled_after_it_was_compiled(target):
    model, x = Net().eval(), torch.randn(2, 6)
    torchport.compile(model, (x,), target=target)(x)
    for moved in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        torch.testing.assert_close(moved(x), model(x))


def test_tied_weights(bring_up):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(12, 6)
            self.head = nn.Linear(6, 12, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, ids):
            return self.head(torch.tanh(self.embed(ids)))

    model, ids = Tied().eval(), torch.tensor([[1, 5, 11]])
    compiled = bring_up(model, ids)
    torch.testing.assert_close(compiled(ids), model(ids))
    model.embed.weight.mul_(2)
    torch.testing.assert_close(compiled(ids), model(ids))


def test_one_module_used_twice(bring_up):
    layer = nn.Linear(6, 6)
    model, x = nn.Sequential(layer, nn.Tanh(), layer).eval(), torch.randn(2, 6)
    compiled = bring_up(model, x)
    torch.testing.assert_close(compiled(x), model(x))
    layer.weight = nn.Parameter(torch.randn(6, 6))
    torch.testing.assert_close(compiled(x), model(x))
