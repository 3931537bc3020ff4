"""The configurations that ops are called with, across models."""

import csv
import io

import torch
from torch import nn

import torchport
from torchport.analysis import configurations_csv, op_configurations
from torchport.records import OpConfigurations

WIDE = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
DEEP = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4))


def table():
    x = torch.ones(2, 8)
    return op_configurations(
        [torchport.analyze(WIDE, (x,), name="wide"), torchport.analyze(DEEP, (x,), name="deep")]
    )


def test_the_same_configuration_is_one_row_across_models():
    square, narrow, relu = table().configurations
    assert (square.op_name, square.count, square.models) == (
        "torch.nn.functional.linear",
        3,
        ("wide", "deep"),
    )
    assert {name: entry.shape for name, entry in square.inputs.items()} == {
        "input": "2x8",
        "weight": "8x8",
        "bias": "8",
    }
    assert square.examples == ("wide: 0", "wide: 2", "deep: 0")
    assert square.flops == 3 * 2 * 2 * 8 * 8
    assert (narrow.count, narrow.flops) == (1, 2 * 2 * 8 * 4)
    assert square.flop_share == 768 / 896
    assert (relu.op_name, relu.flops, relu.models) == ("torch.relu", 0, ("wide",))


def test_totals_and_json():
    found = table()
    assert (found.models, found.total_ops, found.total_flops) == (("wide", "deep"), 5, 896)
    assert OpConfigurations.from_json(found.to_json()) == found


def test_attributes_tell_configurations_apart():
    analysis = torchport.analyze(lambda x: (x.sum(0), x.sum(1), x.sum(0)), (torch.ones(2, 2),))
    rows = op_configurations([analysis]).configurations
    assert sorted((row.attributes["dim"], row.count) for row in rows) == [([0], 2), ([1], 1)]


def test_csv_has_a_row_for_each():
    rows = list(csv.DictReader(io.StringIO(configurations_csv(table()))))
    assert [row["op_name"] for row in rows] == ["torch.nn.functional.linear"] * 2 + ["torch.relu"]
    assert rows[0]["inputs"] == "input: float32[2x8]; weight: float32[8x8]; bias: float32[8]"
    assert rows[0]["count"] == "3"
