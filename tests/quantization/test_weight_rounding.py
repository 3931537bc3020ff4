"""Weights rounded with data: errors that compensate each other, in the order of the model's calls."""

import pytest
import torch
from torch import nn

import torchport
from torchport.quantization import AccuracyBudget
from torchport.quantization.lockstep import ModelGraph, graph_of, run_in_lockstep
from torchport.quantization.weight_rounding import Moments, Rounded, round_groups, round_with_data
from torchport.quantization.weight_sensitivity import output_errors

LOOSE = AccuracyBudget(pcc=0.01)


def floats_of(rounded: Rounded) -> torch.Tensor:
    grid = rounded.grid
    return ((rounded.whole - grid.zero) * grid.scale).flatten(1)


def correlated(rows: int, inputs: int) -> torch.Tensor:
    """Correlated inputs: mixtures of a few numbers."""
    generator = torch.Generator().manual_seed(0)
    few = torch.randn(rows, inputs // 4, generator=generator)
    mix = torch.randn(inputs // 4, inputs, generator=generator)
    return few @ mix + 0.1 * torch.randn(rows, inputs, generator=generator)


@pytest.mark.parametrize("symmetric", [True, False])
def test_errors_of_inputs_that_vary_together_make_up_for_each_other(symmetric: bool) -> None:
    torch.manual_seed(0)
    weight, x = torch.randn(16, 64), correlated(600, 64)
    x, unseen = x[:512], x[512:]
    moments = Moments(x.T @ x / 512, x.T @ x @ weight.T / 512, 512)
    errors = [
        float((unseen @ (floats_of(rounded) - weight).T).square().sum())
        for rounded in (
            round_with_data(weight, moments, 32, symmetric),
            round_groups(weight, 32, symmetric),
        )
    ]
    assert errors[0] < 0.5 * errors[1]


def test_a_layer_makes_up_for_what_those_before_it_lost() -> None:
    """Its inputs are all a tenth too small, so the weight grows, although four bits could hold it."""
    torch.manual_seed(0)
    weight, x = torch.randn(8, 64), torch.randn(1024, 64)
    seen = 0.9 * x
    moments = Moments(seen.T @ seen / 1024, seen.T @ x @ weight.T / 1024, 1024)
    made = floats_of(round_with_data(weight, moments, 32, True))
    ratio = float((made * weight).sum() / weight.square().sum())
    assert ratio == pytest.approx(1 / 0.9, rel=0.02)


class Two(nn.Module):
    """Two layers with something between them."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.first = nn.Linear(8, 16)
        self.last = nn.Linear(16, 4)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return four numbers for each id."""
        return self.last(torch.tanh(self.first(self.embed(ids))))


def two() -> tuple[Two, list[torch.Tensor], ModelGraph]:
    torch.manual_seed(0)
    model = Two().eval()
    items = [torch.randint(0, 20, (2, 3)) for _ in range(4)]
    graph = graph_of(model, [*items, torch.randint(0, 20, (5, 3))], ["embed", "first", "last"])
    assert graph is not None
    return model, items, graph


def test_each_layer_sees_what_comes_out_of_those_that_are_quantized() -> None:
    model, items, graph = two()
    assert len(graph.items) == 4  # without the one of another shape
    seen: dict[str, Moments | None] = {}

    def quantize(path: str, known: Moments | None) -> torch.Tensor | None:
        seen[path] = known
        return {"embed": None, "first": 0.5 * model.first.weight.detach(), "last": None}[path]

    run_in_lockstep(graph, quantize, {"first", "last"})
    assert list(seen) == ["embed", "first", "last"]
    assert seen["embed"] is None
    ids = torch.cat(items).flatten()
    with torch.no_grad():
        rows = model.embed(ids)
        floats = torch.tanh(model.first(rows))
        quantized = torch.tanh(nn.functional.linear(rows, 0.5 * model.first.weight, model.first.bias))
        wanted = floats @ model.last.weight.T
    assert torch.allclose(seen["first"].squares, rows.T @ rows / len(ids), atol=1e-5)
    assert torch.allclose(seen["last"].squares, quantized.T @ quantized / len(ids), atol=1e-5)
    assert torch.allclose(seen["last"].products, quantized.T @ wanted / len(ids), atol=1e-5)


def test_what_a_layer_costs_the_results_is_found_in_one_pass() -> None:
    model, _, graph = two()
    rounded = {
        "last": model.last.weight.detach() * 1.01,
        "first": model.first.weight.detach() + 0.01 * torch.randn(16, 8),
    }
    found = output_errors(graph, rounded)
    [ids] = graph.items[0]
    with torch.no_grad():
        expected = model(ids)
        hidden = torch.tanh(model.first(model.embed(ids)))
        error = hidden @ (0.01 * model.last.weight).T
        changed = torch.tanh(nn.functional.linear(model.embed(ids), rounded["first"], model.first.bias))
        other = model.last(changed) - expected
    # The last layer's derivative is 1: the estimate is exact up to the four random projections.
    assert found["last"] == pytest.approx(float(error.square().sum() / expected.square().sum()), rel=0.3)
    # For the first layer, errors of outputs are assumed independent.
    share = float(other.square().sum() / expected.square().sum())
    assert share / 4 < found["first"] < share * 4


def test_what_torch_cannot_differentiate_is_not_judged() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x).argmax(-1)

    model = Counts().eval()
    graph = graph_of(model, [torch.randn(2, 4)], ["linear"])
    assert graph is not None
    assert output_errors(graph, {"linear": model.linear.weight.detach() * 2}) == {}


def test_the_layers_that_matter_most_get_eight_bits_as_long_as_there_is_room() -> None:
    class Weighted(nn.Module):
        """Four parallel layers, one of which has nearly all the influence."""

        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleList(nn.Linear(256, 256, bias=False) for _ in range(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return sum(share * part(x) for share, part in zip((0.1, 0.2, 1.0, 0.1), self.parts, strict=True))

    torch.manual_seed(0)
    model = Weighted().eval()
    items = [torch.randn(16, 256) for _ in range(6)]

    def bits(ratio: float) -> tuple[list[int], torchport.QuantizedModel]:
        made = torchport.quantize(
            model, items, method="weight_only", accuracy=LOOSE, speed=False,
            options={"bits": 4, "group_size": 32, "size_ratio": ratio},
        )  # fmt: skip
        assert made.report.bytes <= max(ratio, 0.29) * 2 * 4 * 256 * 256
        return [layer.bits for layer in made.plan.layers], made

    none, small = bits(0.0)
    assert none == [4, 4, 4, 4]
    # Four bits and a scale for 32 of them are 0.28 of bfloat16, eight bits with a scale are 0.53.
    one, finer = bits(0.35)
    assert one == [4, 4, 8, 4]
    assert finer.plan.layers[2].reason == "sensitive"
    assert "dB" in finer.plan.layers[2].detail
    assert finer.report.sqnr > small.report.sqnr + 6
    assert bits(0.45)[0] == [4, 8, 8, 4]


def test_a_model_that_cannot_be_captured_is_rounded_by_what_its_inputs_are() -> None:
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(64, 32)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x) if float(x.sum()) > 0 else self.linear(-x)

    torch.manual_seed(0)
    model = Branches().eval()
    items = [torch.randn(16, 64) * torch.linspace(0.01, 3, 64) for _ in range(6)]
    made = torchport.quantize(
        model, items, method="weight_only", speed=False, accuracy=LOOSE, options={"bits": 4}
    )
    assert made.report.calibrated_on == 4
    assert made.report.pcc > 0.98
    assert not model.linear._forward_pre_hooks
