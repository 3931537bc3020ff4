"""Large half-precision weights are converted to float32 in a file rather than by OpenVINO in memory."""

import pytest
import torch
from torch import nn

import torchport
from torchport.targets.openvino import float32_weights
from torchport.targets.openvino.library import openvino

X = torch.randint(0, 100, (2, 9))


def model(dtype):
    layers = nn.Embedding(100, 64), nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)
    return nn.Sequential(*layers).to(dtype).eval()


def island_of(compiled):
    [island] = compiled._first.program.islands.values()
    return island.runner.compiled


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_results_are_the_same_and_files_hold_weights_as_they_are(dtype, monkeypatch, tmp_path):
    made = model(dtype)
    options = {"cache": False}
    plain = torchport.compile(made, (X,), options=options)
    expected = plain(X)
    assert island_of(plain).weights is None
    monkeypatch.setattr(float32_weights, "_MUCH", 0)
    monkeypatch.setattr(float32_weights, "_LARGE", 0)
    wide = torchport.compile(made, (X,), options={**options, "threads": 1})  # a new island, by its options
    assert island_of(wide).weights.size == 4 * sum(weight.numel() for weight in made.parameters())
    found = wide(X)
    # On x86, OpenVINO may use kernels with another summation order for weights that it converts itself.
    torch.testing.assert_close(found, expected, rtol=0.016, atol=0.004)
    assert (wide.coverage.ops_remain, wide.fallbacks.fallbacks) == (0, 0)
    torchport.save(wide, tmp_path / "wide.pt2")
    assert torch.equal(torchport.load(tmp_path / "wide.pt2")(X), found)
    monkeypatch.undo()
    torchport.save(plain, tmp_path / "plain.pt2", compiled_form=False)
    sizes = [(tmp_path / name).stat().st_size for name in ("wide.pt2", "plain.pt2")]
    assert sizes[0] == pytest.approx(sizes[1], rel=0.02)


def test_a_model_with_few_such_weights_is_left_alone():
    opset = openvino().opset13
    x = opset.parameter([-1, 64], openvino().Type.bf16)
    weight = opset.constant(torch.ones(64, 64).numpy(), openvino().Type.bf16)
    made = openvino().Model([opset.matmul(x, weight, False, False)], [x], "product")
    before = [node.get_type_name() for node in made.get_ordered_ops()]
    assert float32_weights.widen_weights(made) is None
    assert [node.get_type_name() for node in made.get_ordered_ops()] == before


def test_what_the_model_itself_converts_is_left_alone(monkeypatch):
    monkeypatch.setattr(float32_weights, "_MUCH", 1)
    monkeypatch.setattr(float32_weights, "_LARGE", 0)
    opset = openvino().opset13
    x = opset.parameter([-1, 64], openvino().Type.f32)
    scale = opset.convert(opset.constant(torch.ones(64, 64).numpy(), openvino().Type.bf16), "f32")
    made = openvino().Model([opset.matmul(x, scale, False, False)], [x], "scaled")
    assert float32_weights.widen_weights(made) is None
