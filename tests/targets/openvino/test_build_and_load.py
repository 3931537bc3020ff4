"""Islands built with OpenVINO and run on torch's own memory."""

import json
import threading

import numpy
import pytest
import torch
import torch.nn.functional as F

import torchport
from targets.graphs import island_of
from torchport.errors import TargetError
from torchport.targets import Artifact, Island, find
from torchport.targets.openvino.compile_model import compile_config
from torchport.targets.openvino.format import FORMAT
from torchport.targets.openvino.fused_kernels import has_crashing_attention
from torchport.targets.openvino.library import openvino
from torchport.targets.target import GaveNaN, OutOfRange

OPENVINO = find("openvino")
OPTIONS = OPENVINO.make_options({})


def built(function, *args):
    """Build a function as one island and load it."""
    island = island_of(function, *args)
    artifact = OPENVINO.build(island, OPTIONS)
    assert json.loads(json.dumps(artifact.properties)) == artifact.properties
    return OPENVINO.load(artifact, island.inputs, island.outputs, OPTIONS)


def test_an_island_computes_what_torch_computes():
    weight, x = torch.randn(8, 4), torch.randn(2, 4)
    run = built(lambda x: F.gelu(F.linear(x, weight)), torch.ones(2, 4))
    torch.testing.assert_close(run([x]), [F.gelu(F.linear(x, weight))])


def test_what_openvino_simplifies_may_stand_in_the_island():
    x = torch.randn(2, 8, 6, 6)

    def shuffle(x):  # OpenVINO fuses this into one layer, ShuffleChannels
        return x.view(2, 2, 4, 6, 6).transpose(1, 2).reshape(2, 8, 6, 6)

    torch.testing.assert_close(built(shuffle, torch.ones(2, 8, 6, 6))([x]), [shuffle(x)])


def test_inputs_of_any_layout_are_read_right_and_left_alone():
    run = built(lambda x: x * 2, torch.ones(3, 4))
    for x in (
        torch.randn(4, 3).t(),
        torch.randn(3, 8)[:, ::2],
        torch.randn(1, 4).expand(3, 4),
        torch.randn(4, 4)[1:],
    ):
        before = x.clone()
        torch.testing.assert_close(run([x]), [x * 2])
        assert torch.equal(x, before)


def test_single_numbers_go_in_and_come_out():
    run = built(lambda x: x.exp(), torch.tensor(0.0))
    [result] = run([torch.tensor(1.0)])
    assert result.shape == ()
    torch.testing.assert_close(result.item(), 2.7182817, rtol=1e-6, atol=0)


def test_integers_and_booleans_go_in_and_come_out():
    run = built(
        lambda i, b: (i + 1, b & b, i > 2), torch.tensor([1, 2, 3]), torch.tensor([True, False, True])
    )
    results = run([torch.tensor([5, 0, 3]), torch.tensor([False, True, True])])
    assert [result.tolist() for result in results] == [[6, 1, 4], [False, True, True], [True, False, True]]
    assert results[0].dtype == torch.int64


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + (x > 2),
        lambda x: x - (x > 2).long(),
        lambda x: torch.maximum(x, (x > 2).long()),
        lambda x: (x > 2) * x + x,
    ],
)
def test_integers_that_meet_booleans_stay_whole(function):
    x = torch.tensor([-300, -1, 0, 3, 255, 256, 70000])
    torch.testing.assert_close(built(function, torch.ones(7).long())([x]), [function(x)])


def test_several_indices_count_from_the_front():
    table = torch.arange(40.0).reshape(8, 5)
    run = built(lambda i, j: table[i, j], torch.zeros(3).long(), torch.zeros(3).long())
    i, j = torch.tensor([0, 7, 2]), torch.tensor([4, 0, 3])
    torch.testing.assert_close(run([i, j]), [table[i, j]])
    with pytest.raises(OutOfRange):
        run([i, torch.tensor([4, -1, 3])])


@pytest.mark.parametrize("mean", [0.0, 300.0, -3000.0])
@pytest.mark.parametrize(
    "norm",
    [
        lambda x: F.layer_norm(x, (64,)),
        lambda x: F.group_norm(x, 2),
        lambda x: (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, correction=0) + 1e-5).sqrt(),
    ],
    ids=["layer", "group", "written out"],
)
def test_norms_are_right_far_from_zero(norm, mean):
    x = torch.randn(2, 4, 64) + mean
    expected = norm(x.double()).float()
    torch.testing.assert_close(built(norm, torch.ones(2, 4, 64))([x])[0], expected, rtol=0, atol=5e-3)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: (x + y, y.clone()),
        lambda x, y: (y.clone(), x + y, x.clone()),
        lambda x, y: (x.clone(),),
        lambda x, y: (y.clone(), x.clone(), y.clone()),
        lambda x, y: (y.clone().view(4), x + y, y.clone().unsqueeze(0)),
    ],
)
def test_copies_of_inputs_are_copies_and_leave_the_inputs_alone(function):
    # OpenVINO allocates no memory for such outputs, and would overwrite the input.
    x, y = torch.full((2, 2), 3.0), torch.full((2, 2), 5.0)
    results = built(function, torch.ones(2, 2), torch.ones(2, 2))([x, y])
    torch.testing.assert_close(results, list(function(x, y)))
    for result in results:
        result.fill_(-1)
    assert x.unique().tolist() == [3.0]
    assert y.unique().tolist() == [5.0]


def test_results_of_two_calls_are_two_tensors():
    run = built(lambda x: x + 1, torch.ones(2))
    [first], [second] = run([torch.zeros(2)]), run([torch.ones(2)])
    assert first.tolist() == [1.0, 1.0]
    assert second.tolist() == [2.0, 2.0]


def test_threads_do_not_share_a_request():
    run = built(lambda x: torch.softmax(x, -1) * 3, torch.ones(64, 64))
    wrong = []

    def work(seed):
        generator = torch.Generator().manual_seed(seed)
        for _ in range(20):
            x = torch.randn(64, 64, generator=generator)
            if not torch.allclose(run([x])[0], torch.softmax(x, -1) * 3, atol=1e-5):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_values_that_it_was_not_built_for_are_told_before_it_runs():
    run = built(lambda i, t: F.embedding(i, t), torch.tensor([1]), torch.randn(10, 2))
    table = torch.randn(10, 2)
    for bad in (10, -1, 2**33):
        with pytest.raises(OutOfRange):
            run([torch.tensor([bad]), table])
    with pytest.raises(OutOfRange):
        run([torch.tensor([1]), table.masked_fill(table == table[0, 0], float("nan"))])
    torch.testing.assert_close(run([torch.tensor([9]), table]), [table[[9]]])


def test_a_nan_that_comes_out_is_told():
    run = built(torch.sqrt, torch.ones(2))
    with pytest.raises(GaveNaN) as caught:
        run([torch.tensor([4.0, -1.0])])
    assert caught.value.results[0][0].item() == 2.0


def test_infinities_of_one_sign_pass():
    run = built(torch.relu, torch.ones(3))
    assert run([torch.tensor([1.0, float("inf"), 2.0])])[0].tolist() == [1.0, float("inf"), 2.0]
    assert run([torch.tensor([1.0, -float("inf"), 2.0])])[0].tolist() == [1.0, 0.0, 2.0]


def test_another_format_is_refused():
    island = island_of(torch.relu, torch.ones(2))
    artifact = OPENVINO.build(island, OPTIONS)
    other = Artifact(artifact.payload, artifact.properties | {"format": FORMAT + 1})
    with pytest.raises(TargetError, match=f"the island has format {FORMAT + 1}, not {FORMAT}"):
        OPENVINO.load(other, island.inputs, island.outputs, OPTIONS)


def test_a_payload_that_openvino_cannot_read_is_a_refusal():
    island = island_of(torch.relu, torch.ones(2))
    artifact = OPENVINO.build(island, OPTIONS)
    broken = Artifact(numpy.zeros_like(artifact.payload), artifact.properties)
    with pytest.raises(TargetError, match="the island's packed data is damaged"):
        OPENVINO.load(broken, island.inputs, island.outputs, OPTIONS)


def test_an_island_whose_results_openvino_sees_otherwise_is_refused():
    island = island_of(torch.relu, torch.ones(2))
    [spec] = island.outputs
    wrong = Island(island.name, island.graph_module, island.inputs, (type(spec)((3,), "float32"),))
    with pytest.raises(TargetError, match=r"infers the shape \[2\] for output 0, torch \[3\]"):
        OPENVINO.build(wrong, OPTIONS)
    wrong = Island(island.name, island.graph_module, island.inputs, (type(spec)((2,), "int64"),))
    with pytest.raises(TargetError, match="for output 0, torch int64"):
        OPENVINO.build(wrong, OPTIONS)


def test_options_reach_openvino():
    options = OPENVINO.make_options({"threads": 1, "config": {"NUM_STREAMS": 1}})
    config = compile_config(options)
    assert config["INFERENCE_NUM_THREADS"] == 1
    assert config["NUM_STREAMS"] == 1
    assert config["INFERENCE_PRECISION_HINT"] == "f32"  # OpenVINO's own default is lower on many CPUs


@pytest.mark.parametrize("threads", [-1, 5000])
def test_an_impossible_number_of_threads_is_refused(threads):
    with pytest.raises(TargetError, match=f"threads must be between 0 and 1024, not {threads}"):
        torchport.compile(torch.relu, (torch.ones(2),), options={"threads": threads})


def test_a_tensor_is_split_along_the_default_dimension():
    """OpenVINO's frontend needs it to be explicit; cross-attention splits its weights this way."""

    def parts(x):
        first, second = x.split(2)
        third, fourth = x.split([1, 3])
        return first + second, third * fourth, x.unbind()[1]

    x = torch.rand(4, 3)
    compiled = torchport.compile(parts, (x,), options={"speed_trial": False})
    assert compiled.coverage.complete
    for found, expected in zip(compiled(x), parts(x), strict=True):
        assert torch.equal(found, expected)


_ATTENTION = {
    "key": lambda q, k, v: attend(q, k, v) + k,
    "product": lambda q, k, v: attend(q, k, v) * v.exp(),
    "of one": lambda q, k, v: attend(q, q, q) + q,
    "further on": lambda q, k, v: torch.relu(torch.relu(attend(q, k, v)) + k) - v,
    "moved": lambda q, k, v: attend(q, k, v).transpose(1, 2).flatten(2) + v.transpose(1, 2).flatten(2),
    "written out": lambda q, k, v: torch.softmax(q @ k.mT, -1) @ v + q,
    "read twice": lambda q, k, v: ((attend(q, k, v) + k).exp(), attend(q, k, v) + k),
}


def attend(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)


@pytest.mark.parametrize("case", _ATTENTION)
def test_attention_that_is_added_to_something_does_not_end_the_process(case, tmp_path):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))

        def forward(self, x):
            return _ATTENTION[case](*[layer(x) for layer in self.layers])

    torch.manual_seed(0)
    model, x = Model().eval(), torch.randn(1, 2, 3, 4)
    compiled = torchport.compile(model, (x,), target="openvino", options={"cache": False})
    assert compiled.coverage.ops_remain == 0
    torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
    torchport.save(compiled, tmp_path / "model.pt2")
    torch.testing.assert_close(torchport.load(tmp_path / "model.pt2")(x), model(x), rtol=1e-4, atol=1e-5)


def test_attention_is_found_whatever_a_file_calls_its_ops():
    opset = openvino().opset13
    q = opset.parameter([1, 2, 3, 4], numpy.float32)
    k = opset.relu(q)
    moved = opset.relu(opset.scaled_dot_product_attention(q, k, k))
    made = openvino().Model([opset.add(opset.relu(moved), k)], [q])
    for node in made.get_ops():
        node.set_friendly_name("same")
    assert has_crashing_attention(made)


def test_a_number_that_is_expanded_to_no_dimensions_stays_on_the_host():
    """OpenVINO ended the process."""
    x = torch.tensor(3.7)
    compiled = torchport.compile(lambda x: x.expand(()).clone(), (x,))
    assert torch.equal(compiled(x), x)
