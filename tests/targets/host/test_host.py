"""Islands as data, JSON and safetensors without code, that the host runs."""

import json

import pytest
import torch

from targets.graphs import HandMade, aten, island_of, specs, verdict_on
from torchport.errors import TargetError
from torchport.targets import Artifact, Island, find
from torchport.targets.graph_arguments import encode_argument
from torchport.targets.host.load import load

HOST = find("host")
OPTIONS = HOST.make_options({})


def run(function, *args):
    """Build a function as one island, load it, and run it."""
    island = island_of(function, *args, target="host")
    artifact = HOST.build(island, OPTIONS)
    assert json.loads(json.dumps(artifact.properties)) == artifact.properties
    return HOST.load(artifact, island.inputs, island.outputs, OPTIONS)(args)


class Weights(torch.nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = torch.nn.Parameter(weight, requires_grad=False)

    def forward(self, x):
        return x * self.weight


@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.float64, torch.bfloat16, torch.int8, torch.bool, torch.complex64, torch.complex128],
)
def test_weights_of_any_dtype_survive(dtype):
    weight = torch.tensor([[1, 0], [1, 1]]).to(dtype)
    [result] = run(Weights(weight.t()), torch.ones(2, 2, dtype=dtype))
    assert result.dtype == dtype
    assert torch.equal(result, weight.t())


def test_a_conjugated_weight_survives():
    weight = torch.tensor([1 + 2j]).conj()
    assert run(Weights(weight), torch.ones(1, dtype=torch.complex64))[0].item() == 1 - 2j


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.to(torch.float64),
        lambda x: torch.clamp(x, -float("inf"), 1.5),
        lambda x: x.masked_fill(x > 1, float("nan")),
        lambda x: torch.full_like(x, 2 + 3j, dtype=torch.complex64) * x,
        lambda x: x.sum(dim=[0], keepdim=True),
        lambda x: torch.split(x, [1, 2]),
        lambda x: x.clone(memory_format=torch.contiguous_format),
        lambda x: torch.zeros_like(x, device=torch.device("cpu")),
        lambda x: torch.topk(x, 2),
    ],
)
def test_arguments_of_any_kind_survive(function):
    x = torch.tensor([0.5, 1.5, 2.5])
    expected = function(x)
    expected = list(expected) if isinstance(expected, tuple) else [expected]
    torch.testing.assert_close(run(function, x), expected, equal_nan=True)


def test_random_ops_stay_with_torch_s_generator():
    assert (
        verdict_on("aten.bernoulli.default", torch.bernoulli, torch.ones(2), target="host").reason == "random"
    )


def test_an_argument_that_json_cannot_hold_is_refused():
    with pytest.raises(TargetError, match="an argument of type object cannot be stored"):
        encode_argument(object(), {})


def test_a_weight_that_cannot_be_written_is_a_refusal():
    graph = HandMade()
    weight = graph.weight(torch.ones(2, 2).to_sparse())
    result = graph.graph.call_function(aten.clone.default, (weight,))
    result.meta["val"] = torch.empty(2, 2, device="meta")
    island = Island("island", graph.module(result), (), specs([result]))
    with pytest.raises(TargetError, match=r"layout torch\.sparse_coo cannot be stored"):
        HOST.build(island, OPTIONS)


def test_another_format_is_refused():
    artifact = HOST.build(island_of(torch.relu, torch.ones(2), target="host"), OPTIONS)
    with pytest.raises(TargetError, match=r"format 0, not .*compile the model again"):
        load(Artifact(artifact.payload, artifact.properties | {"format": 0}))


def test_an_op_that_this_torch_lacks_is_named():
    artifact = HOST.build(island_of(torch.relu, torch.ones(2), target="host"), OPTIONS)
    payload = artifact.payload.tobytes().replace(b"aten.relu.default", b"aten.none.default")
    with pytest.raises(TargetError, match=r"this torch has no op aten\.none\.default"):
        load(Artifact(torch.frombuffer(bytearray(payload), dtype=torch.uint8).numpy(), artifact.properties))


def test_it_is_always_there():
    assert HOST.availability().ok
    HOST.check_ready(OPTIONS)
