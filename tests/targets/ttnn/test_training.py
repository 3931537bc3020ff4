"""Decomposed training ops: the same numbers as eager torch, with nearly all ops on the device."""

import copy
import functools
import itertools
import math

import pytest
import torch
from torch import nn
from torch.nn import functional

import torchport
from torchport.compiler.graph_programs import recording_coverage
from torchport.targets.ttnn.training import attention, convolutions, norms, poolings
from torchport.targets.ttnn.write import write_calls

aten = torch.ops.aten
PAIRS = ((1, 1), (2, 3)), ((0, 0), (1, 2)), ((1, 1), (2, 1)), ((1, 1), (3, 2)), ((0, 0), (1, 0))


def is_allowed(transposed, stride, dilation, extra):
    """Whether torch accepts a convolution: output padding must be less than the stride or the dilation."""
    if not transposed:
        return extra == (0, 0)
    return all(more < max(pair) for more, *pair in zip(extra, stride, dilation, strict=True))


SHAPES = [
    (groups, transposed, stride, padding, dilation, kernel, extra)
    for groups, transposed in itertools.product((1, 2, 4), (False, True))
    for stride, padding, dilation, kernel, extra in itertools.product(*PAIRS)
    if is_allowed(transposed, stride, dilation, extra)
]


def double(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_convolutions_and_their_gradients(case):
    groups, transposed, stride, padding, dilation, kernel, extra = case
    torch.manual_seed(0)
    x, bias = double(2, 4, 9, 10), double(8)
    weight = double(*((4, 8 // groups) if transposed else (8, 4 // groups)), *kernel)
    given = (stride, padding, dilation, transposed, extra, groups)
    expected = aten.convolution(x, weight, bias, *given)
    torch.testing.assert_close(convolutions.convolution(x, weight, bias, *given), expected)
    gradient = torch.randn_like(expected)
    wanted = torch.autograd.grad(expected, (x, weight, bias), gradient)
    found = convolutions.convolution_backward(gradient, x, weight, [8], *given, [True, True, True])
    torch.testing.assert_close(found, wanted)
    none = convolutions.convolution_backward(gradient, x, weight, [8], *given, [False, False, False])
    assert none == (None, None, None)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_convolutions_of_other_ranks_and_of_single_channels(rank, groups, transposed):
    torch.manual_seed(0)
    x, weight = double(2, 4, *(7, 6, 5)[:rank]), double(4, 4 // groups, *(3, 2, 2)[:rank])
    given = ([2] * rank, [1] * rank, [1] * rank, transposed, [0] * rank, groups)
    expected = aten.convolution(x, weight, None, *given)
    torch.testing.assert_close(convolutions.convolution(x, weight, None, *given), expected)
    gradient = torch.randn_like(expected)
    wanted = torch.autograd.grad(expected, (x, weight), gradient)
    found = convolutions.convolution_backward(gradient, x, weight, None, *given, [True, True, False])
    torch.testing.assert_close(found[:2], wanted)
    assert found[2] is None


@pytest.mark.parametrize("size", [(8, 12), (9, 12)])
def test_convolutions_of_patches(size):
    torch.manual_seed(0)
    x, weight, bias = double(2, 3, *size), double(5, 3, 4, 3), double(5)
    given = ((4, 3), (0, 0), (1, 1), False, (0, 0), 1)
    expected = aten.convolution(x, weight, bias, *given)
    torch.testing.assert_close(convolutions.convolution(x, weight, bias, *given), expected)
    gradient = torch.randn_like(expected)
    wanted = torch.autograd.grad(expected, (x, weight, bias), gradient)
    found = convolutions.convolution_backward(gradient, x, weight, [5], *given, [True, True, True])
    torch.testing.assert_close(found, wanted)


def test_patches_are_not_cut_out_one_by_one():
    torch._dynamo.reset()
    layer, x = nn.Conv2d(3, 8, 16, 16), torch.randn(2, 3, 64, 64, requires_grad=True)
    options = {"target": "ttnn", "dtype": "float32", "cache": False}
    with recording_coverage() as built:
        torch.compile(layer, backend="torchport", options=options)(x).sum().backward()
    assert [each.ops_remain for each in built] == [0, 0]
    assert max(each.ops_before for each in built) < 30  # of 256 elements of a window
    assert (
        built[0].outputs <= 3
    )  # its result, and what is saved for the backward pass: of the images, and of the weights


POOLINGS = [
    (size, stride, padding, ceil)
    for size, stride, padding in (((3, 3), (2, 2), (1, 1)), ((2, 2), (), (0, 0)), ((3, 2), (1, 2), (1, 0)))
    for ceil in (False, True)
]


@pytest.mark.parametrize(("size", "stride", "padding", "ceil"), POOLINGS)
@pytest.mark.parametrize("edge", [8, 9])
def test_the_largest_of_a_window_and_its_place(size, stride, padding, ceil, edge):
    torch.manual_seed(0)
    x = torch.randint(0, 3, (2, 3, edge, 10)).double()
    x[0, 0, 3, 3] = float("nan")
    x[1, 1] = -math.inf
    wanted = aten.max_pool2d_with_indices(x, size, stride, padding, (1, 1), ceil)
    found = poolings.max_pool(x, size, stride, padding, (1, 1), ceil)
    torch.testing.assert_close(found, wanted, equal_nan=True)


@pytest.mark.parametrize(("size", "stride", "padding", "ceil"), POOLINGS)
@pytest.mark.parametrize("included", [False, True])
@pytest.mark.parametrize("divisor", [None, 5])
def test_the_mean_of_a_window(size, stride, padding, ceil, included, divisor):
    torch.manual_seed(0)
    x = torch.randn(2, 3, 9, 10)
    given = (size, stride, padding, ceil, included, divisor)
    wanted = aten.avg_pool2d(x, *given)
    found = poolings.average_pool(x, *given)
    if found is NotImplemented:
        assert wanted.shape != aten.avg_pool2d(x, size, stride, padding).shape
    else:
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("has_weight", [False, True])
@pytest.mark.parametrize("shape", [(5, 3), (2, 3, 7), (2, 3, 4, 5)])
def test_batch_norms_and_their_gradients(shape, has_weight, trains):
    torch.manual_seed(0)
    x = double(*shape)
    weight, bias = (double(3), double(3)) if has_weight else (None, None)
    running = torch.randn(3).double(), torch.rand(3).double()
    given = (weight, bias, *running, trains, 0.3, 1e-3)
    wanted = aten._native_batch_norm_legit_functional(x, *given)
    found = norms.batch_norm(x, *given)
    torch.testing.assert_close(found, tuple(wanted))
    gradient = torch.randn_like(x)
    parts = [each for each in (x, weight, bias) if each is not None]
    by_torch = torch.autograd.grad(wanted[0], parts, gradient)
    saved = (*running, *wanted[1:3], trains, 1e-3, [True, has_weight, has_weight])
    ours = norms.batch_norm_backward(gradient, x, weight, *saved)
    torch.testing.assert_close([each for each in ours if each is not None], list(by_torch))


def test_a_batch_norm_without_statistics():
    torch.manual_seed(0)
    x, weight, bias = torch.randn(2, 3, 4, 5), torch.randn(3), torch.randn(3)
    for given in ((weight, bias), (None, None)):
        wanted = aten._native_batch_norm_legit.no_stats(x, *given, True, 0.1, 1e-3)
        found = norms.batch_norm_without_statistics(x, *given, True, 0.1, 1e-3)
        torch.testing.assert_close(found, tuple(wanted))


@pytest.mark.parametrize("shape", [(2, 6), (2, 6, 5), (2, 6, 4, 3)])
def test_a_group_norm(shape):
    torch.manual_seed(0)
    x, weight, bias = torch.randn(shape), torch.randn(6), torch.randn(6)
    sizes = (2, 6, math.prod(shape[2:]), 3, 1e-3)
    for given in ((weight, bias), (None, None)):
        wanted = aten.native_group_norm(x, *given, *sizes)
        torch.testing.assert_close(norms.group_norm(x, *given, *sizes), tuple(wanted))


HALVES = [torch.bfloat16, torch.float16]


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("dtype", HALVES)
def test_norms_of_16_bit_numbers_round_once_and_keep_torchs_dtypes(dtype, mixed):
    torch.manual_seed(0)
    x = (torch.randn(4, 6, 16, 16) * 3 + 20).to(dtype)  # means that are large compared with the deviations
    kept = torch.float32 if mixed else dtype
    weight, bias = torch.randn(6).to(kept), torch.randn(6).to(kept)
    running = torch.randn(6).to(kept), torch.rand(6).to(kept)
    gradient = torch.randn_like(x)
    wanted = aten._native_batch_norm_legit_functional(x, weight, bias, *running, True, 0.1, 1e-5)
    saved = (*running, *wanted[1:3], True, 1e-5, [True, True, True])
    statistics = (weight, bias, *running, True, 0.1, 1e-5)
    cases = [
        (norms.batch_norm, aten._native_batch_norm_legit_functional, (x, *statistics)),
        (norms.batch_norm_backward, aten.native_batch_norm_backward, (gradient, x, weight, *saved)),
        (
            norms.batch_norm_without_statistics,
            aten._native_batch_norm_legit.no_stats,
            (x, weight, bias, True, 0.1, 1e-5),
        ),
        (norms.group_norm, aten.native_group_norm, (x, weight, bias, 4, 6, 256, 3, 1e-5)),
        (functools.partial(norms.variance_and_mean, correction=1), torch.var_mean, (x, [0, 2, 3])),
    ]
    rounding = torch.finfo(dtype).eps
    for ours, theirs, given in cases:
        doubles = [each.double() if isinstance(each, torch.Tensor) else each for each in given]
        results = zip(ours(*given), theirs(*given), theirs(*doubles), strict=True)
        for found, of_torch, exact in results:
            assert found.dtype == of_torch.dtype
            torch.testing.assert_close(found.double(), exact, rtol=rounding, atol=rounding / 8)


@pytest.mark.parametrize("dtype", HALVES)
def test_attention_of_16_bit_numbers_keeps_torchs_dtypes(dtype):
    torch.manual_seed(0)
    given = [torch.randn(1, 2, 20, 16).to(dtype) for _ in range(3)]
    wanted = aten._scaled_dot_product_flash_attention_for_cpu(*given)
    torch.testing.assert_close(attention.attention(*given), tuple(wanted), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("how", ["bfloat16", "autocast"])
def test_models_of_16_bit_numbers_train_like_eager_ones(how):
    torch.manual_seed(0)
    torch._dynamo.reset()
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 1), nn.GroupNorm(2, 8)
    )
    x = torch.randn(4, 3, 12, 12) + 5
    exact = gradients(copy.deepcopy(module).double(), None, x.double())
    if how == "bfloat16":
        module, x = module.to(torch.bfloat16), x.to(torch.bfloat16)
    options = {"target": "ttnn", "dtype": "float32", "cache": False}
    compiled = torch.compile(module, backend="torchport", options=options)
    buffers = copy.deepcopy(dict(module.named_buffers()))
    with torch.autocast("cpu", torch.bfloat16, enabled=how == "autocast"), recording_coverage() as built:
        found = gradients(module, compiled, x)
        statistics = dict(module.named_buffers())
        module.load_state_dict(buffers, strict=False)
        rounding = distances(gradients(module, None, x), exact)
    assert [each.ops_remain for each in built] == [0, 0]
    for name, buffer in module.named_buffers():
        torch.testing.assert_close(statistics[name], buffer, rtol=2e-2, atol=2e-2)
    for name, distance in distances(found, exact).items():
        assert distance <= max(2 * rounding[name], 0.05), (name, distance, rounding[name])


@pytest.mark.parametrize(
    "norm",
    [nn.GroupNorm(2, 8), nn.InstanceNorm2d(8, affine=True), nn.BatchNorm2d(8, track_running_stats=False)],
)
def test_norms_leave_nothing_on_the_host(norm):
    torch.manual_seed(0)
    torch._dynamo.reset()
    module = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), norm, nn.ReLU(), nn.Conv2d(8, 4, 1))
    x = torch.randn(2, 3, 9, 9)
    options = {"target": "ttnn", "dtype": "float32", "cache": False}
    with recording_coverage() as built:
        found = gradients(module, torch.compile(module, backend="torchport", options=options), x)
    assert [each.ops_remain for each in built] == [0, 0]
    assert max(distances(found, gradients(module, module, x)).values()) < 1e-4


@pytest.mark.parametrize(("size", "stride", "padding", "ceil"), POOLINGS)
def test_the_gradient_of_a_pooling_goes_to_the_first_of_equal_elements(size, stride, padding, ceil):
    torch.manual_seed(0)
    x = torch.randint(0, 3, (2, 3, 9, 8)).double()
    x[1, 1] = -math.inf  # not passed to the padding, which is -inf too
    x.requires_grad_()
    given = (size, stride, padding, (1, 1), ceil)
    pooled, indices = aten.max_pool2d_with_indices(x, *given)
    gradient = torch.randn_like(pooled)
    [wanted] = torch.autograd.grad(pooled, x, gradient)
    found = poolings.max_pool_backward(gradient, x, *given, indices)
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("included", [False, True])
@pytest.mark.parametrize("divisor", [None, 5])
@pytest.mark.parametrize(
    ("size", "stride", "padding"), [((3, 3), (2, 2), (1, 1)), ((2, 2), (), (0, 0)), ((3, 2), (1, 2), (1, 0))]
)
def test_the_gradient_of_an_average_goes_to_all_in_equal_parts(size, stride, padding, divisor, included):
    torch.manual_seed(0)
    x = double(2, 3, 9, 8)
    given = (stride, padding, False, included, divisor)
    pooled = aten.avg_pool2d(x, size, *given)
    gradient = torch.randn_like(pooled)
    [wanted] = torch.autograd.grad(pooled, x, gradient)
    torch.testing.assert_close(poolings.average_pool_backward(gradient, x, size, *given), wanted)
    larger = gradient.new_zeros(2, 3, pooled.shape[2] + 1, pooled.shape[3])  # as ceil_mode may return
    assert poolings.average_pool_backward(larger, x, size, *given) is NotImplemented


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("shared", [6, 2, 1])  # several heads of the query may share a key
def test_attention_and_its_gradients(causal, masked, shared):
    torch.manual_seed(0)
    query, key, value = double(2, 6, 5, 4), double(2, shared, 5, 4), double(2, shared, 5, 4)
    mask = torch.randn(5, 5, dtype=torch.float64) if masked and not causal else None
    if mask is not None:
        mask[0, 1:3] = mask[3] = -math.inf
    forward = aten._scaled_dot_product_flash_attention_for_cpu(query, key, value, 0.0, causal, attn_mask=mask)
    found = attention.attention(query, key, value, 0.0, causal, attn_mask=mask)
    torch.testing.assert_close(found, tuple(forward))
    gradient = torch.randn_like(forward[0])
    wanted = torch.autograd.grad(forward[0], (query, key, value), gradient)
    saved = (gradient, query, key, value, *found, 0.0, causal)
    torch.testing.assert_close(attention.attention_backward(*saved, attn_mask=mask), wanted)


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("correction", [None, 0, 1.5])
@pytest.mark.parametrize("dim", [None, [0], [0, -1]])
def test_variance_and_mean(dim, correction, keepdim):
    x = double(3, 4, 5)
    wanted = torch.var_mean(x, dim, correction=1 if correction is None else correction, keepdim=keepdim)
    found = norms.variance_and_mean(x, dim, correction=correction, keepdim=keepdim)
    torch.testing.assert_close(found, wanted)


class Images(nn.Module):
    """Every kind of layer that training decomposes: strided, grouped, transposed, normalised, pooled."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm, self.pool = (
            nn.Conv2d(3, 8, 3, 2, 1, bias=False),
            nn.BatchNorm2d(8),
            nn.MaxPool2d(3, 2, 1),
        )
        self.deep, self.wide = nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Conv2d(8, 16, 1)
        self.grow, self.last, self.head = nn.ConvTranspose2d(16, 4, 2, 2), nn.LayerNorm(4), nn.Linear(4, 5)

    def forward(self, x):
        x = self.pool(torch.relu(self.norm(self.stem(x))))
        x = self.grow(torch.relu(self.wide(self.deep(x))))
        return self.head(self.last(x.flatten(2).mT)).mean(1)


def gradients(module, call, x):
    module.zero_grad()
    (module if call is None else call)(x).square().mean().backward()
    return {name: parameter.grad.float() for name, parameter in module.named_parameters()}


def distances(found, wanted):
    """Return the relative errors of gradients by name."""
    return {
        name: float(
            torch.linalg.vector_norm(found[name] - wanted[name]) / torch.linalg.vector_norm(wanted[name])
        )
        for name in wanted
    }


class Random(nn.Module):
    """A residual branch, scaled by random numbers."""

    def __init__(self, draw):
        super().__init__()
        self.linear, self.draw = nn.Linear(16, 16), draw

    def forward(self, x):
        branch = self.linear(x)
        return x + branch * self.draw(branch)


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: x.new_empty(len(x), 1).bernoulli_(0.5),  # as torchvision's and timm's stochastic depth
        lambda x: (0.5 + torch.rand(len(x), 1)).floor_(),  # as that of transformers
        lambda x: torch.empty_like(x).uniform_(),
        lambda x: functional.rrelu(torch.ones_like(x) - 2, training=True),
        lambda x: torch.multinomial(torch.ones(len(x), 3), 16, replacement=True),
    ],
)
def test_the_backward_pass_has_the_forward_passs_random_numbers(draw):
    torch.manual_seed(0)
    model, x = Random(draw).train(), torch.randn(8, 16)
    compiled = torch.compile(model, backend="torchport", options={"target": "ttnn", "dtype": "float32"})
    torch.manual_seed(1)
    ours = gradients(model, compiled, x)
    torch.manual_seed(1)
    for name, distance in distances(ours, gradients(model, model, x)).items():
        assert distance <= 1e-4, name


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_step_of_training_runs_on_the_device(dtype):
    torch.manual_seed(0)
    model, x = Images(), torch.randn(2, 3, 32, 32)
    before = torchport.fallbacks()
    compiled = torch.compile(model, backend="torchport", options={"target": "ttnn", "dtype": dtype})
    with recording_coverage() as built:
        ours = gradients(model, compiled, x)
    exact = gradients(model, model, x)
    halved = copy.deepcopy(model).to(torch.bfloat16)
    rounding = distances(gradients(halved, halved, x.to(torch.bfloat16)), exact)
    for name, distance in distances(ours, exact).items():
        assert distance <= (1e-4 if dtype == "float32" else max(2 * rounding[name], 0.1)), name
    assert torchport.fallbacks().fallbacks == before.fallbacks
    assert len(built) == 2
    assert sum(each.ops_remain for each in built) <= 0.01 * sum(each.ops_before for each in built)


@pytest.mark.parametrize(
    ("layer", "size", "most"),
    [
        # With a tile of 32 × 32 for each single weight's gradient, 4 KiB each, they would take 1 GiB.
        (nn.Conv2d(512, 512, 1, bias=False), 7, 32),
        # Nine pieces of an image, the nine joined side by side as columns, and some copies of the image.
        (nn.Conv2d(64, 64, 3, padding=1, bias=False), 28, 32),
        pytest.param(nn.Conv2d(64, 64, 3, padding=1, groups=64), 28, 32, marks=pytest.mark.conformance),
        pytest.param(
            nn.Sequential(nn.Conv2d(64, 64, 1), nn.BatchNorm2d(64), nn.MaxPool2d(2)),
            28,
            32,
            marks=pytest.mark.conformance,
        ),
    ],
    ids=["1x1", "3x3", "single channels", "norm"],
)
def test_a_program_takes_a_few_times_the_memory_of_its_images(layer, size, most, monkeypatch):
    programs = []

    def write(island, options):
        written = write_calls(island, options)
        programs.append(written[0])
        return written

    monkeypatch.setattr("torchport.targets.ttnn.write.write_calls", write)
    x = torch.randn(2, (layer if isinstance(layer, nn.Conv2d) else layer[0]).in_channels, size, size)
    image = x.numel() * x.element_size()
    weights = sum(each.numel() * each.element_size() for each in layer.parameters())
    options = {"target": "ttnn", "dtype": "float32", "cache": False}
    with recording_coverage() as built:
        torch.compile(layer, backend="torchport", options=options)(x.requires_grad_()).sum().backward()
    assert [each.ops_remain for each in built] == [0, 0]
    # Rows of pixels are padded to 32; so are the nine weights of a window.
    assert max(program.peak_bytes for program in programs) < most * image + 5 * weights
    # Saved between the two passes: at most one image per layer, not nine pieces of each.
    assert sum(item.tensor.bytes for item in programs[-1].inputs) < 4 * image + 5 * weights


class Resampled(nn.Module):
    """Resizes images: torch looks up pixels by fixed rows and columns, and adds gradients to them."""

    def __init__(self, mode, size):
        super().__init__()
        self.mode, self.size = mode, size
        self.layer = nn.Conv2d(3, 4, 1)

    def forward(self, x):
        return nn.functional.interpolate(self.layer(x), self.size, mode=self.mode)


QUICK = {"nearest": (7, 13), "bilinear": (3, 4), "bicubic": (10, 12)}  # the others run in `make conformance`


@pytest.mark.parametrize(
    ("mode", "size"),
    [
        pytest.param(mode, size, marks=[] if size == quick else [pytest.mark.conformance])
        for mode, quick in QUICK.items()
        for size in ((10, 12), (7, 13), (3, 4))
    ],
)
def test_images_of_other_sizes_leave_nothing_on_the_host(mode, size):
    torch.manual_seed(0)
    torch._dynamo.reset()
    module, x = Resampled(mode, size), torch.randn(2, 3, 5, 6)
    options = {"target": "ttnn", "dtype": "float32", "cache": False}
    with recording_coverage() as built:
        found = gradients(module, torch.compile(module, backend="torchport", options=options), x)
    assert [each.ops_remain for each in built] == [0, 0]
    assert max(distances(found, gradients(module, module, x)).values()) < 1e-5
