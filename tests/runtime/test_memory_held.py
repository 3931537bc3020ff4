"""Models that are deleted are freed, however they were compiled: islands, programs and weights."""

import gc

import pytest
import torch
from torch import nn

import torchport
from torchport.compiler.graph_programs import _watched
from torchport.runtime import island as islands
from torchport.runtime.island import LoadedIsland
from torchport.runtime.runnable_program import RunnableProgram

WIDTH = 256
HERE = torchport.TraceSettings(child_process=False)
X = torch.ones(2, WIDTH)


@pytest.fixture(autouse=True)
def old_objects_are_left_alone():
    """Excludes objects of earlier tests from garbage collection here, which would scan millions."""
    gc.collect()
    gc.freeze()  # for good: each later test would collect among them again


def held():
    """Return how many islands, programs and large tensors are alive."""
    for _ in range(2):  # objects held by TorchScript become garbage only once it is freed
        gc.collect()
    objects = gc.get_objects()
    return {
        "islands": sum(type(item) is LoadedIsland for item in objects),
        "programs": sum(type(item) is RunnableProgram for item in objects),
        "weights": sum(  # without fake tensors, which hold no memory
            type(item) in (torch.Tensor, nn.Parameter) and not item.is_meta and item.numel() >= WIDTH * WIDTH
            for item in objects
        ),
        "names of islands": len(islands._loaded),
        "payloads": len(islands._of_payload),
        "graphs": len(_watched),
    }


def compiled(folder):
    torchport.compile(new_model(), (X,), target="host")(X)


def saved_and_loaded(folder):
    torchport.save(torchport.compile(new_model(), (X,), target="host"), folder / "model.pt2")
    torchport.load(folder / "model.pt2")(X)


def traced_and_loaded(folder):
    torchport.trace(new_model(), (X,), target="host", settings=HERE).save(folder / "model.pt")
    model = torch.jit.load(folder / "model.pt")
    for _ in range(2):
        model(X)


def compiled_by_torch(folder):
    with torch.no_grad():
        torch.compile(new_model(), backend="torchport", options={"target": "host"})(X)
    torch._dynamo.reset()


def trained_by_torch(folder):
    torch.compile(new_model(), backend="torchport", options={"target": "host"})(X).sum().backward()
    torch._dynamo.reset()


def new_model():
    return nn.Linear(WIDTH, WIDTH).eval()


@pytest.mark.parametrize(
    ("use", "times"),
    [
        (compiled, 50),
        (saved_and_loaded, 3),
        (traced_and_loaded, 3),
        (compiled_by_torch, 3),
        (trained_by_torch, 3),
    ],
)
def test_deleted_models_are_freed(use, times, tmp_path):
    torch._dynamo.reset()
    weights = held()["weights"]
    use(tmp_path)  # creates everything that is created once and kept
    before = held()
    assert before["weights"] <= weights  # the last captured model is not kept either
    for _ in range(times):
        use(tmp_path)
    more = {what: (before[what], count) for what, count in held().items() if count > before[what]}
    assert not more  # there may be fewer: leftovers of earlier tests are freed by now


def test_loaded_torchscript_holds_its_island(tmp_path, monkeypatch):
    torchport.trace(new_model(), (X,), target="host", settings=HERE).save(tmp_path / "model.pt")
    gc.collect()
    loads = []
    load = islands._load
    monkeypatch.setattr(islands, "_load", lambda *args: loads.append(1) or load(*args))
    model = torch.jit.load(tmp_path / "model.pt")
    for _ in range(3):
        model(X)
        gc.collect()
    assert len(loads) == 1
