"""Every op that stays says why, where, and what to do."""

import json

import pytest
import torch
from torch import nn

import torchport
from torchport.errors import CaptureError, TargetError
from torchport.records import REASONS, Coverage
from torchport.targets.openvino import OpenVinoTarget


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(4, 4)

    def forward(self, x):
        values, _ = torch.sort(self.dense(x))  # the line of sort
        return torch.special.bessel_j0(values)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleList([Head(), Head()])

    def forward(self, x, big):
        rows = torch.stack([head(x) for head in self.heads])
        return rows, x.view(-1), torch.dropout(x, 0.5, True), big * 2**40, x.double() + 1


def explained():
    return torchport.explain(Net(), (torch.ones(2, 4), torch.tensor([1])), target="openvino", name="net")


def line_of(marker):
    with open(__file__, encoding="utf-8") as file:
        return next(n for n, line in enumerate(file, 1) if line.rstrip().endswith(f"# {marker}"))


def test_each_row_is_whole():
    coverage = explained()
    assert coverage.ops_remain == len(coverage.stayed) > 0
    for row in coverage.stayed:
        assert row.reason in REASONS
        assert row.reason != "supported"
        assert row.op.startswith("aten.")
        assert row.detail, row
        assert row.remedy, row
        assert row.source, row


def test_each_kind_of_reason_is_told_apart():
    reasons = {row.op: row.reason for row in explained().stayed}
    assert reasons["aten.sort.default"] == "no_lowering"
    assert [(row.op, row.reason) for row in explained().host_views] == [("aten.view.default", "alias")]
    assert "random" in reasons.values()
    assert reasons["aten.mul.Tensor"] == "integer_range"
    assert "dtype" in reasons.values()


def test_a_row_names_its_module_and_the_user_s_line():
    rows = [row for row in explained().stayed if row.op == "aten.sort.default"]
    assert [row.module_path for row in rows] == ["heads.0", "heads.1"]
    assert {row.source for row in rows} == {f"{__file__}:{line_of('the line of sort')} in forward"}


def test_it_is_json():
    coverage = explained()
    data = json.loads(json.dumps(coverage.to_json(), allow_nan=False))
    assert Coverage.from_json(data) == coverage
    assert {"op", "reason", "detail", "remedy", "module_path", "source"} <= data["stayed"][0].keys()
    assert {"flops", "flops_covered", "bytes", "bytes_covered"} <= data.keys()


def test_nothing_is_built_and_no_device_is_asked_for(monkeypatch):
    def never(*_):
        raise AssertionError("a dry run builds nothing")

    for name in ("build", "load", "check_ready"):
        monkeypatch.setattr(OpenVinoTarget, name, never)
    coverage = torchport.explain(nn.Linear(2, 2), (torch.ones(1, 2),), options={"device": "NPU"})
    assert coverage.complete


def test_what_is_explained_is_what_is_compiled(target):
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Softmax(-1)).eval(), torch.ones(2, 4)
    explained = torchport.explain(model, (x,), target=target)
    compiled = torchport.compile(model, (x,), target=target).coverage
    assert compiled == explained


def test_explaining_needs_no_weights():
    with torch.device("meta"):
        model = nn.Sequential(nn.Embedding(1000, 4096), nn.Linear(4096, 4096))
    ids = torch.zeros(1, 8, dtype=torch.int64, device="meta")
    coverage = torchport.explain(model, (ids,), target="openvino")
    assert (coverage.ops_before, coverage.ops_remain) == (2, 0)


class Attention(nn.Module):
    """Attention with a mask that is not a buffer, and whose result is made contiguous."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.mask = torch.zeros(5, 5)

    def forward(self, x):
        return self.attention(x, x, x, attn_mask=self.mask, need_weights=False)[0]


def encoder():
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    return nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)


@pytest.mark.parametrize(("make", "inputs"), [(Attention, "cpu"), (encoder, "meta")])
def test_attention_without_weights_is_what_is_compiled_with_them(make, inputs):
    x = torch.randn(2, 5, 16)
    compiled = torchport.compile(make().eval(), (x,), target="ttnn").coverage
    with torch.device("meta"):
        model = make().eval()
    explained = torchport.explain(model, (x.to(inputs),), target="ttnn")
    assert explained.ops_before == compiled.ops_before
    assert (explained.ops_remain, explained.transfers) == (compiled.ops_remain, compiled.transfers) == (0, 2)


def test_refusals():
    x = (torch.ones(2),)
    with pytest.raises(TargetError, match="no target named 'opnvino': did you mean 'openvino'"):
        torchport.explain(nn.ReLU(), x, target="opnvino")
    with pytest.raises(TargetError, match="the target has no option 'keepops': did you mean 'keep_ops'"):
        torchport.explain(nn.ReLU(), x, options={"keepops": ()})
    with pytest.raises(CaptureError, match="depends on the values of a tensor"):
        torchport.explain(lambda x: x if x.sum() > 0 else -x, x)


class Indexed(nn.Module):
    """Looks up rows by an index table, as windowed attention does, and by computed positions."""

    def __init__(self, largest):
        super().__init__()
        self.rows = nn.Parameter(torch.randn(6, 4))
        self.register_buffer("table", torch.arange(largest + 1).flip(0))

    def forward(self, x):
        positions = torch.arange(x.shape[0], device=x.device)
        chosen = torch.gather(self.table, 0, positions)
        return x + self.rows[self.table.view(-1)[:2]] + self.rows[positions + 1] + self.rows[chosen]


@pytest.mark.parametrize("target", ["openvino", "ttnn"])
def test_without_weights_an_index_is_taken_on_the_condition_that_it_fits(target):
    model, x = Indexed(5), torch.ones(2, 4)
    with_weights = torchport.explain(model, (x,), target=target)
    assert (with_weights.ops_remain, with_weights.conditional) == (0, ())
    without = torchport.explain(model.to("meta"), (x.to("meta"),), target=target)
    assert without.ops_remain == 0
    row, other = without.conditional
    assert row.op == other.op == "aten.index.Tensor"
    assert "within -6 … 5" in row.condition
    assert row.source.startswith(__file__)
    assert Coverage.from_json(json.loads(json.dumps(without.to_json()))) == without


def test_with_weights_an_index_that_does_not_fit_stays():
    model = Indexed(6)
    coverage = torchport.explain(model, (torch.ones(2, 4),), target="openvino")
    assert [row.reason for row in coverage.stayed if row.op == "aten.index.Tensor"] == [
        "integer_range",
        "integer_range",
    ]
