"""Bad input: one clear message, and nothing changed."""

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
        ([torch.rand(4, 6), {"x": torch.rand(4, 6)}], "item 1 has other inputs"),
        ([torch.rand(4, 6), torch.rand(4, 7)], "item 1 has other shapes"),
        (torch.rand(4, 6), "not an iterable of inputs"),
        ((1 // 0 for _ in range(3)), "it raises ZeroDivisionError"),
        ([3, 4], "item 0 has no tensor"),
    ],
)
def test_bad_calibration_data_are_refused(data: object, message: str) -> None:
    with pytest.raises(QuantizationError, match=message):
        torchport.quantize(net(), data, speed=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"range": "min_max"}, "there is no option 'range'.*'ranges'"),
        ({"ranges": "entropic"}, "ranges is 'entropic'"),
        ({"overrides": {"third": "float"}}, "'third' matches no layer"),
        ({"overrides": {"first": "int5"}}, "'first' is 'int5'"),
        ({"samples": 1}, "samples is 1"),
        ({"hold_back": 1.5}, "hold_back is 1.5"),
        ({"bias_correction": "yes"}, "bias_correction is 'yes'"),
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
    with pytest.raises(QuantizationError, match=r"no method 'pqt'.*ptq"):
        torchport.quantize(net(), items(), method="pqt")


def test_an_evaluation_that_fails_is_named() -> None:
    with pytest.raises(QuantizationError, match="raises on the float model: ZeroDivisionError: no data"):
        torchport.quantize(net(), items(), speed=False, accuracy=AccuracyBudget(evaluate=raising))
    with pytest.raises(QuantizationError, match="gives nan"):
        torchport.quantize(
            net(), items(), speed=False, accuracy=AccuracyBudget(evaluate=lambda model: float("nan"))
        )


def test_a_budget_says_one_thing() -> None:
    with pytest.raises(QuantizationError, match="nothing is asked for"):
        AccuracyBudget()
    with pytest.raises(QuantizationError, match="one of them"):
        AccuracyBudget(evaluate=raising, pcc=0.9)


def test_other_inputs_than_the_calibrated_are_refused() -> None:
    quantized = torchport.quantize(net(), items(), speed=False)
    assert quantized(torch.rand(9, 6)).shape == (9, 3)  # another batch
    with pytest.raises(QuantizationError, match="dimension 1"):
        quantized(torch.rand(4, 5))
    with pytest.raises(QuantizationError, match="the inputs are others"):
        quantized(x=torch.rand(4, 6))
