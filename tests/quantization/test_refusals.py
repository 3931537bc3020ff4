"""Bad input gives one clear message, and changes nothing."""

import pytest
import torch
from torch import nn

import torchport
from torchport.errors import QuantizationError
from torchport.quantization import AccuracyBudget


class Net(nn.Module):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.second = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return three numbers."""
        return self.second(torch.relu(self.first(x)))


def net() -> Net:
    torch.manual_seed(0)
    return Net().eval()


def items(count: int = 6) -> list[torch.Tensor]:
    return [torch.rand(4, 6) for _ in range(count)]


def items_without_chance() -> list[torch.Tensor]:
    return [torch.linspace(0, 1 + count, 24).reshape(4, 6) for count in range(4)]


def raising(model: nn.Module) -> float:
    raise ZeroDivisionError("no data")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "it is empty"),
        (items(1), "a single item"),
        ([torch.rand(4, 6), torch.full((4, 6), torch.nan)], r"item 1 has NaN"),
        ([(torch.rand(4, 6), torch.rand(4)) for _ in range(4)], "no labels"),
        ([torch.rand(4, 7) for _ in range(4)], "cannot be captured on the first item"),
        ([torch.rand(4, 6), {"x": torch.rand(4, 6)}], "item 1 has different inputs"),
        ([torch.rand(4, 6), torch.rand(4, 7)], "item 1 has different shapes"),
        (torch.rand(4, 6), "not an iterable of inputs"),
        ((1 // 0 for _ in range(3)), "it raises ZeroDivisionError"),
        ([3, 4], "item 0 has no tensor"),
    ],
)
def test_bad_calibration_data_are_refused(data: object, message: str) -> None:
    with pytest.raises(QuantizationError, match=message):
        torchport.quantize(net(), data, speed=False)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([torch.rand(4, 6), torch.full((4, 6), torch.nan)], r"item 1 has NaN"),
        ([torch.rand(4, 7)], "raises on the first item.*no labels"),
        ([(torch.rand(4, 6), torch.rand(4))], "raises on the first item.*no labels"),
        (torch.rand(4, 6), "not an iterable of inputs"),
        ((1 // 0 for _ in range(3)), "it raises ZeroDivisionError"),
        ([3], "item 0 has no tensor"),
    ],
)
def test_weights_alone_are_judged_by_good_data_only(data: object, message: str) -> None:
    with pytest.raises(QuantizationError, match=message):
        torchport.quantize(net(), data, method="weight_only", speed=False)


@pytest.mark.parametrize("method", ["ptq", "qat", "dynamic", "weight_only"])
def test_a_refusal_leaves_everything_as_it_was(method: str) -> None:
    model = net()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state, dtype = torch.get_rng_state(), torch.get_default_dtype()
    calls = 0

    def fails_later(model: nn.Module) -> float:
        nonlocal calls
        calls += 1
        return 1.0 if calls == 1 else raising(model)

    if method != "qat":  # it evaluates nothing
        with pytest.raises(QuantizationError, match="raises on the quantized model: ZeroDivisionError"):
            torchport.quantize(
                model,
                items_without_chance(),
                method=method,
                speed=False,
                accuracy=AccuracyBudget(evaluate=fails_later),
            )
    for data in (items_without_chance()[:1], [torch.full((4, 6), torch.nan)] * 2, [torch.ones(4, 7)] * 2):
        if method in ("dynamic", "weight_only") and data[0].shape == (4, 6) and not data[0].isnan().any():
            continue  # one item is enough for these
        with pytest.raises(QuantizationError):
            torchport.quantize(model, data, method=method, speed=False)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_default_dtype() is dtype
    assert not model.training
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    after = model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"range": "min_max"}, "unknown option 'range'.*'ranges'"),
        ({"ranges": "entropic"}, "ranges is 'entropic'"),
        ({"overrides": {"third": "float"}}, "'third' matches no layer"),
        ({"overrides": {"first": "int5"}}, "'first' is 'int5'"),
        ({"samples": 1}, "samples is 1"),
        ({"hold_back": 1.5}, "hold_back is 1.5"),
        ({"bias_correction": "yes"}, "bias_correction is 'yes'"),
        ({"samples": "10"}, "samples is '10'"),
        ({"hold_back": "half"}, "hold_back is 'half'"),
        ({"smooth_quant": "yes"}, "smooth_quant is 'yes'"),
        ({"overrides": ["first"]}, r"overrides is \['first'\]: give a dict"),
        ({"bits": 8.0}, "bits is 8.0"),
        (3, "they are a int: give QuantizationOptions, or a dict"),
    ],
)
def test_options_that_mean_nothing_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(QuantizationError, match=message):
        torchport.quantize(net(), items(), speed=False, options=options)


def test_models_that_do_not_fit_are_refused() -> None:
    with pytest.raises(QuantizationError, match="training mode"):
        torchport.quantize(net().train(), items())
    with pytest.raises(QuantizationError, match="float16"):
        torchport.quantize(net().half(), items())
    with pytest.raises(QuantizationError, match="no layer that can be quantized"):
        torchport.quantize(nn.Softmax(-1).eval(), items(), speed=False)
    with pytest.raises(QuantizationError, match=r"unknown method 'pqt'.*ptq"):
        torchport.quantize(net(), items(), method="pqt")


def test_an_evaluation_that_fails_is_named() -> None:
    with pytest.raises(QuantizationError, match="raises on the float model: ZeroDivisionError: no data"):
        torchport.quantize(net(), items(), speed=False, accuracy=AccuracyBudget(evaluate=raising))
    with pytest.raises(QuantizationError, match="returns nan"):
        torchport.quantize(
            net(), items(), speed=False, accuracy=AccuracyBudget(evaluate=lambda model: float("nan"))
        )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"pcc": "0.9"}, "pcc is '0.9'"),
        ({"sqnr": float("nan")}, "sqnr is nan"),
        ({"evaluate": 3}, "evaluate is 3: give a function"),
        ({"evaluate": len, "max_drop": "a"}, "max_drop is 'a'"),
        ({"evaluate": len, "max_drop": float("nan")}, "max_drop is nan"),
    ],
)
def test_a_budget_is_made_of_numbers(given: dict[str, object], message: str) -> None:
    with pytest.raises(QuantizationError, match=message):
        AccuracyBudget(**given)
    with pytest.raises(QuantizationError, match=r"accuracy is 0\.9: give an AccuracyBudget"):
        torchport.quantize(net(), items(), speed=False, accuracy=0.9)


def test_a_budget_says_one_thing() -> None:
    with pytest.raises(QuantizationError, match="no criterion is given"):
        AccuracyBudget()
    with pytest.raises(QuantizationError, match="one of them"):
        AccuracyBudget(evaluate=raising, pcc=0.9)


def test_other_inputs_than_the_calibrated_are_refused() -> None:
    quantized = torchport.quantize(net(), items(), speed=False)
    assert quantized(torch.rand(9, 6)).shape == (9, 3)  # another batch
    with pytest.raises(QuantizationError, match="dimension 1"):
        quantized(torch.rand(4, 5))
    with pytest.raises(QuantizationError, match="the inputs do not match"):
        quantized(x=torch.rand(4, 6))
