"""Whatever a model writes when it is called, quantizing leaves it and torch's random state unchanged."""

import pytest
import torch
from torch import nn

import torchport
from torchport.errors import QuantizationError
from torchport.quantization import AccuracyBudget


class Counting(nn.Module):
    """Counts its calls in evaluation mode, in a buffer and in an attribute; its result depends on neither."""

    def __init__(self, max_norm: float | None = None) -> None:
        super().__init__()
        self.table = nn.Embedding(16, 64, max_norm=max_norm)
        self.layer = nn.Linear(64, 64)
        self.calls = 0
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("last", torch.zeros(64))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return numbers for each token."""
        self.calls += 1
        self.count += 1
        result = self.layer(self.table(ids))
        self.last = result.detach()[0, 0]
        return result


class Noisy(nn.Module):
    """Draws random numbers when it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a sample."""
        return self.layer(x) + torch.randn_like(x)


def tokens(count: int = 4) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(0, 16, (2, 5), generator=generator) for _ in range(count)]


def numbers(count: int = 6) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.rand(32, 8, generator=generator) for _ in range(count)]


def state(model: Counting) -> dict[str, object]:
    return {
        "values": {name: tensor.clone() for name, tensor in model.state_dict().items()},
        "tensors": [id(tensor) for tensor in (*model.parameters(), *model.buffers())],
        "calls": model.calls,
        "trained": [tensor.requires_grad for tensor in model.parameters()],
        "gradients": [tensor.grad for tensor in model.parameters()],
        "modes": [module.training for module in model.modules()],
        "hooks": [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()],
        "random": torch.get_rng_state(),
    }


def assert_same(before: dict[str, object], after: dict[str, object]) -> None:
    torch.testing.assert_close(after.pop("values"), before.pop("values"), rtol=0, atol=0)
    assert torch.equal(after.pop("random"), before.pop("random"))
    assert after == before


def evaluated(model: nn.Module) -> float:
    with torch.no_grad():
        return float(model(tokens()[0]).abs().mean() > 0)


@pytest.mark.parametrize(
    ("bits", "max_norm", "budget"),
    [(8, None, None), (4, 0.5, None), (4, None, None), (8, 0.5, AccuracyBudget(evaluate=evaluated))],
)
def test_weights_alone_leave_a_model_that_counts(
    bits: int, max_norm: float | None, budget: AccuracyBudget | None
) -> None:
    model = Counting(max_norm).eval()
    before = state(model)
    made = torchport.quantize(
        model,
        tokens(),
        method="weight_only",
        accuracy=budget,
        speed=bits == 8 and budget is None,
        options={"bits": bits, "overrides": {"layer": "weight_only"}},
    )
    assert_same(before, state(model))
    assert made.plan.count("weight_only") >= 1
    assert made.report.pcc > 0.9
    # Its counters are where the caller's are, too.
    assert float(made.module.count) == 0
    assert made.module.calls == 0


@pytest.mark.parametrize("method", ["ptq", "dynamic", "qat"])
def test_a_model_that_writes_is_refused_and_left_alone(method: str) -> None:
    model = Counting().eval()
    before = state(model)
    with pytest.raises(QuantizationError, match="modifies its inputs or its own tensors"):
        torchport.quantize(model, tokens(), method=method, speed=False)
    assert_same(before, state(model))


@pytest.mark.parametrize("method", ["ptq", "dynamic", "weight_only"])
def test_a_failing_calibration_leaves_a_model_alone(method: str) -> None:
    model = Counting().eval()
    before = state(model)
    with pytest.raises(QuantizationError):
        torchport.quantize(model, [torch.full((2, 5), 99)] * 3, method=method, speed=False)
    with pytest.raises(QuantizationError):
        torchport.quantize(model, [*tokens(2), torch.full((2, 5), torch.nan)], method=method, speed=False)
    assert_same(before, state(model))


@pytest.mark.parametrize("bad", [2, 3])  # of five items, the third is held back
@pytest.mark.parametrize("method", ["ptq", "dynamic", "weight_only"])
def test_the_item_that_a_model_raises_on_is_named(method: str, bad: int) -> None:
    model = nn.Sequential(nn.Embedding(16, 8), nn.Linear(8, 8)).eval()
    items = tokens(5)
    items[bad] = torch.full((2, 5), 99)
    with pytest.raises(QuantizationError, match=f"raises on item {bad} of the .*IndexError"):
        torchport.quantize(model, items, method=method, speed=False)


@pytest.mark.parametrize("method", ["ptq", "dynamic", "weight_only"])
def test_a_model_that_draws_numbers_is_judged_on_the_same_ones(method: str) -> None:
    model = Noisy().eval()
    items = numbers()
    before = torch.get_rng_state()
    made = torchport.quantize(model, items, method=method, speed=False)
    assert torch.equal(torch.get_rng_state(), before)
    assert made.report.pcc > 0.999  # with different noise it would be about a half


@pytest.mark.parametrize("method", ["ptq", "dynamic", "weight_only"])
def test_a_part_in_training_mode_is_refused(method: str) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(), nn.Linear(8, 8)).eval()
    model[1].train()
    with pytest.raises(QuantizationError, match=r"its module 1 is in training mode.*model\.eval\(\)"):
        torchport.quantize(model, numbers(), method=method, speed=False)
