"""Ops built once for all sizes of their open dimensions match eager torch at each size."""

import pytest
import torch
from torch._dynamo.exc import UserError
from torch.export import Dim
from torch.nn import functional as F

import torchport
from torchport.errors import CaptureError
from torchport.targets.openvino.ops import RULES

SIZES = (1, 2, 3, 5, 8, 17)
LENGTH = Dim("length", min=1, max=32)


def tensor(*shape):
    return torch.randn(*shape)


def integers(*shape):
    return torch.randint(0, 6, shape)


def conv(x):
    return F.conv2d(x, torch.linspace(-1, 1, 54).reshape(2, 3, 3, 3), stride=2, padding=1)


def norm_of_channels(x):
    return F.batch_norm(x, torch.tensor([0.1, -0.2, 0.3]), torch.tensor([1.0, 2.0, 0.5]))


def causal(x):
    return F.scaled_dot_product_attention(x, x, x, is_causal=True)


def masked(x):
    mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril(1)
    return F.scaled_dot_product_attention(x, x + 1, x * 2, mask)


def into_slots(x):
    places = torch.arange(x.shape[1]) + x[0, 0, 0].gt(0).long() * 30
    return torch.linspace(0, 1, 320).reshape(2, 40, 4).index_copy(1, places % 40, x)


# Functions of a tensor whose dimension 1 is open, and the tensor's other sizes; `n` is the open one.
ON_DIMENSION_1 = {
    "add": (lambda x: x + x[:, :1], "f"),
    "compare": (lambda x: torch.where(x > 0, x, -x * 2), "f"),
    "integers": (lambda x: (x * 3 - 1).clamp(0, 9), "i"),
    "functions": (lambda x: torch.exp(torch.tanh(x)) + F.gelu(x) * torch.sigmoid(x), "f"),
    "view": (lambda x: (x * 2).view(x.shape[0] * x.shape[1], 2, 2), "f"),
    "view with -1": (lambda x: (x * 2).view(x.shape[0], -1), "f"),
    "view of half": (lambda x: torch.cat([x, x], 1).view(2, x.shape[1], 2, 4), "f"),
    "permute": (lambda x: x.permute(2, 1, 0).contiguous() + 1, "f"),
    "transpose": (lambda x: x.transpose(0, 1).reshape(x.shape[1], 8) + 1, "f"),
    "unsqueeze": (lambda x: x.unsqueeze(1).squeeze(1) + 1, "f"),
    "expand": (lambda x: x.unsqueeze(2).expand(-1, -1, 3, -1) + 1, "f"),
    "expand to a size": (lambda x: x[:, :1].expand(2, x.shape[1], 4) + 1, "f"),
    "repeat": (lambda x: x.repeat(1, 2, 1), "f"),
    "slice": (lambda x: x[:, 1:] * 2, "f"),
    "slice from the end": (lambda x: x[:, -2:] * 2, "f"),
    "select the first": (lambda x: x[:, 0] + 1, "f"),
    "select the last": (lambda x: x[:, -1] + 1, "f"),
    "flip": (lambda x: x.flip(1) + 1, "f"),
    "concatenate": (lambda x: torch.cat([x, x * 2, torch.ones(2, 3, 4)], 1), "f"),
    "split": (lambda x: sum(x.split(2, 2)), "f"),
    "pad": (lambda x: F.pad(x, (0, 1, 2, 3), value=1.5), "f"),
    "lower triangle": (lambda x: (x @ x.transpose(1, 2)).tril(-1), "f"),
    "upper triangle": (lambda x: (x @ x.transpose(1, 2)).triu(1), "f"),
    "full": (lambda x: x + torch.full((x.shape[1], 4), 0.5), "f"),
    "zeros": (lambda x: x + torch.zeros(x.shape[1], 1), "f"),
    "like": (lambda x: x + torch.full_like(x, 2.0) + torch.ones_like(x), "f"),
    "count": (lambda x: x + torch.arange(x.shape[1])[:, None], "f"),
    "count up to more": (lambda x: torch.arange(2 * x.shape[1] + 1) * x[0, 0, 0], "f"),
    "compare with a count": (lambda x: (x > torch.arange(x.shape[1])[:, None] - 2).float() + x, "f"),
    "two conversions": (lambda x: x.float() + torch.arange(x.shape[1])[:, None].float() * 0.5, "i"),
    "one number, converted": (lambda x: x.float() + torch.arange(x.shape[1])[:, None].float(), "i"),
    "embedding": (lambda x: F.embedding(x, torch.linspace(0, 1, 24).reshape(6, 4)), "i"),
    "index": (lambda x: x[:, torch.arange(x.shape[1] - 1, -1, -1)] + 1, "f"),
    "index_select": (lambda x: x.index_select(1, torch.arange(x.shape[1])) + 1, "f"),
    "index_copy": (into_slots, "f"),
    "gather": (lambda x: x.gather(1, torch.zeros_like(x, dtype=torch.long)) + 1, "f"),
    "sum": (lambda x: x.sum(1), "f"),
    "sum of all": (lambda x: x.sum(), "f"),
    "mean": (lambda x: x.mean((1, 2)) + x.mean(1, keepdim=True).sum((1, 2)), "f"),
    "variance of what is fixed": (lambda x: x.var(2), "f"),
    "largest": (lambda x: x.amax(1) - x.amin(1), "f"),
    "place of the largest": (lambda x: x.argmax(1), "f"),
    "running sum": (lambda x: x.cumsum(1), "f"),
    "any": (lambda x: (x > 1).any(1), "f"),
    "norm": (lambda x: torch.linalg.vector_norm(x, dim=1), "f"),
    "softmax": (lambda x: x.softmax(1), "f"),
    "log softmax": (lambda x: x.log_softmax(1), "f"),
    "layer norm": (lambda x: F.layer_norm(x, (4,)), "f"),
    "rms norm": (lambda x: F.rms_norm(x, (4,), eps=1e-6), "f"),
    "linear": (lambda x: F.linear(x, torch.linspace(-1, 1, 12).reshape(3, 4)), "f"),
    "matrix product": (lambda x: x @ torch.linspace(-1, 1, 12).reshape(4, 3), "f"),
    "product over an open size": (lambda x: x.transpose(1, 2) @ x, "f"),
    "causal attention": (causal, "f"),
    "attention with a mask": (masked, "f"),
}
ON_A_BATCH = {
    "convolution": conv,
    "transposed convolution": lambda x: F.conv_transpose2d(x, torch.linspace(-1, 1, 24).reshape(3, 2, 2, 2)),
    "batch norm": norm_of_channels,
    "group norm": lambda x: F.group_norm(x, 3),
    "max pooling": lambda x: F.max_pool2d(x, 2),
    "average pooling": lambda x: F.avg_pool2d(x, 2),
    "adaptive pooling": lambda x: F.adaptive_avg_pool2d(x, (1, 1)).flatten(1),
    "interpolation": lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"),
    "nearest": lambda x: F.interpolate(x, scale_factor=2.0, mode="nearest"),
}


def check(function, make, dim, length=LENGTH):
    """Compile for all sizes and compare with eager torch at each: one program, and perhaps one for size 1."""
    shapes = ({dim: length},)
    compiled = torchport.compile(function, (make(6),), dynamic_shapes=shapes, target="openvino")
    assert compiled.coverage.ops_remain == 0, compiled.coverage.stayed
    assert len(compiled.coverage.islands) == 1
    for size in sorted({*SIZES, length.max}, reverse=True):
        if size >= length.min:
            x = make(size)
            actual, expected = compiled(x), function(x)
            assert actual.stride() == expected.stride() or size == 1
            torch.testing.assert_close(actual, expected, atol=2e-5, rtol=2e-5)
            assert len(compiled.programs) == 1 or size == 1
    assert compiled.fallbacks.fallbacks == 0


@pytest.mark.parametrize("name", ON_DIMENSION_1)
def test_an_op_equals_torch_at_every_size(name):
    function, kind = ON_DIMENSION_1[name]
    make = integers if kind == "i" else tensor
    length = Dim("length", min=4, max=32) if "slice" in name else LENGTH  # torch requires that
    check(function, lambda size: make(2, size, 4), 1, length)


@pytest.mark.parametrize("name", ON_A_BATCH)
def test_an_op_on_images_equals_torch_for_every_batch(name):
    check(ON_A_BATCH[name], lambda size: tensor(size, 3, 6, 6), 0)


def test_open_pixels_are_convolved():
    check(lambda x: F.relu(conv(x)), lambda size: tensor(2, 3, size, 6), 2, Dim("pixels", min=4, max=32))


@pytest.mark.parametrize(
    ("function", "op", "reason"),
    [
        (lambda x: x.var(1), "aten.var.correction", "dimension 1 is open"),
        (lambda x: F.layer_norm(x, x.shape[1:]), "aten.native_layer_norm.default", "dimension 1 is open"),
        (lambda x: F.avg_pool2d(x[None], 2), "aten.avg_pool2d.default", "dimension 2 is open"),
        (lambda x: x * x.shape[1], "aten.mul.Tensor", "uses an open size as a number"),
    ],
)
def test_what_needs_a_fixed_size_stays_with_its_reason_and_is_right(function, op, reason):
    x, shapes = tensor(2, 6, 4), ({1: Dim("length", min=4, max=32)},)
    if _is_refused_by_torch(function, x, shapes):
        with pytest.raises(CaptureError, match="Constraints violated"):
            torchport.compile(function, (x,), dynamic_shapes=shapes, target="openvino")
        return
    compiled = torchport.compile(function, (x,), dynamic_shapes=shapes, target="openvino")
    (stayed,) = [row for row in compiled.coverage.stayed if row.op == op]
    assert stayed.reason == "shape"
    assert reason in stayed.detail
    for size in (4, 5, 9):
        x = tensor(2, size, 4)
        torch.testing.assert_close(compiled(x), function(x))
    assert len(compiled.programs) == 1


def _is_refused_by_torch(function, x, shapes):
    """Whether torch.export itself refuses the sizes, as 2.11 does for `avg_pool2d`."""

    class Module(torch.nn.Module):
        def forward(self, x):
            return function(x)

    try:
        torch.export.export(Module(), (x,), dynamic_shapes=shapes)
    except UserError:
        return True
    return False


def test_a_rule_refuses_open_sizes_unless_it_was_taught():
    taught = {name for name, rule in RULES.items() if rule.open is not None}
    assert "aten.pixel_shuffle.default" in RULES.keys() - taught
    compiled = torchport.compile(
        lambda x: F.pixel_shuffle(x, 2) + 1,
        (tensor(2, 4, 6, 6),),
        dynamic_shapes=({2: Dim("length", min=4, max=32)},),
        target="openvino",
    )
    (stayed,) = [row for row in compiled.coverage.stayed if "shuffle" in row.op]
    assert stayed.reason == "shape"
    assert "built for fixed sizes only" in stayed.detail


def test_integers_that_are_too_large_at_the_largest_size_stay_on_the_host():
    long = Dim("long", min=2, max=10_000)
    compiled = torchport.compile(
        lambda x: (torch.arange(x.shape[0]) * 5000).float() + x,
        (tensor(5),),
        dynamic_shapes=({0: long},),
        target="openvino",
    )
    assert [row.reason for row in compiled.coverage.stayed] == ["integer_range", "integer_range"]
    short = torchport.compile(
        lambda x: (torch.arange(x.shape[0]) * 5000).float() + x,
        (tensor(5),),
        dynamic_shapes=({0: Dim("short", min=2, max=100)},),
        target="openvino",
    )
    assert short.coverage.ops_remain == 0
