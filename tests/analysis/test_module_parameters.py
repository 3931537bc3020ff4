"""Constructor arguments of torch's modules and of user-defined ones, as far as instances store them."""

import dataclasses
import enum

import torch
from torch import nn

from torchport.analysis.module_parameters import ParameterReader


def read(module):
    return ParameterReader().read(module)


def test_torch_modules():
    assert read(nn.Linear(2, 3, bias=False)) == {"in_features": 2, "out_features": 3, "bias": False}
    assert read(nn.MaxPool2d(3, 2)) == {
        "kernel_size": 3,
        "stride": 2,
        "padding": 0,
        "dilation": 1,
        "return_indices": False,
        "ceil_mode": False,
    }
    assert read(nn.Conv2d(1, 2, 3, padding="same"))["padding"] == "same"
    assert read(nn.Sequential(nn.ReLU())) == read(nn.ModuleList([nn.ReLU()])) == {}


def test_arguments_that_a_class_hands_to_its_base():
    found = read(nn.LSTM(4, 5, 2, bidirectional=True))
    assert (found["mode"], found["input_size"], found["hidden_size"]) == ("LSTM", 4, 5)
    assert (found["num_layers"], found["bidirectional"]) == (2, True)


class Kind(enum.Enum):
    PLAIN = 1


@dataclasses.dataclass
class Settings:
    width: int
    scales: tuple[float, ...]


class Own(nn.Module):
    def __init__(
        self, width, settings, kind, dtype_in, table, forgotten, _private=1, *, activation=torch.relu
    ):
        super().__init__()
        self.width = width
        self.settings = settings
        self.kind = kind
        self.dtype_in = dtype_in
        self._table = table
        self.activation = activation


def test_a_users_own_class():
    own = Own(8, Settings(4, (0.5, 1.0)), Kind.PLAIN, torch.float16, torch.ones(2, 3), "gone")
    assert read(own) == {
        "width": 8,
        "settings": {"class": "Settings", "width": 4, "scales": [0.5, 1.0]},
        "kind": "PLAIN",
        "dtype_in": "float16",
        "table": {"shape": "2x3", "dtype": "float32"},
        "activation": "torch._VariableFunctionsClass.relu",
    }


def test_a_module_among_the_arguments_stands_in_the_tree():
    layer = nn.TransformerEncoderLayer(4, 2, batch_first=True)
    found = read(nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(4), enable_nested_tensor=False))
    assert found["num_layers"] == 2
    assert "norm" not in found
    assert "encoder_layer" not in found
