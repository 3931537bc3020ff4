"""A model that would be slower with quantized weights stays in floats: tested with made-up times."""

import pytest
import torch
from torch import nn

import torchport
from torchport.quantization import weight_speed


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8)).eval()


def items() -> list[torch.Tensor]:
    return [torch.randn(4, 16) for _ in range(4)]


def made_up(monkeypatch, floats: float, own: float) -> list[float]:
    """Fake the times of the fastest calls; the others are arbitrary."""
    asked: list[float] = []

    def turns(first, second, *, budget: float) -> tuple[list[float], list[float]]:
        assert first() > 0
        assert second() > 0
        asked.append(budget)
        return [9 * floats, floats], [own, 9 * own]

    monkeypatch.setattr(weight_speed, "time_in_turns", turns)
    return asked


def test_what_is_slower_stays_in_floats_and_says_so(monkeypatch) -> None:
    asked = made_up(monkeypatch, 1e-3, 2e-3)
    floats = model()
    quantized = torchport.quantize(
        floats, items(), method="weight_only", options={"overrides": {"2": "weight_only"}}
    )
    assert asked == [2.0, 2.0]  # timed again, with one quantized layer left
    assert [(layer.precision, layer.reason) for layer in quantized.plan.layers] == [
        ("float", "slower"),
        ("weight_only", "kept_by_option"),
    ]
    assert "2 ms with quantized weights, 1 ms in floats" in quantized.plan.layers[0].detail
    assert (quantized.report.seconds_float, quantized.report.seconds) == (1e-3, 2e-3)
    assert torch.equal(quantized.module[0].weight, floats[0].weight)


def test_the_report_has_the_time_of_what_is_delivered(monkeypatch) -> None:
    made_up(monkeypatch, 1e-3, 2e-3)
    quantized = torchport.quantize(model(), items(), method="weight_only")
    assert quantized.plan.count("float") == 2
    assert (quantized.report.seconds_float, quantized.report.seconds) == (1e-3, 1e-3)


def test_what_is_as_fast_is_quantized(monkeypatch) -> None:
    made_up(monkeypatch, 1e-3, 1.02e-3)
    quantized = torchport.quantize(model(), items(), method="weight_only")
    assert quantized.plan.count("weight_only") == 2


def test_nothing_is_timed_without_data_or_if_it_is_not_wanted(monkeypatch) -> None:
    monkeypatch.setattr(weight_speed, "time_in_turns", lambda *given, **more: pytest.fail("it was timed"))
    assert torchport.quantize(model(), (), method="weight_only").report.seconds is None
    assert torchport.quantize(model(), items(), method="weight_only", speed=False).report.seconds is None
    simulated = torchport.quantize(model(), items(), method="weight_only", target="ttnn")
    assert simulated.report.seconds is None


@pytest.mark.conformance
def test_of_a_model_that_generates_tokens_are_timed(monkeypatch) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
    language = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=2, eos_token_id=None)).eval()
    made_up(monkeypatch, 0.8, 1.6)  # for eight tokens
    ids = torch.randint(0, 97, (2, 5))
    quantized = torchport.quantize(language, [{"input_ids": ids}], method="weight_only")
    assert quantized.plan.count("float") == len(quantized.plan.layers)
    assert "a token takes 200 ms with quantized weights, 100 ms in floats" in quantized.plan.layers[0].detail
    assert "per token" in quantized.report.note
