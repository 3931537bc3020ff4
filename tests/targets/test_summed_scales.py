"""Products that sum over elements of different scales: torch's numbers, and nothing stays on the host."""

import pytest
import torch
from torch import nn

import torchport

NO_TRIAL = {"speed_trial": False, "cache": False}
STEP = 4.0


class Rounded(nn.Module):
    """Rounds the input and the result of a product with a weight in eight bits."""

    def __init__(self, product, sizes, dim):
        super().__init__()
        self.product = product
        scales = [sizes[dim] if place == dim else 1 for place in range(len(sizes))]
        integers = torch.randint(-127, 128, sizes, dtype=torch.int8)
        self.integers = nn.Parameter(integers, requires_grad=False)
        self.scale = nn.Parameter(torch.rand(scales) * 0.1 + 0.01, requires_grad=False)

    def forward(self, x):
        x = torch.fake_quantize_per_tensor_affine(x, 0.05, 0, -128, 127)
        made = self.product(x, self.integers.float() * self.scale)
        return torch.fake_quantize_per_tensor_affine(made, STEP, 0, -128, 127)


PRODUCTS = {
    "matmul": (lambda x, weight: x @ weight, (16, 16), (4, 16)),
    "turned": (lambda x, weight: x @ weight.t(), (16, 16), (4, 16)),
    "addmm": (lambda x, weight: torch.addmm(x.new_ones(16), x, weight), (16, 16), (4, 16)),
    "linear": (nn.functional.linear, (16, 16), (4, 16)),
    "batched": (torch.bmm, (4, 4, 4), (4, 4, 4)),
    "viewed": (lambda x, weight: x @ weight.view(16, 8), (4, 4, 8), (4, 16)),
    "convolution": (lambda x, weight: nn.functional.conv2d(x, weight), (3, 3, 3, 3), (2, 3, 6, 6)),
}


@pytest.mark.parametrize("target", ["openvino", "onnxruntime"])
@pytest.mark.parametrize(
    ("name", "dim"), [(name, dim) for name, (_, sizes, _) in PRODUCTS.items() for dim in range(len(sizes))]
)
def test_a_product_is_that_of_the_weights_in_floats(name, dim, target):
    torch.manual_seed(0)
    product, sizes, shape = PRODUCTS[name]
    model, x = Rounded(product, sizes, dim).eval(), torch.randn(shape)
    compiled = torchport.compile(model, (x,), target=target, options=NO_TRIAL)
    assert compiled.coverage.stayed == ()
    given = torch.fake_quantize_per_tensor_affine(x, 0.05, 0, -128, 127)
    wanted = product(given.double(), model.integers.double() * model.scale.double())
    inside = wanted.abs() < 127 * STEP
    # The result is rounded to the next step: more than half a step off is wrong.
    assert ((compiled(x) - wanted)[inside].abs() <= 0.501 * STEP).all()
