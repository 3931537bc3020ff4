"""Islands built as ONNX and run with onnxruntime."""

import json
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchport
from runtime.fresh_process import run_fresh
from targets.graphs import island_of, verdict_on
from torchport.errors import TargetError
from torchport.targets import Artifact, find
from torchport.targets.onnxruntime import export
from torchport.targets.target import GaveNaN, OutOfRange

ONNXRUNTIME = find("onnxruntime")
OPTIONS = ONNXRUNTIME.make_options({})


def built(function, *args):
    """Build a function as one island and load it."""
    island = island_of(function, *args, target="onnxruntime")
    artifact = ONNXRUNTIME.build(island, OPTIONS)
    assert json.loads(json.dumps(artifact.properties)) == artifact.properties
    return ONNXRUNTIME.load(artifact, island.inputs, island.outputs, OPTIONS)


def test_an_island_computes_what_torch_computes():
    weight, x = torch.randn(8, 4), torch.randn(2, 4)
    run = built(lambda x: F.gelu(F.linear(x, weight)), torch.ones(2, 4))
    torch.testing.assert_close(run([x]), [F.gelu(F.linear(x, weight))])


@pytest.mark.parametrize("way", ["_export_directly", "_export_with_capture"])
def test_a_graph_is_exported_as_it_is_or_anew_with_one_result(way, monkeypatch):
    weight, x = torch.randn(8, 4), torch.randn(2, 4)

    def function(x, i):
        values, places = torch.max(F.linear(x, weight), dim=1)
        return values * i, places, F.layer_norm(x + 1, (4,), weight[0])

    def no_other(graph, weights):
        raise AssertionError(f"only {way} is wanted")

    if way == "_export_directly":
        monkeypatch.setattr(export, "_export_with_capture", no_other)
    else:
        monkeypatch.setattr(export, "_export_directly", lambda graph, weights: b"")
    run = built(function, torch.ones(2, 4), torch.tensor(2))
    torch.testing.assert_close(run([x, torch.tensor(3)]), list(function(x, torch.tensor(3))))


def test_inputs_of_any_layout_are_read_right_and_left_alone():
    run = built(lambda x: x * 2, torch.ones(3, 4))
    for x in (torch.randn(4, 3).t(), torch.randn(3, 8)[:, ::2], torch.randn(1, 4).expand(3, 4)):
        before = x.clone()
        torch.testing.assert_close(run([x]), [x * 2])
        assert torch.equal(x, before)


def test_integers_and_booleans_go_in_and_come_out():
    run = built(
        lambda i, b: (i + 1, b & b, i > 2), torch.tensor([1, 2, 3]), torch.tensor([True, False, True])
    )
    results = run([torch.tensor([5, 0, 3]), torch.tensor([False, True, True])])
    assert [result.tolist() for result in results] == [[6, 1, 4], [False, True, True], [True, False, True]]
    assert results[0].dtype == torch.int64


def test_results_share_memory_with_nobody():
    run = built(lambda x, y: (y.clone(), x + y, x.clone()), torch.ones(2, 2), torch.ones(2, 2))
    x, y = torch.full((2, 2), 3.0), torch.full((2, 2), 5.0)
    for result in run([x, y]):
        result.fill_(-1)
    assert (x.unique().tolist(), y.unique().tolist()) == ([3.0], [5.0])
    torch.testing.assert_close(run([x, y]), [y, x + y, x])


def test_threads_run_one_island_at_once():
    run = built(lambda x: torch.softmax(x, -1) * 3, torch.ones(64, 64))
    wrong = []

    def work(seed):
        generator = torch.Generator().manual_seed(seed)
        for _ in range(10):
            x = torch.randn(64, 64, generator=generator)
            if not torch.allclose(run([x])[0], torch.softmax(x, -1) * 3, atol=1e-5):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_values_that_it_was_not_built_for_are_told():
    run = built(lambda i, t: F.embedding(i, t), torch.tensor([1]), torch.randn(10, 2))
    table = torch.randn(10, 2)
    for bad in (10, -1, 2**33):
        with pytest.raises(OutOfRange):
            run([torch.tensor([bad]), table])
    torch.testing.assert_close(run([torch.tensor([9]), table]), [table[[9]]])


def test_a_nan_that_a_kernel_would_lose_is_told():
    run = built(lambda x: F.max_pool2d(torch.relu(x), 2), torch.ones(1, 1, 4, 4))
    x = torch.ones(1, 1, 4, 4)
    x[0, 0, 1, 1] = float("nan")
    with pytest.raises(OutOfRange):
        run([x])


def test_a_row_that_attends_to_nothing_is_computed_by_torch():
    class Attention(nn.Module):
        def forward(self, q, mask):
            return torch.relu(F.scaled_dot_product_attention(q, q, q, attn_mask=mask))

    q = torch.randn(1, 2, 4, 8)
    compiled = torchport.compile(Attention(), (q, torch.ones(4, 4, dtype=torch.bool)), target="onnxruntime")
    mask = torch.ones(4, 4, dtype=torch.bool)
    mask[1] = False
    torch.testing.assert_close(compiled(q, mask), Attention()(q, mask))


def test_nan_that_torch_gives_too_is_handed_back_for_the_caller_to_judge():
    run = built(lambda x: x.sqrt(), torch.ones(3))
    with pytest.raises(GaveNaN) as caught:
        run([torch.tensor([1.0, -1.0, 4.0])])
    assert caught.value.results[0].isnan().tolist() == [False, True, False]


def test_other_dtypes_stay_with_the_reason():
    double = torch.ones(2, dtype=torch.float64)
    found = verdict_on("aten.relu.default", torch.relu, double, target="onnxruntime")
    assert (found.ok, found.reason) == (False, "dtype")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"provider": "Quantum"}, "no execution provider 'Quantum'"),
        ({"threads": -1}, "threads must be between 0 and 1024"),
        ({"precision": "float16"}, "no option 'precision'"),
    ],
)
def test_options_are_refused_with_what_there_is(given, message):
    with pytest.raises(TargetError, match=message):
        ONNXRUNTIME.check_ready(ONNXRUNTIME.make_options(given))


def test_a_file_may_not_choose_a_provider_that_writes_files():
    with pytest.raises(TargetError, match="a file may not set the option provider"):
        ONNXRUNTIME.options_from_file({"provider": "Tensorrt"})


def test_an_island_of_another_format_is_refused():
    island = island_of(torch.relu, torch.ones(2), target="onnxruntime")
    artifact = ONNXRUNTIME.build(island, OPTIONS)
    other = Artifact(artifact.payload, {**artifact.properties, "format": 99})
    with pytest.raises(TargetError, match="format 99"):
        ONNXRUNTIME.load(other, island.inputs, island.outputs, OPTIONS)


def test_nothing_is_told_to_its_maker(tmp_path, monkeypatch):
    for name in ("ORT_DISABLE_TELEMETRY", "ORT_RUNNING_UNIT_TESTS", "CI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    run_fresh("from torchport.targets.onnxruntime.library import library; library('onnxruntime')")
    assert list(tmp_path.iterdir()) == []  # onnxruntime's telemetry would keep its session here


def test_a_package_runs_what_was_compiled(tmp_path):
    model, x = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval(), torch.randn(1, 3, 8, 8)
    compiled = torchport.compile(model, (x,), target="onnxruntime")
    assert compiled.coverage.ops_remain == 0
    torchport.save(compiled, tmp_path / "net.pt2")
    torch.testing.assert_close(torchport.load(tmp_path / "net.pt2")(x), model(x))


class ManyTransposed(torch.nn.Module):
    """Many results, none of them contiguous: each is checked for NaN."""

    def forward(self, x):
        return [(x + number).transpose(1, 2) for number in range(9)]


def test_many_results_of_any_strides():
    x = torch.randn(1, 3, 4, 2)
    compiled = torchport.compile(ManyTransposed(), (x,), target="onnxruntime")
    assert compiled.programs[0].coverage.ops_remain == 0
    for ours, theirs in zip(compiled(x), ManyTransposed()(x), strict=True):
        assert torch.equal(ours, theirs)
