"""The simulator rounds values as the device stores them, and refuses what the library refuses."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from targets.ttnn.programs import random
from torchport.targets.ttnn.refusal import Refused
from torchport.targets.ttnn.simulator import FUNCTIONS, Held, Made
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
    # In a block with 64, the step is 128 / 128 = 1; in a block of its own, 0.6 has a step of 1 / 128.
    assert stored[0] == 64
    assert stored[1] == 1.0
    assert stored[16] == round(0.6 * 128) / 128


def test_products_are_summed_in_float32():
    ones = torch.ones(1, 4096)
    total = FUNCTIONS["matmul"](tile(ones), tile(ones.t()))
    assert total.data.item() == 4096  # accumulating ones in bfloat16 would stop at 256


def test_sums_are_accumulated_in_float32():
    assert FUNCTIONS["sum"](tile(torch.ones(1, 4096)), dim=(1,), keepdim=False).data.item() == 4096


def rounded(tensor):
    return tensor.bfloat16().float()


def attend(query, key, value):
    run = FUNCTIONS["transformer.scaled_dot_product_attention"]
    return run(tile(query), tile(key), tile(value), is_causal=False, scale=0.5)


def convolve(x, weight, dtype="bfloat16", weights_dtype="bfloat16"):
    batch, channels, height, width = x.shape
    sizes = {"in_channels": channels, "out_channels": len(weight), "kernel_size": tuple(weight.shape[2:])}
    config = Made("Conv2dConfig", (), {"weights_dtype": weights_dtype})
    prepared = FUNCTIONS["prepare_conv_weights"](
        weight_tensor=tile(weight, weights_dtype), conv_config=config, **sizes
    )
    return FUNCTIONS["conv2d"](
        input_tensor=tile(flat(x), dtype), weight_tensor=prepared, **sizes, batch_size=batch,
        input_height=height, input_width=width, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1,
        dtype=dtype, conv_config=config,
    )  # fmt: skip


def pool(x):
    return FUNCTIONS["avg_pool2d"](
        input_tensor=tile(flat(x)), batch_size=len(x),
        input_h=x.shape[2], input_w=x.shape[3], channels=x.shape[1], kernel_size=(2, 2), stride=(2, 2),
        padding=(0, 0), ceil_mode=False, count_include_pad=True, output_layout="TILE_LAYOUT",
    )  # fmt: skip


def flat(images):
    return images.permute(0, 2, 3, 1).reshape(1, 1, -1, images.shape[1])


# For each kernel: the simulated call, torch's equivalent, and the shapes of the inputs.
COMPUTED = {
    "matmul": (lambda a, b: FUNCTIONS["matmul"](tile(a), tile(b)), torch.matmul, ((9, 65), (65, 7))),
    "linear": (
        lambda a, w, b: FUNCTIONS["linear"](tile(a), tile(w), bias=tile(b), transpose_b=True),
        torch.nn.functional.linear, ((9, 65), (7, 65), (7,)),
    ),
    "conv2d": (convolve, lambda x, w: flat(torch.conv2d(x, w)), ((2, 5, 9, 9), (6, 5, 3, 3))),
    "attention": (
        attend,
        lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=0.5),
        ((1, 2, 33, 32), (1, 2, 33, 32), (1, 2, 33, 32)),
    ),
    "softmax": (lambda a: FUNCTIONS["softmax"](tile(a), dim=-1), lambda a: a.softmax(-1), ((4, 33),)),
    "layer_norm": (
        lambda a: FUNCTIONS["layer_norm"](tile(a), epsilon=1e-5),
        lambda a: torch.nn.functional.layer_norm(a, (33,)), ((4, 33),),
    ),
    "mean": (
        lambda a: FUNCTIONS["mean"](tile(a), dim=(1,), keepdim=True),
        lambda a: a.mean(1, keepdim=True), ((4, 33),),
    ),
    "avg_pool2d": (pool, lambda x: flat(torch.nn.functional.avg_pool2d(x, 2)), ((2, 3, 8, 8),)),
    "gelu": (lambda a: FUNCTIONS["gelu"](tile(a)), torch.nn.functional.gelu, ((4, 33),)),
    "relu": (lambda a: FUNCTIONS["relu"](tile(a)), torch.relu, ((4, 33),)),
    "div": (lambda a, b: FUNCTIONS["div"](tile(a), tile(b)), torch.div, ((4, 33), (4, 33))),
    "add": (lambda a: FUNCTIONS["add"](tile(a), 0.1), lambda a: a + 0.1, ((4, 33),)),
}  # fmt: skip


@pytest.mark.parametrize("name", COMPUTED)
def test_kernels_compute_in_float32_on_rounded_values_and_round_once(name):
    simulate, compute, shapes = COMPUTED[name]
    inputs = [random(*shape) for shape in shapes]
    result = simulate(*inputs).data
    assert torch.equal(result, rounded(result))  # stored as the device stores it
    expected = compute(*map(rounded, inputs))
    step = torch.finfo(
        torch.bfloat16
    ).eps  # one step: sums in another order may fall on the other side of a rounding boundary
    torch.testing.assert_close(result, rounded(expected), rtol=step, atol=1e-6)


@pytest.mark.parametrize("name", COMPUTED)
def test_kernels_agree_with_torchs_own_in_bfloat16(name):
    simulate, compute, shapes = COMPUTED[name]
    inputs = [random(*shape) for shape in shapes]
    native = compute(*[tensor.bfloat16() for tensor in inputs]).float()
    torch.testing.assert_close(simulate(*inputs).data, native, rtol=0.02, atol=0.02)


class BfloatOps(TorchDispatchMode):
    """Records ops that compute on bfloat16; conversions from and to it do not count."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if any(tensor.dtype is torch.bfloat16 for tensor in tensors) and "_to_copy" not in str(func):
            self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", COMPUTED)
def test_no_kernel_computes_in_torchs_bfloat16(name):
    """Without bfloat16 instructions in the processor, those kernels take a hundred times as long."""
    simulate, _, shapes = COMPUTED[name]
    with BfloatOps() as mode:
        simulate(*[random(*shape) for shape in shapes])
    assert mode.seen == []


def test_numbers_are_rounded_as_tensors_are():
    third = rounded(torch.tensor(1 / 3))
    x = tile(third.reshape(1, 1))
    assert FUNCTIONS["eq"](x, 1 / 3).data.item() == 1
    assert FUNCTIONS["pad"](x, ((0, 0), (0, 1)), 1 / 3).data.tolist() == [[third, third]]
    made = FUNCTIONS["full"]((1,), 1 / 3, dtype="bfloat16", layout="TILE_LAYOUT", device=None)
    assert made.data.item() == third
    chosen = FUNCTIONS["where"](tile(torch.zeros(1, 1)), x, 1 / 3)
    assert chosen.data.item() == third


def test_float32_weights_are_rounded_where_they_meet_bfloat16():
    third, one = torch.full((1, 1, 1, 1), 1 / 3), torch.ones(1, 1, 1, 1)
    assert convolve(one, third, "bfloat16", "float32").data.item() == rounded(torch.tensor(1 / 3))
    assert convolve(one, third, "float32", "float32").data.item() == torch.tensor(1 / 3)


def test_a_convolution_equals_torchs_on_flattened_images():
    x, weight, bias = random(2, 3, 9, 7), random(6, 3, 3, 3), random(6)
    flat = x.permute(0, 2, 3, 1).reshape(1, 1, -1, 3)
    config = Made("Conv2dConfig", (), {"weights_dtype": "float32"})
    sizes = {"in_channels": 3, "out_channels": 6, "kernel_size": (3, 3)}
    prepared = FUNCTIONS["prepare_conv_weights"](
        weight_tensor=tile(weight, "float32"), conv_config=config, **sizes
    )
    result = FUNCTIONS["conv2d"](
        input_tensor=tile(flat, "float32"), weight_tensor=prepared,
        bias_tensor=tile(bias, "float32"), **sizes, batch_size=2, input_height=9, input_width=7,
        stride=(2, 1), padding=(1, 0, 2, 1), dilation=(1, 1), groups=1, dtype="float32", conv_config=config,
    )  # fmt: skip
    padded = torch.nn.functional.pad(x, (2, 1, 1, 0))  # left, right, top, bottom
    expected = torch.nn.functional.conv2d(padded, weight, bias, (2, 1))
    torch.testing.assert_close(result.data, expected.permute(0, 2, 3, 1).reshape(1, 1, -1, 6))


POINTWISE = {
    "in_channels": 2, "out_channels": 17, "kernel_size": (1, 1), "input_height": 4, "input_width": 4,
    "batch_size": 1, "stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1,
    "conv_config": Made("Conv2dConfig", (), {"weights_dtype": "bfloat8_b"}),
}  # fmt: skip


def test_weights_of_convolutions_share_exponents_along_the_channels_that_come_out():
    weight, bias = torch.full((17, 2, 1, 1), 0.6), torch.full((1, 1, 1, 17), 0.6)
    weight[0, 0] = bias[..., 0] = 64.0
    kernels = FUNCTIONS["prepare_conv_weights"](weight_tensor=tile(weight, "float32"), **POINTWISE).data
    # In a block with 64, the step is 1; the other input channel and the 17th channel are in other blocks.
    assert kernels[:, :, 0, 0].tolist() == [[64, 77 / 128], *[[1, 77 / 128]] * 15, [77 / 128, 77 / 128]]
    shifts = FUNCTIONS["prepare_conv_bias"](bias_tensor=tile(bias, "float32"), **POINTWISE)
    assert (shifts.dtype, shifts.data.tolist()) == ("bfloat8_b", [64, *[1] * 15, 77 / 128])


REFUSALS = {
    "two dtypes meet": lambda: FUNCTIONS["maximum"](tile(torch.ones(2)), tile(torch.ones(2), "float32")),
    "a fraction meets integers": lambda: FUNCTIONS["add"](tile(torch.ones(2), "int32"), 2.5),
    "tiles are padded in front": lambda: FUNCTIONS["pad"](tile(torch.ones(2, 2)), ((1, 0), (0, 0)), 0.0),
    "float32 is multiplied by bfloat16": lambda: FUNCTIONS["matmul"](
        tile(torch.ones(2, 2), "float32"), tile(torch.ones(2, 2))
    ),
    "a bias in float32 beside bfloat16": lambda: FUNCTIONS["linear"](
        *[tile(torch.ones(2, 2))] * 2, bias=tile(torch.ones(2), "float32")
    ),
    "heads of 16": lambda: FUNCTIONS["transformer.scaled_dot_product_attention"](
        *[tile(torch.ones(1, 1, 4, 16))] * 3, is_causal=False, scale=1.0
    ),
    "attention in float32": lambda: FUNCTIONS["transformer.scaled_dot_product_attention"](
        *[tile(torch.ones(1, 1, 4, 32), "float32")] * 3, is_causal=False, scale=1.0
    ),
    "pooling in float32": lambda: FUNCTIONS["max_pool2d"](
        input_tensor=tile(torch.ones(1, 1, 4, 1), "float32"), batch_size=1, input_h=2, input_w=2, channels=1,
        kernel_size=(2, 2), stride=(2, 2), padding=(0, 0), dilation=(1, 1), ceil_mode=False,
        output_layout="TILE_LAYOUT",
    ),
    "batches are broadcast both ways": lambda: FUNCTIONS["matmul"](
        tile(torch.ones(2, 1, 4, 4)), tile(torch.ones(1, 3, 4, 4))
    ),
    "rows are looked up by signed numbers": lambda: FUNCTIONS["embedding"](
        Held(torch.zeros(1, dtype=torch.int32), "int32", "row_major"),
        Held(torch.zeros(1, 1, dtype=torch.bfloat16), "bfloat16", "row_major"), layout="TILE_LAYOUT",
    ),
    "exponentials of integers": lambda: FUNCTIONS["exp"](tile(torch.ones(2), "int32")),
    "a choice in float32 by a mask in bfloat16": lambda: FUNCTIONS["where"](
        tile(torch.ones(2)), tile(torch.ones(2), "float32"), 0.0
    ),
    "weights of a sliced convolution in bfloat8_b": lambda: FUNCTIONS["prepare_conv_weights"](
        weight_tensor=tile(torch.ones(17, 2, 3, 3)), **(POINTWISE | {"kernel_size": (3, 3)})
    ),
    "softmax of rows": lambda: FUNCTIONS["softmax"](Held(torch.ones(2), "bfloat16", "row_major"), dim=0),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSALS)
def test_what_the_library_refuses_is_refused(what):
    with pytest.raises(Refused):
        REFUSALS[what]()
