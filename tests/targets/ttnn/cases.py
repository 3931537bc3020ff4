"""One or more small calls for each lowering, covering various shapes, dtypes and arguments."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from targets.ttnn.programs import random


def _integers(*shape, high=7):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randint(-high, high, shape, generator=generator)


def _seeded(make):
    torch.manual_seed(0)
    return make().eval()


X = random(2, 3, 5)
SQUARE = random(2, 3, 37, 45)
IMAGES = random(2, 6, 12, 10)
POSITIVE = X.abs() + 0.5
MASK = random(2, 3, 5) > 0
IDS = _integers(2, 7).abs()
ROWS = torch.tensor([[0, 2], [1, 1]])
DOWN, ACROSS = torch.tensor([[3], [0], [11], [3], [3]]), torch.tensor([9, 0, 9, 4])  # with repetitions
WEIGHT_INDEX = torch.tensor([2, 0, 1, 1])

# name: (function, inputs). Modules have their own weights.
CASES = {
    "add": (lambda x, y: x + y, (X, random(3, 1))),
    "add_alpha": (lambda x, y: torch.add(x, y, alpha=0.5), (X, random(5))),
    "add_number": (lambda x: x + 2.5, (X,)),
    "add_integers": (lambda x, y: torch.add(x, y, alpha=3), (_integers(3, 4), _integers(4))),
    "add_integer_to_float": (lambda x, y: x + y, (X, _integers(5))),
    "sub_alpha": (lambda x, y: torch.sub(x, y, alpha=-2), (X, X.flip(0))),
    "rsub": (lambda x: 1 - x, (X,)),
    "rsub_integers": (lambda x: 7 - x, (_integers(3, 4),)),
    "mul": (lambda x, y: x * y, (X, random(2, 1, 1))),
    "mul_booleans": (lambda x, y: x * y, (MASK, MASK.flip(0))),
    "mul_boolean_by_float": (lambda x, y: x * y, (MASK, X)),
    "div": (lambda x, y: x / y, (X, POSITIVE)),
    "div_number": (lambda x: x / 3.0, (X,)),
    "div_power_of_two": (lambda x: x / 8, (X,)),
    "div_integers": (lambda x: x / 4, (_integers(3, 4),)),
    "maximum": (torch.maximum, (X, random(5))),
    "minimum_integers": (torch.minimum, (_integers(3, 4), _integers(4))),
    "atan2": (torch.atan2, (X, POSITIVE)),
    "pow_2": (lambda x: x**2, (X,)),
    "pow_3": (lambda x: x**3, (X,)),
    "pow_half": (lambda x: x**0.5, (POSITIVE,)),
    "pow_other": (lambda x: x**1.7, (POSITIVE,)),
    "pow_of_number": (lambda x: 2.0**x, (X,)),
    "remainder": (lambda x: x % 3, (_integers(3, 4),)),
    "where": (lambda m, x, y: torch.where(m, x, y), (MASK, X, random(5))),
    "where_numbers": (lambda m: torch.where(m, 1.0, -2.0), (MASK,)),
    "where_integers": (lambda m, x: torch.where(m, x, 3), (MASK, _integers(2, 3, 5))),
    "where_least": (lambda m, x: torch.where(m, x, torch.finfo(torch.float32).min), (MASK, X)),
    "full_least": (lambda x: x + torch.full((5,), torch.finfo(torch.float32).min), (X,)),
    "masked_fill": (lambda x, m: x.masked_fill(m, -3.0), (X, MASK)),
    "relu_integers": (torch.relu, (_integers(3, 4),)),
    "gelu": (functional.gelu, (X,)),
    "gelu_tanh": (lambda x: functional.gelu(x, approximate="tanh"), (X,)),
    "leaky_relu": (lambda x: functional.leaky_relu(x, 0.2), (X,)),
    "elu": (lambda x: functional.elu(x, 0.7), (X,)),
    "softplus": (lambda x: functional.softplus(x, 2.0, 15.0), (X,)),
    "hardtanh": (lambda x: functional.hardtanh(x, -0.5, 0.7), (X,)),
    "relu6": (functional.relu6, (4 * X,)),
    "hardswish": (functional.hardswish, (X,)),
    "hardsigmoid": (functional.hardsigmoid, (X,)),
    "mish": (functional.mish, (X,)),
    "silu": (functional.silu, (X,)),
    "clamp": (lambda x: x.clamp(-0.5, 0.5), (X,)),
    "clamp_below": (lambda x: x.clamp(min=-0.5), (X,)),
    "clamp_integers": (lambda x: x.clamp(-2, 3), (_integers(3, 4),)),
    **{
        name: (getattr(torch, name), (X,))
        for name in "abs neg sign sin cos tanh erf erfc exp exp2 expm1 sigmoid atan sinh cosh asinh".split()
    },
    **{
        name: (getattr(torch, name), (POSITIVE,))
        for name in "log log2 log10 log1p sqrt rsqrt reciprocal".split()
    },
    "tan": (torch.tan, (X.tanh(),)),
    "acos": (torch.acos, (X.tanh(),)),
    "asin": (torch.asin, (X.tanh(),)),
    "atanh": (torch.atanh, (0.9 * X.tanh(),)),
    "acosh": (torch.acosh, (1 + POSITIVE,)),
    **{
        f"compare_{function.__name__}": (lambda x, y, f=function: f(x, y).float() * 2, (X, X.flip(0)))
        for function in (torch.eq, torch.ne, torch.lt, torch.le, torch.gt, torch.ge)
    },
    "compare_integers": (lambda x: x >= 2, (_integers(3, 4),)),
    "compare_number": (lambda x: x > 0.25, (X,)),
    "not": (lambda x: ~x, (MASK,)),
    "logical_not": (lambda x: torch.logical_not(x), (_integers(3, 4),)),
    "and": (lambda x, y: x & y, (MASK, MASK.flip(0))),
    "or": (lambda x, y: x | y, (MASK, MASK.flip(0))),
    "xor": (lambda x, y: torch.logical_xor(x, y), (MASK, MASK.flip(0))),
    "bits": (lambda x, y: (x & y) | (x ^ y), (_integers(3, 4), _integers(3, 4))),
    "bits_inverted": (lambda x: ~x, (_integers(3, 4),)),
    "to_float": (lambda x: x.float() * 1.5, (_integers(3, 4),)),
    "to_bool": (lambda x: x.bool(), (_integers(3, 4),)),
    "bool_to_integer": (lambda x: x.long() + 1, (MASK,)),
    "like": (lambda x: torch.full_like(x, 2.5) + torch.zeros_like(x) + torch.ones_like(x) + x, (X,)),
    "view": (lambda x: (x + 1).view(6, 5), (X,)),
    "unsqueeze": (lambda x: (x + 1).unsqueeze(1).squeeze(0).unsqueeze(-1), (random(1, 3, 5),)),
    "permute": (lambda x: (x + 1).permute(2, 0, 1) + 1, (X,)),
    "transpose": (lambda x: (x + 1).transpose(-1, 0) + 1, (X,)),
    "t": (lambda x: (x + 1).t() + 1, (random(3, 5),)),
    "expand": (lambda x, y: x.expand(4, 3, 5) @ y, (random(1, 3, 5), random(4, 5, 2))),
    "repeat": (lambda x: x.repeat(2, 1, 3), (random(3, 5),)),
    "slice": (lambda x: x[:, 1:, 2:4] + 1, (X,)),
    "slice_step": (lambda x: x[..., 1::2] + 1, (SQUARE,)),
    "select": (lambda x: x[:, -1] + 1, (X,)),
    "split": (lambda x: [part + 1 for part in x.split(2, -1)], (X,)),
    "split_sizes": (lambda x: [part + 1 for part in x.split([1, 3, 1], -1)], (X,)),
    "unbind": (lambda x: [part + 1 for part in x.unbind(1)], (X,)),
    "cat": (lambda x, y: torch.cat([x, y, x], -2), (X, random(2, 1, 5))),
    "cat_last": (lambda x, y: torch.cat([x, y], 3), (SQUARE, random(2, 3, 37, 2))),
    "pad": (lambda x: functional.pad(x, (0, 2, 0, 1), value=1.5), (X,)),
    "pad_front": (lambda x: functional.pad(x, (1, 2, 2, 0)), (X,)),
    "pad_negative": (lambda x: functional.pad(x, (-1, -2, 0, -1)), (X,)),
    "pad_negative_and_positive": (lambda x: functional.pad(x, (-1, 2, 1, -1), value=1.5), (X,)),
    "sum": (lambda x: x.sum(-1), (X,)),
    "sum_keepdim": (lambda x: x.sum((0, -1), keepdim=True), (SQUARE,)),
    "sum_all": (lambda x: x.sum() + 1, (X,)),
    "sum_integers": (lambda x: x.sum(0), (_integers(3, 4),)),
    "mean": (lambda x: x.mean((1, 2)), (SQUARE,)),
    "amax": (lambda x: x.amax(1, keepdim=True), (X,)),
    "max": (lambda x: x.max(), (X,)),
    "min": (lambda x: x.min(), (X,)),
    "amin": (lambda x: x.amin((0, 2)), (X,)),
    "any": (lambda x: x.any(1), (MASK,)),
    "all": (lambda x: x.all(-1, keepdim=True), (MASK,)),
    "var": (lambda x: x.var(-1), (SQUARE,)),
    "var_biased": (lambda x: x.var((1, 3), correction=0, keepdim=True), (SQUARE,)),
    "norm": (lambda x: functional.normalize(x, dim=-1), (X,)),
    "norm_1": (lambda x: torch.linalg.vector_norm(x, 1, -1), (X,)),
    "cumsum": (lambda x: x.cumsum(1), (X,)),
    "cumsum_integers": (lambda x: x.cumsum(-1), (_integers(3, 4),)),
    "argmax_integers": (lambda x: x.argmax(-1), (_integers(3, 40, high=1000),)),
    "softmax": (lambda x: x.softmax(-1), (SQUARE,)),
    "softmax_first": (lambda x: x.softmax(0), (X,)),
    "log_softmax": (lambda x: x.log_softmax(-1), (X,)),
    "matmul": (lambda x, y: x @ y, (SQUARE, random(2, 3, 45, 33))),
    "matmul_matrix": (lambda x, y: x @ y, (X, random(5, 7))),
    "linear": (_seeded(lambda: nn.Linear(5, 9)), (X,)),
    "linear_no_bias": (_seeded(lambda: nn.Linear(5, 9, bias=False)), (random(5),)),
    "linear_computed_weight": (lambda x, w, b: functional.linear(x, w, b), (X, random(4, 5), random(4))),
    "addmm": (lambda b, x, y: torch.addmm(b, x, y), (random(7), random(3, 5), random(5, 7))),
    "attention": (
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v),
        (random(2, 3, 40, 32), random(2, 3, 50, 32), random(2, 3, 50, 32)),
    ),
    "attention_small_heads": (
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, scale=0.3),
        (random(2, 3, 40, 12), random(2, 3, 50, 12), random(2, 3, 50, 12)),
    ),
    "attention_causal": (
        lambda q: functional.scaled_dot_product_attention(q, q, q, is_causal=True),
        (random(1, 2, 40, 64),),
    ),
    "attention_mask": (
        lambda q, m: functional.scaled_dot_product_attention(q, q, q, m),
        (random(2, 3, 40, 32), (torch.arange(40) < 30).expand(2, 1, 1, 40)),
    ),
    "attention_groups": (
        lambda q, k: functional.scaled_dot_product_attention(q, k, k, enable_gqa=True),
        (random(1, 4, 40, 32), random(1, 2, 40, 32)),
    ),
    "layer_norm": (_seeded(lambda: nn.LayerNorm(5)), (X,)),
    "layer_norm_two_dims": (_seeded(lambda: nn.LayerNorm((3, 5))), (X,)),
    "rms_norm": (_seeded(lambda: nn.RMSNorm(45)), (SQUARE,)),
    "group_norm": (_seeded(lambda: nn.GroupNorm(3, 6)), (IMAGES,)),
    "batch_norm": (_seeded(lambda: nn.BatchNorm2d(6)), (IMAGES,)),
    "convolution": (_seeded(lambda: nn.Conv2d(6, 7, 3, (2, 1), (1, 2))), (IMAGES,)),
    "convolution_dilated": (_seeded(lambda: nn.Conv2d(6, 7, 3, 1, 2, 2, bias=False)), (IMAGES,)),
    "convolution_groups": (_seeded(lambda: nn.Conv2d(6, 6, 3, padding=1, groups=6)), (IMAGES,)),
    "convolution_pointwise": (_seeded(lambda: nn.Conv2d(6, 40, 1)), (IMAGES,)),
    "convolution_lines": (_seeded(lambda: nn.Conv1d(6, 8, 3, padding=1)), (random(2, 6, 20),)),
    "convolution_transposed": (
        _seeded(lambda: nn.ConvTranspose2d(6, 8, 3, 2, padding=1, output_padding=1)), (IMAGES,)
    ),
    "convolution_transposed_groups": (
        _seeded(lambda: nn.ConvTranspose2d(6, 8, 4, 2, padding=1, groups=2, bias=False)), (IMAGES,)
    ),
    "convolution_transposed_norm": (
        _seeded(lambda: nn.Sequential(nn.ConvTranspose2d(6, 8, 2, 2, groups=2), nn.BatchNorm2d(8))), (IMAGES,)
    ),
    "adaptive_to_one": (lambda x: functional.adaptive_avg_pool2d(x, 1), (IMAGES,)),
    "adaptive_uneven": (lambda x: functional.adaptive_avg_pool2d(x, (5, 4)), (IMAGES,)),
    "upsample_nearest": (lambda x: functional.interpolate(x, scale_factor=2), (IMAGES,)),
    "upsample_nearest_uneven": (lambda x: functional.interpolate(x, size=(17, 13)), (IMAGES,)),
    "upsample_bilinear": (
        lambda x: functional.interpolate(x, size=(24, 15), mode="bilinear", align_corners=False), (IMAGES,)
    ),
    "upsample_corners": (
        lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True), (IMAGES,)
    ),
    "upsample_bicubic": (lambda x: functional.interpolate(x, size=(20, 20), mode="bicubic"), (IMAGES,)),
    "embedding": (_seeded(lambda: nn.Embedding(50, 12)), (IDS,)),
    "embedding_3d": (_seeded(lambda: nn.Embedding(50, 12)), (_integers(2, 3, 4).abs(),)),
    "gather": (lambda x, i: x.gather(1, i), (random(2, 9), ROWS)),
    "index_select": (lambda x: x.index_select(1, torch.tensor([2, 0, 1, 0, 2, 1, 1, 0, 2])), (X,)),
    "roll": (lambda x: x.roll((1, -2), (1, 2)), (X,)),
    "index": (lambda x, i: x[:, i], (X, ROWS)),
    "index_pixels": (lambda x: x[:, :, DOWN, ACROSS], (IMAGES,)),
    "index_put_added": (
        lambda x, y: torch.ops.aten.index_put(x, [None, None, DOWN, ACROSS], y, accumulate=True),
        (IMAGES, random(2, 6, 5, 4)),
    ),
    "index_several": (lambda x, i: x[torch.arange(2), i], (X, torch.tensor([2, 0]))),
}  # fmt: skip

# ttnn pools only in bfloat16.
BFLOAT16_CASES = {
    "max_pool": (lambda x: functional.max_pool2d(x, 3, 2, 1), (IMAGES,)),
    "max_pool_ceil": (lambda x: functional.max_pool2d(x, 3, 2, ceil_mode=True), (IMAGES,)),
    "max_pool_dilated": (lambda x: functional.max_pool2d(x, 2, 2, dilation=2), (IMAGES,)),
    "avg_pool": (lambda x: functional.avg_pool2d(x, 3, 2, 1), (IMAGES,)),
    "avg_pool_without_padding": (
        lambda x: functional.avg_pool2d(x, 3, 2, 1, count_include_pad=False), (IMAGES,)
    ),
    "avg_pool_ceil": (lambda x: functional.avg_pool2d(x, 3, 2, ceil_mode=True), (IMAGES,)),
    "adaptive_even": (lambda x: functional.adaptive_avg_pool2d(x, (4, 5)), (IMAGES,)),
    "images_meet": (
        lambda x, s: functional.max_pool2d(x, 2) * s + functional.avg_pool2d(x, 2),
        (IMAGES, random(2, 6, 1, 1)),
    ),
}  # fmt: skip
