"""The target's own profile decides about layers: tested with made-up times, independent of machine noise."""

import pytest
import torch
from torch import nn

import torchport
from torchport import targets
from torchport.quantization import AccuracyBudget, speed
from torchport.records import OpTime


def items() -> list[torch.Tensor]:
    return [torch.rand(4, 6) for _ in range(6)]


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4)).eval()


def made_up(monkeypatch, kernels: list[OpTime], calls: list[tuple[float, float]]) -> None:
    """Fake the kernels of the two layers in int8, and the times of calls, floats first."""
    floats = [OpTime("", 1e-4, "gemm f32", "f32", False)] * 2
    answers = iter([floats, kernels])
    monkeypatch.setattr(speed, "_product_times", lambda *given: next(answers))
    times = iter(calls)
    monkeypatch.setattr(speed._Timed, "seconds", lambda self: next(times))


def kernel(precision: str, seconds: float = 5e-5) -> OpTime:
    return OpTime("", seconds, f"gemm {precision}", precision, False)


def reasons(quantized: torchport.QuantizedModel) -> list[tuple[str, str]]:
    return [(layer.precision, layer.reason) for layer in quantized.plan.layers]


def test_a_layer_without_a_kernel_goes_back(monkeypatch) -> None:
    made_up(monkeypatch, [kernel("f32"), kernel("I8")], [(1e-3, 5e-4)])
    quantized = torchport.quantize(model(), items())
    assert reasons(quantized) == [("float", "no_kernel"), ("int8", "default")]
    assert "gemm f32" in quantized.plan.layers[0].detail
    assert (quantized.report.seconds_float, quantized.report.seconds) == (1e-3, 5e-4)


def test_a_slow_layer_goes_back_only_if_calls_are_slower(monkeypatch) -> None:
    kernels = [kernel("I8", 9e-4), kernel("I8")]
    made_up(monkeypatch, kernels, [(1e-3, 9e-4)])
    assert reasons(torchport.quantize(model(), items())) == [("int8", "default")] * 2
    made_up(monkeypatch, kernels, [(1e-3, 2e-3), (1e-3, 9e-4)])
    assert reasons(torchport.quantize(model(), items())) == [("float", "slower"), ("int8", "default")]


def test_if_nothing_helps_all_go_back(monkeypatch) -> None:
    made_up(monkeypatch, [kernel("I8"), kernel("I8")], [(1e-3, 2e-3), (1e-3, 2e-3)])
    quantized = torchport.quantize(model(), items())
    assert reasons(quantized) == [("float", "slower")] * 2
    assert (quantized.report.seconds_float, quantized.report.seconds) == (1e-3, 1e-3)  # of the final model
    assert all(row.seconds == row.seconds_float == 1e-4 for row in quantized.report.layers)
    x = items()[0]
    with torch.no_grad():
        assert torch.allclose(quantized(x), model()(x))


def test_what_an_option_keeps_is_timed_once_more(monkeypatch) -> None:
    calls = [(1e-3, 2e-3), (1e-3, 2e-3), (1e-3, 1.5e-3)]
    made_up(monkeypatch, [kernel("I8"), kernel("I8")], calls)
    quantized = torchport.quantize(model(), items(), options={"overrides": {"2": "int8"}})
    assert reasons(quantized) == [("float", "slower"), ("int8", "kept_by_option")]
    assert quantized.report.seconds == 1.5e-3
    assert {row.name: row.seconds for row in quantized.report.layers} == {"0": 1e-4, "2": 5e-5}


def test_without_speed_nothing_is_timed(monkeypatch) -> None:
    monkeypatch.setattr(speed, "_product_times", lambda *given: pytest.fail("it was timed"))
    quantized = torchport.quantize(model(), items(), speed=False)
    assert quantized.report.seconds is None


def test_calls_are_judged_by_the_fastest_of_each(monkeypatch) -> None:
    """One slow call of the float model must not outweigh a quantized model that is always slower."""
    monkeypatch.setattr(speed, "_product_times", lambda *given: [])
    monkeypatch.setattr(
        speed, "time_in_turns", lambda *given, **more: ([9e-3, 1e-3, 9e-3], [2e-3, 2e-3, 2e-3])
    )
    quantized = torchport.quantize(model(), items())
    assert reasons(quantized) == [("float", "slower")] * 2
    assert "2 ms in int8, 1 ms in floats" in quantized.plan.layers[0].detail


def test_the_score_is_that_of_what_is_delivered(monkeypatch) -> None:
    made_up(monkeypatch, [kernel("I8"), kernel("I8")], [(1e-3, 2e-3), (1e-3, 2e-3)])
    x = items()[0]
    floats = model()(x).detach()

    def score(made: torch.nn.Module) -> float:
        with torch.no_grad():
            return -float((made(x) - floats).abs().max())

    budget = AccuracyBudget(evaluate=score, max_drop=10.0)
    quantized = torchport.quantize(model(), items(), accuracy=budget)
    assert reasons(quantized) == [("float", "slower")] * 2
    assert quantized.report.score == score(quantized) > -1e-5  # in eight bits it is lower


def test_what_brings_operands_into_form_is_not_taken_for_the_kernel(monkeypatch) -> None:
    def with_slow_reorders(self, island, *given):
        names = [node.name for node in island.graph_module.graph.nodes]
        kernels = (5e-5, "FullyConnected brgemm_i8", "i8"), (1e-3, "Reorder jit_f32", "f32")
        return [OpTime(name, *kernel) for name in names for kernel in kernels]

    monkeypatch.setattr(type(targets.find("openvino")), "op_times", with_slow_reorders)
    monkeypatch.setattr(speed._Timed, "seconds", lambda self: (1e-3, 5e-4))
    assert reasons(torchport.quantize(model(), items())) == [("int8", "default")] * 2
