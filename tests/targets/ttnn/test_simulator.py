"""The simulator rounds as the device stores, and refuses what the library refuses."""

import pytest
import torch

from targets.ttnn.programs import random
from torchport.targets.ttnn.refusal import Refused
from torchport.targets.ttnn.simulator import KERNELS, Held, Made
from torchport.targets.ttnn.simulator.tensors import hold


def tile(tensor, dtype="bfloat16"):
    return hold(tensor, dtype)


def test_bfloat16_keeps_eight_bits():
    stored = tile(torch.tensor([1.0, 257.0, 1 / 3]))
    assert stored.data.tolist() == [1.0, 256.0, 0.333984375]


def test_bfloat8_b_shares_an_exponent_among_sixteen():
    row = torch.zeros(32)
    row[0], row[1], row[16] = 64.0, 0.6, 0.6
    stored = hold(row, "bfloat8_b").data.float()
    # Beside 64 a step is 128 / 128 = 1; on its own, 0.6 has one of 1 / 128.
    assert stored[0] == 64
    assert stored[1] == 1.0
    assert stored[16] == round(0.6 * 128) / 128


def test_products_are_summed_in_float32():
    ones = torch.ones(1, 4096)
    total = KERNELS["matmul"](tile(ones), tile(ones.t()))
    assert total.data.item() == 4096  # in bfloat16 a running sum of ones would stop at 256


def test_sums_are_accumulated_in_float32():
    assert KERNELS["sum"](tile(torch.ones(1, 4096)), dim=(1,), keepdim=False).data.item() == 4096


def test_a_convolution_equals_torchs_on_flattened_images():
    x, weight, bias = random(2, 3, 9, 7), random(6, 3, 3, 3), random(6)
    flat = x.permute(0, 2, 3, 1).reshape(1, 1, -1, 3)
    config = Made("Conv2dConfig", (), {"weights_dtype": "float32"})
    sizes = {"in_channels": 3, "out_channels": 6, "kernel_size": (3, 3)}
    prepared = KERNELS["prepare_conv_weights"](
        weight_tensor=tile(weight, "float32"), conv_config=config, **sizes
    )
    result = KERNELS["conv2d"](
        input_tensor=tile(flat, "float32"), weight_tensor=prepared,
        bias_tensor=tile(bias, "float32"), **sizes, batch_size=2, input_height=9, input_width=7,
        stride=(2, 1), padding=(1, 0, 2, 1), dilation=(1, 1), groups=1, dtype="float32", conv_config=config,
    )  # fmt: skip
    padded = torch.nn.functional.pad(x, (2, 1, 1, 0))  # left, right, top, bottom
    expected = torch.nn.functional.conv2d(padded, weight, bias, (2, 1))
    torch.testing.assert_close(result.data, expected.permute(0, 2, 3, 1).reshape(1, 1, -1, 6))


REFUSALS = {
    "two dtypes meet": lambda: KERNELS["add"](tile(torch.ones(2)), tile(torch.ones(2), "float32")),
    "a fraction meets integers": lambda: KERNELS["add"](tile(torch.ones(2), "int32"), 2.5),
    "tiles are padded in front": lambda: KERNELS["pad"](tile(torch.ones(2, 2)), ((1, 0), (0, 0)), 0.0),
    "heads of 16": lambda: KERNELS["transformer.scaled_dot_product_attention"](
        *[tile(torch.ones(1, 1, 4, 16))] * 3, is_causal=False, scale=1.0
    ),
    "attention in float32": lambda: KERNELS["transformer.scaled_dot_product_attention"](
        *[tile(torch.ones(1, 1, 4, 32), "float32")] * 3, is_causal=False, scale=1.0
    ),
    "pooling in float32": lambda: KERNELS["max_pool2d"](
        input_tensor=tile(torch.ones(1, 1, 4, 1), "float32"), batch_size=1, input_h=2, input_w=2, channels=1,
        kernel_size=(2, 2), stride=(2, 2), padding=(0, 0), dilation=(1, 1), ceil_mode=False,
        output_layout="TILE_LAYOUT",
    ),
    "batches are broadcast both ways": lambda: KERNELS["matmul"](
        tile(torch.ones(2, 1, 4, 4)), tile(torch.ones(1, 3, 4, 4))
    ),
    "rows are looked up by signed numbers": lambda: KERNELS["embedding"](
        Held(torch.zeros(1, dtype=torch.int32), "int32", "row_major"),
        Held(torch.zeros(1, 1, dtype=torch.bfloat16), "bfloat16", "row_major"), layout="TILE_LAYOUT",
    ),
    "exponentials of integers": lambda: KERNELS["exp"](tile(torch.ones(2), "int32")),
    "softmax of rows": lambda: KERNELS["softmax"](Held(torch.ones(2), "bfloat16", "row_major"), dim=0),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSALS)
def test_what_the_library_refuses_is_refused(what):
    with pytest.raises(Refused):
        REFUSALS[what]()
