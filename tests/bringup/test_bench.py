"""Benchmarking one model on one target."""

import time

import pytest
import torch
from torch import nn

import torchport
from torchport.bringup import BenchSettings, run_bench
from torchport.errors import TargetError
from torchport.records import BenchRecord

from .modules import Counts, Doubles, Raises, linear, model

QUICK = BenchSettings(runs=3, warmup=1)


def test_a_row_is_complete():
    row = run_bench(linear(), target="host", settings=QUICK)
    assert (row.model, row.target, row.status, row.error) == ("linear", "host", "ok", "")
    assert (row.batch, row.ops_remain, row.unique_remain, row.runs) == (5, 0, 0, 3)
    assert row.ops_before >= row.unique_before >= 2
    assert (row.pcc, row.max_absolute) == (1.0, 0.0)
    assert row.original_time > 0
    assert row.first_run_time > row.compiled_time > 0
    assert row.versions["torch"] == torch.__version__
    assert row.machine["threads"] == str(torch.get_num_threads())
    assert BenchRecord.from_json(row.to_json()) == row


def test_fallbacks_to_eager_torch_are_counted():
    whole = run_bench(linear(), target="host", settings=QUICK).fallbacks
    assert whole is not None
    assert (whole.calls, whole.fallbacks) == (1 + 1 + 3, 0)  # to compare, to warm up, to time
    nan = torch.tensor([float("nan"), 1.0])
    row = run_bench(model(nn.ReLU(), nan), target="openvino", settings=QUICK)
    assert (row.fallbacks.calls, row.fallbacks.fallbacks) == (5, 5)
    assert row.fallbacks.last_reason
    assert BenchRecord.from_json(row.to_json()) == row


def test_the_targets_library_is_among_the_versions():
    openvino = pytest.importorskip("openvino")
    row = run_bench(linear(), target="openvino", settings=QUICK)
    assert row.status == "ok"
    assert row.versions["openvino"] in openvino.__version__


def test_an_inaccurate_model_is_not_ok(change_compiled):
    change_compiled(lambda forward: lambda x: -forward(x))
    row = run_bench(linear(), target="host", settings=QUICK)
    assert row.status == "inaccurate"
    assert row.pcc == pytest.approx(-1.0)
    assert row.error.startswith("output: the PCC is -1.000000, below 0.99; ")
    assert row.compiled_time > 0


def test_the_threshold_decides(change_compiled):
    noise = torch.tensor([[0.2, -0.2, 0.1]])
    change_compiled(lambda forward: lambda x: forward(x) + noise)
    row = run_bench(linear(), target="host", settings=QUICK)
    assert 0.5 < row.pcc < 0.99
    assert row.status == "inaccurate"
    row = run_bench(linear(), target="host", settings=BenchSettings(runs=1, pcc_threshold=0.5))
    assert (row.status, row.pcc_threshold) == ("ok", 0.5)


class FewSteps(nn.Module):
    """Returns results in a range of only a few bfloat16 rounding steps."""

    def forward(self, x):
        return 0.015 * x + 0.5


def test_results_within_the_devices_storage_precision_are_ok(change_compiled):
    inputs = torch.rand(64, 64, generator=torch.Generator().manual_seed(0))
    row = run_bench(model(FewSteps(), inputs), target="ttnn", settings=QUICK)
    assert row.pcc < row.pcc_threshold
    assert (row.status, row.error) == ("ok", "")
    assert 0.9 < row.excess < 1.5  # the sum is rounded once, when it is stored
    assert BenchRecord.from_json(row.to_json()) == row
    noise = 0.01 * torch.randn(64, 64, generator=torch.Generator().manual_seed(1))
    change_compiled(lambda forward: lambda x: forward(x) + noise)
    row = run_bench(model(FewSteps(), inputs), target="ttnn", settings=QUICK)
    assert (row.status, row.excess > 2) == ("inaccurate", True)


def test_another_type_of_result_is_not_ok(change_compiled):
    change_compiled(lambda forward: lambda x: (forward(x),))
    row = run_bench(linear(), target="host", settings=QUICK)
    assert (row.status, row.pcc) == ("inaccurate", 0.0)
    assert "it is a tuple, expected a tensor" in row.error


def test_a_model_that_raises_fails_its_row():
    row = run_bench(model(Raises()), target="host", settings=QUICK)
    assert row.status == "failed"
    assert "ValueError: no such" in row.error
    assert (row.pcc, row.original_time, row.batch) == (None, None, 2)


def test_a_compiled_model_that_raises_keeps_the_facts_found_so_far(change_compiled):
    def fail_later(forward):
        calls = iter([forward])

        def call(x):
            return next(calls, _fail)(x)

        return call

    change_compiled(fail_later)
    row = run_bench(linear(), target="host", settings=QUICK)
    assert (row.status, row.error) == ("failed", "RuntimeError: the device is gone")
    assert (row.pcc, row.compiled_time) == (1.0, None)


def _fail(x):
    raise RuntimeError("the device is gone\nlog: ...")


def test_the_first_run_is_compiling_and_the_first_call(change_compiled):
    def slow_first(forward):
        delays = iter([0.05])

        def call(x):
            time.sleep(next(delays, 0.0))
            return forward(x)

        return call

    change_compiled(slow_first, delay=0.3)
    row = run_bench(linear(), target="host", settings=QUICK)
    assert row.first_run_time >= 0.35
    assert row.compiled_time < 0.05


def test_the_two_times_are_measured_separately(change_compiled):
    def slow(forward):
        def call(x):
            time.sleep(0.02)
            return forward(x)

        return call

    change_compiled(slow)
    row = run_bench(linear(), target="host", settings=QUICK)
    assert row.compiled_time >= 0.02 > row.original_time
    assert row.speedup < 1


@pytest.mark.parametrize("module", [Doubles(), Counts()])
def test_models_with_side_effects_can_be_measured(module):
    changing = model(module)
    row = run_bench(changing, target="host", settings=QUICK)
    assert (row.status, row.pcc) == ("ok", 1.0)
    assert changing.args[0].tolist() == [1, 1]


def test_the_batch_size_is_that_of_the_first_tensor_with_dimensions():
    class Scaled(nn.Module):
        def forward(self, scale, *, values):
            return values["x"] * scale

    scaled = model(Scaled(), torch.tensor(2.0), values={"x": torch.ones(7, 3)})
    assert run_bench(scaled, target="host", settings=QUICK).batch == 7


def test_an_unknown_option_fails_the_row_and_is_named():
    row = run_bench(linear(), target="host", options={"cahce": True}, settings=QUICK)
    assert (row.status, "did you mean 'cache'" in row.error) == ("failed", True)


def test_an_unknown_target_is_refused():
    with pytest.raises(TargetError, match="did you mean 'host'"):
        run_bench(linear(), target="hots", settings=QUICK)


def test_a_simulated_targets_time_is_an_estimate_not_the_simulators_run_time():
    row = run_bench(linear(), target="ttnn", settings=QUICK)
    assert row.status == "ok"
    assert row.simulated
    compiled = torchport.compile(linear().module, linear().args, target="ttnn")
    assert row.compiled_time == compiled.simulated_seconds
    assert row.fallbacks.calls == 1  # run only for its results
    assert row.speedup is None
    assert not run_bench(linear(), target="host", settings=QUICK).simulated
