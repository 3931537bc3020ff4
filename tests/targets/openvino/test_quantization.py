"""Fake quantization: OpenVINO rounds as torch does, and stores weights in 8 bits."""

import numpy
import pytest
import torch
from torch import nn

import torchport


class Rounded(nn.Module):
    """Fake-quantizes its input; its weight is stored in 8 bits."""

    def __init__(self) -> None:
        super().__init__()
        self.values = nn.Parameter(torch.randint(-127, 128, (64, 64), dtype=torch.int8), requires_grad=False)
        self.scale = nn.Parameter(torch.rand(64, 1) * 0.01, requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return 64 numbers for each row."""
        x = torch.fake_quantize_per_tensor_affine(x, 0.05, 100, 0, 255)
        return nn.functional.linear(x, self.values.to(torch.float32) * self.scale)


class OnlyRounds(nn.Module):
    """Rounds to a grid whose zero point is not 0."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the nearest values on the grid."""
        return torch.fake_quantize_per_tensor_affine(x, 0.25, 3, 0, 15)


def test_numbers_go_to_the_nearest_step_and_no_further_than_the_ends() -> None:
    x = torch.tensor([-9.0, -0.75, -0.7, -0.1, 0.0, 0.1, 0.2, 2.9, 99.0])
    compiled = torchport.compile(OnlyRounds().eval(), (x,))
    assert compiled.coverage.complete
    assert compiled(x).tolist() == [-0.75, -0.75, -0.75, 0.0, 0.0, 0.0, 0.25, 3.0, 3.0]


def test_weights_are_stored_in_eight_bits() -> None:
    model, x = Rounded().eval(), torch.randn(4, 64)
    compiled = torchport.compile(model, (x,))
    assert compiled.coverage.complete
    [island] = compiled.record.islands
    assert int(island.properties["weights_bytes"]) < 64 * 64 + 64 * 4 + 512
    with torch.no_grad():
        assert torch.allclose(compiled(x), model(x), atol=1e-3 * float(model(x).abs().max()))


def test_a_mask_that_is_read_and_integers_that_are_no_weights_stay_on_the_host() -> None:
    class Mask(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.ops.aten.fake_quantize_per_tensor_affine_cachemask(x, 0.1, 0, -128, 127)[1]

    class Cast(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.to(torch.float32) * 2

    class Unpack(nn.Module):
        """Unpacks bytes that are not a weight."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.stack([x & 15, x >> 4], -1).view(2, 6).to(torch.float32)

    whole = torch.randint(0, 128, (2, 3))
    given = ((Mask(), torch.randn(3)), (Cast(), whole.to(torch.int8)), (Cast(), whole.to(torch.uint8)))
    for model, x in (*given, (Unpack(), whole.to(torch.uint8))):
        compiled = torchport.compile(model.eval(), (x,))
        assert torch.equal(compiled(x), model(x))
        assert not compiled.coverage.complete


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_number_gives_what_torch_gives(value: float) -> None:
    x = torch.tensor([value, 1.0])
    model = OnlyRounds().eval()
    compiled = torchport.compile(model, (torch.ones(2),))
    assert torch.equal(compiled(x), model(x))


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("axes", [[2, 3], [0, 2], [-1, 0, 1, 2], [3]])
@pytest.mark.parametrize("kind", ["sum", "mean", "max", "min", "prod"])
def test_reductions_over_several_axes_become_one_over_one(kind: str, axes: list[int], keep: bool) -> None:
    """OpenVINO needs this on ARM in models with a FakeQuantize; the expected values are numpy's."""
    import openvino
    from openvino import opset13 as opset

    from torchport.targets.openvino.arm_reductions import merge_axes

    x = opset.parameter([-1, 3, 4, 5], numpy.float32)
    model = openvino.Model([getattr(opset, f"reduce_{kind}")(x, opset.constant(axes), keep)], [x])
    merge_axes(model)
    reductions = [node for node in model.get_ops() if node.get_type_name().startswith("Reduce")]
    assert [node.input_value(1).get_node().get_data().size for node in reductions] == [1]
    given = numpy.random.default_rng(0).random((2, 3, 4, 5), dtype=numpy.float32)
    [found] = (
        openvino.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})([given]).values()
    )
    numpy.testing.assert_allclose(found, getattr(given, kind)(tuple(axes), keepdims=keep), rtol=1e-4)


def test_a_quantized_model_with_a_mean_over_an_image_is_compiled() -> None:
    class Pooled(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.fake_quantize_per_tensor_affine(x, 0.05, 100, 0, 255).mean((2, 3), keepdim=True)

    x = torch.randn(2, 3, 4, 5)
    compiled = torchport.compile(Pooled().eval(), (x,))
    assert compiled.coverage.complete
    assert torch.allclose(compiled(x), Pooled()(x), atol=1e-5)


def test_rounding_that_stays_on_the_host_is_saved(tmp_path) -> None:
    class Mask(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            rounded, inside = torch.ops.aten.fake_quantize_per_tensor_affine_cachemask(x, 0.1, 0, -8, 7)
            return torch.relu(rounded) + inside

    x = torch.randn(8)
    compiled = torchport.compile(Mask().eval(), (x,))
    assert not compiled.coverage.complete
    torchport.save(compiled, tmp_path / "mask.pt2")
    assert torch.equal(torchport.load(tmp_path / "mask.pt2")(x), Mask()(x))
