"""The op `torchport::island`, on real and on fake tensors."""

import gc
import json

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import torchport
from torchport.errors import RecordError, RuntimeRefusal, TargetError
from torchport.runtime import island as islands
from torchport.runtime.island import empty_like_spec, load_island, parse_meta


def made(target, function, *args):
    """Return the payload and the metadata of a function's only island."""
    graph = torchport.compile(function, args, target=target)._first.program.graph_module
    [call] = [node for node in graph.graph.nodes if node.target is torch.ops.torchport.island.default]
    return getattr(graph, call.args[0].target), call.args[1]


def test_the_op_runs_an_island(target):
    blob, meta = made(target, lambda x, y: (x + y, x * y), torch.ones(2), torch.ones(2))
    x, y = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    first, second = torch.ops.torchport.island(blob, meta, [x, y])
    assert first.tolist() == [4.0, 6.0]
    assert second.tolist() == [3.0, 8.0]


def test_the_op_tells_shapes_on_meta_tensors(target):
    blob, meta = made(target, lambda x: x.sum(1), torch.ones(2, 3))
    [result] = torch.ops.torchport.island(blob.to("meta"), meta, [torch.empty(2, 3, device="meta")])
    assert (result.device.type, result.shape, result.dtype) == ("meta", (2,), torch.float32)


def test_the_op_tells_shapes_on_fake_tensors(target):
    blob, meta = made(target, lambda x: (x > 0, x.transpose(0, 1) + 1), torch.ones(2, 3))
    with FakeTensorMode() as mode:
        results = torch.ops.torchport.island(mode.from_tensor(blob), meta, [torch.empty(2, 3)])
    assert [(result.dtype, tuple(result.shape)) for result in results] == [
        (torch.bool, (2, 3)),
        (torch.float32, (3, 2)),
    ]
    assert all(result.device.type == "cpu" for result in results)


def test_the_op_can_be_exported(target):
    blob, meta = made(target, torch.relu, torch.ones(2))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("blob", blob)

        def forward(self, x):
            return torch.ops.torchport.island(self.blob, meta, [x])[0]

    program = torch.export.export(Model(), (torch.ones(2),))
    assert program.module()(torch.tensor([-1.0, 2.0])).tolist() == [0.0, 2.0]


def test_results_have_the_memory_order_of_torch_s_own(target):
    x = torch.randn(1, 3, 4, 4).to(memory_format=torch.channels_last)
    blob, meta = made(target, torch.relu, x)
    [result] = torch.ops.torchport.island(blob, meta, [x])
    assert result.stride() == torch.relu(x).stride()
    [shown] = torch.ops.torchport.island(blob.to("meta"), meta, [x.to("meta")])
    assert shown.stride() == result.stride()


@pytest.mark.parametrize("order", [[0, 1, 1, 2], [3, 2, 1], [-1, 0, 1, 2], [0, 1, 2, 9], list(range(40))])
def test_an_impossible_memory_order_is_refused(target, order):
    x = torch.randn(1, 3, 4, 4)
    blob, meta = made(target, torch.relu, x)
    data = json.loads(meta)
    data["outputs"][0]["order"] = order
    with pytest.raises(RecordError, match="is not an order of 4 dimensions"):
        torch.ops.torchport.island(blob, json.dumps(data), [x])


def test_a_damaged_payload_is_refused(target):
    blob, meta = made(target, torch.tanh, torch.ones(2))
    damaged = blob.clone()
    damaged[len(damaged) // 2] ^= 1
    renamed = json.dumps(json.loads(meta) | {"name": "not loaded yet"})
    with pytest.raises(RuntimeRefusal, match="the island's payload is damaged") as caught:
        torch.ops.torchport.island(damaged, renamed, [torch.ones(2)])
    assert (caught.value.where, caught.value.remedy) == ("not loaded yet", "compile the model again")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"schema": "torchport.island/9"}, RecordError, "the schema is 'torchport.island/9'"),
        ({"target": "opnvino"}, TargetError, "no target named 'opnvino': did you mean 'openvino'"),
        ({"options": {"speed": 9}}, TargetError, "the target has no option 'speed'"),
    ],
)
def test_foreign_metadata_is_refused(change, error, message):
    blob, meta = made("host", torch.tanh, torch.ones(2))
    with pytest.raises(error) as caught:
        load_island(blob, json.dumps(json.loads(meta) | change))
    assert message in str(caught.value)


def test_an_island_is_loaded_once_and_freed_with_its_last_program(monkeypatch):
    loads = []
    load = islands._load
    monkeypatch.setattr(islands, "_load", lambda *args: loads.append(1) or load(*args))
    model, x = nn.Linear(3, 3).eval(), torch.ones(1, 3)
    first = torchport.compile(model, (x,), target="host")
    second = torchport.compile(model, (x,), target="host")
    assert len(loads) == 1
    for _ in range(3):  # free islands of earlier tests here, not below; some hold others
        gc.collect()
    count = len(islands._loaded)
    del first
    gc.collect()
    assert len(islands._loaded) == count
    del second
    gc.collect()
    assert len(islands._loaded) == count - 1


def test_payload_and_tensors_may_be_on_different_devices():
    blob, meta = made("host", lambda x: x + 1, torch.ones(2, 3))
    with FakeTensorMode(allow_non_fake_inputs=True):
        [result] = torch.ops.torchport.island(blob, meta, [torch.empty(2, 3, device="cuda")])
    assert result.device.type == "cuda"
    assert result.shape == (2, 3)


def test_specs_without_values():
    _, meta = made("host", lambda x: x.t() + 1, torch.ones(2, 3))
    [spec] = parse_meta(meta).outputs
    shown = empty_like_spec(spec)
    assert (shown.shape, shown.stride()) == ((3, 2), (torch.ones(2, 3).t() + 1).stride())
