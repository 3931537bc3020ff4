"""Each op's float range contains eager torch's results, even for large numbers, infinities and NaN."""

import random
from types import SimpleNamespace

import pytest
import torch
from torch import fx

from targets.graphs import HandMade, aten
from torchport.targets.decompositions import find_op
from torchport.targets.openvino.float_ranges import ANYTHING, FINITE, Range, range_of_tensor, stored
from torchport.targets.openvino.float_values import Values
from torchport.targets.openvino.rules import NO_FLOATS, RULES, range_of_result, takes

INF, NAN = float("inf"), float("nan")
POOLS = [
    [0.0, -0.0, 1.0],
    [0.0, 0.25, 0.5, 1.0],
    [-1.0, -0.5, -0.0, 0.5, 1.0],
    [1e-3, 0.5, 7.0, 80.0],
    [-100.0, -3.0, -1e-3, 0.0, 2.5, 89.0, 100.0],
    [1e-45, -1e-40, 1e-38, 2e-38, 0.0],
    [1e10, -1e10, 1.0],
    [1e10, 1e10 + 1024, 1e10 - 1024],
    [1e18, -1e19, 3.0],
    [1e30, -1e30, 1e-30],
    [1e38, 3e38, 2e38],
    [3e38, -3e38, 0.0, 1.0],
    [-3e38, -1e38],
    [INF, 1.0, 0.0],
    [-INF, 1.0, 0.0],
    [INF, -INF],
    [-INF],
    [NAN, 1.0, -2.0],
]


class Sample:
    """A call on tensors with unusual values: inputs with a known range, and weights."""

    def __init__(self, seed, dtype):
        self.dtype = dtype
        self.chance = random.Random(seed)
        self.graph = HandMade()
        self.ranges = {}
        self.tensors = {}

    def float(self, *shape):
        pool = torch.tensor(self.chance.choice(POOLS)).to(self.dtype)
        places = torch.randint(len(pool), shape, generator=self._generator())
        return self._node(pool[places])

    def _node(self, tensor):
        if self.chance.random() < 0.5:
            node = self.graph.weight(tensor)
        else:
            node = self.graph.input(*tensor.shape, dtype=self.dtype)
            self.ranges[node] = range_of_tensor(tensor)
        self.tensors[node] = tensor
        return node

    def fixed(self, tensor):
        node = self.graph.weight(tensor)
        self.tensors[node] = tensor
        return node

    def bool(self, *shape):
        return self.fixed(torch.rand(shape, generator=self._generator()) < 0.5)

    def number(self):
        return self.chance.choice([0.0, -1.0, 0.5, 3.0, 1e-30, -1e30, 1e38, 2])

    def _generator(self):
        return torch.Generator().manual_seed(self.chance.randrange(1 << 30))


def one(s):
    return (s.float(3, 4),), {}


def two(s):
    return (s.float(3, 4), s.float(s.chance.choice([3, 1]), 4)), {}


def with_number(s):
    return (s.float(3, 4), s.number()), {}


def image(*rest, **kwargs):
    return lambda s: ((s.float(2, 3, 4, 4), *rest), kwargs)


def volume(*rest):
    return lambda s: ((s.float(1, 2, 4, 4, 4), *rest), {})


def rows(*rest, **kwargs):
    return lambda s: ((s.float(3, 4), *rest), kwargs)


def looked_up(*rest):
    return lambda s: ((s.float(3, 4), *rest, s.fixed(torch.tensor([2, 0]))), {})


def convolution(s, transposed=False, groups=1):
    weight = s.float(2, 4 // groups, 3, 3)
    bias = s.chance.choice([None, s.float(4 if transposed else 2)])
    source = s.float(1, 2 if transposed else 4, 5, 5)
    return (source, weight, bias, [1, 1], [1, 1], [1, 1], transposed, [0, 0], 1 if transposed else groups), {}


def attention(s):
    mask = s.chance.choice([None, s.float(3, 5), s.bool(3, 5)])
    causal = mask is None and s.chance.random() < 0.5
    return (s.float(1, 2, 3, 4), s.float(1, 2, 5, 4), s.float(1, 2, 5, 4), mask, 0.0, causal), {}


def batch_norm(s):
    parts = [s.float(3) for _ in range(4)]
    return (s.float(2, 3, 4, 4), *parts, 0.1, s.chance.choice([1e-5, 1e-12, 0.0])), {}


def layer_norm(s):
    weight, bias = (s.float(4), s.float(4)) if s.chance.random() < 0.5 else (None, None)
    return (s.float(3, 4), [4], weight, bias, s.chance.choice([1e-5, 1e-12, 0.0])), {}


def group_norm(s):
    return (s.float(2, 4, 3), s.float(4), s.float(4), 2, 4, 3, 2, s.chance.choice([1e-5, 1e-12, 0.0])), {}


def rms_norm(s):
    return (s.float(3, 4), [4], s.float(4), s.chance.choice([None, 1e-6, 0.0])), {}


SAMPLES = {
    "add.Tensor": lambda s: (two(s)[0], {"alpha": s.chance.choice([1, -2.5, 1e30])}),
    "sub.Tensor": lambda s: (two(s)[0], {"alpha": s.chance.choice([1, -2.5, 1e30])}),
    "add.Scalar": lambda s: ((s.float(3, 4), s.number(), s.chance.choice([1, -3])), {}),
    "rsub.Scalar": lambda s: ((s.float(3, 4), s.number(), s.chance.choice([1, -3])), {}),
    "mul.Tensor": lambda s: (lambda x: ((x, x), {}))(s.float(3)) if s.chance.random() < 0.3 else two(s),
    "mul.Scalar": with_number,
    "div.Tensor": two,
    "div.Scalar": lambda s: ((s.float(3, 4), s.number() or 2.0), {}),
    "pow.Tensor_Scalar": lambda s: (
        (s.float(3, 4), s.chance.choice([0, 1, 2, 3, 20, 0.5, 1.5, -1, -2, -0.5, 0.3, -20])),
        {},
    ),
    "maximum.default": two,
    "minimum.default": two,
    "clamp.default": lambda s: (
        (s.float(3, 4), *s.chance.choice([(0.0,), (None, 6.0), (-1.0, 1.0), (1e30, INF), (-INF, 2.0)])),
        {},
    ),
    "hardtanh.default": lambda s: ((s.float(3, 4), *s.chance.choice([(), (0.0, 6.0), (-2.0,)])), {}),
    "leaky_relu.default": lambda s: ((s.float(3, 4), s.chance.choice([0.01, 0.0, -2.0, 1e30])), {}),
    "gelu.default": lambda s: ((s.float(3, 4),), {"approximate": s.chance.choice(["none", "tanh"])}),
    "where.self": lambda s: ((s.bool(3, 4), s.float(3, 4), s.float(3, 4)), {}),
    "masked_fill.Scalar": lambda s: ((s.float(3, 4), s.bool(3, 4), s.chance.choice([0, -INF, 1e38])), {}),
    "_to_copy.default": lambda s: (
        (s.chance.choice([s.float(3), s.fixed(torch.tensor([7, -3])), s.bool(3)]),),
        {"dtype": torch.float32},
    ),
    "mm.default": lambda s: ((s.float(3, 4), s.float(4, 2)), {}),
    "bmm.default": lambda s: ((s.float(2, 3, 4), s.float(2, 4, 2)), {}),
    "dot.default": lambda s: ((s.float(9), s.float(9)), {}),
    "addmm.default": lambda s: (
        (s.float(2), s.float(3, 4), s.float(4, 2)),
        {"beta": s.chance.choice([1, 0.5, -3]), "alpha": s.chance.choice([1, 1e30])},
    ),
    "linear.default": lambda s: ((s.float(3, 4), s.float(2, 4), s.chance.choice([None, s.float(2)])), {}),
    "convolution.default": lambda s: s.chance.choice(
        [lambda: convolution(s), lambda: convolution(s, groups=2), lambda: convolution(s, transposed=True)]
    )(),
    "scaled_dot_product_attention.default": attention,
    "_softmax.default": rows(1, False),
    "_log_softmax.default": rows(1, False),
    "_native_batch_norm_legit_no_training.default": batch_norm,
    "native_layer_norm.default": layer_norm,
    "native_group_norm.default": group_norm,
    "rms_norm.default": rms_norm,
    "avg_pool2d.default": image([3, 3], [1, 1], [1, 1]),
    "avg_pool3d.default": volume([2], [2]),
    "_adaptive_avg_pool2d.default": image([3, 3]),
    "_adaptive_avg_pool3d.default": volume([1, 3, 2]),
    "max_pool2d_with_indices.default": image([3, 3], [1, 1], [1, 1]),
    "max_pool3d_with_indices.default": volume([2, 2, 2], [2, 2, 2]),
    "upsample_nearest2d.vec": image(None, [2.0, 1.5]),
    "upsample_bilinear2d.vec": image([5, 7], True, None),
    "upsample_bicubic2d.vec": image([5, 9], False, None),
    "amax.default": rows([1]),
    "amin.default": rows([0]),
    "sum.default": one,
    "sum.dim_IntList": rows([1]),
    "mean.default": one,
    "mean.dim": rows([0]),
    "cumsum.default": rows(1),
    "linalg_vector_norm.default": lambda s: ((s.float(3, 4), s.chance.choice([1, 2]), [1]), {}),
    "var.correction": lambda s: ((s.float(3, 4), [1]), {"correction": s.chance.choice([0, 1, 3, 4])}),
    "view.default": rows([2, 6]),
    "_unsafe_view.default": rows([12]),
    "permute.default": rows([1, 0]),
    "unsqueeze.default": rows(1),
    "expand.default": rows([2, 3, 4]),
    "squeeze.dim": lambda s: ((s.float(3, 1), 1), {}),
    "squeeze.dims": lambda s: ((s.float(3, 1), [1]), {}),
    "transpose.int": rows(0, 1),
    "slice.Tensor": rows(0, 0, 2),
    "select.int": rows(0, 1),
    "cat.default": lambda s: (([s.float(3, 4), s.float(2, 4)],), {}),
    "flip.default": rows([0]),
    "split.Tensor": rows(2),
    "split_with_sizes.default": rows([1, 2]),
    "unbind.int": one,
    "slice_scatter.default": lambda s: ((s.float(3, 4), s.float(1, 4), 0, 1, 2), {}),
    "select_scatter.default": lambda s: ((s.float(3, 4), s.float(4), 0, 1), {}),
    "pixel_shuffle.default": lambda s: ((s.float(1, 4, 2, 2), 2), {}),
    "pixel_unshuffle.default": lambda s: ((s.float(1, 1, 4, 4), 2), {}),
    "repeat.default": rows([2, 1]),
    "constant_pad_nd.default": lambda s: (
        (s.float(3, 4), [1, 1], *s.chance.choice([(), (-INF,), (1e38,)])),
        {},
    ),
    "index_select.default": looked_up(0),
    "index_copy.default": lambda s: (
        (s.float(3, 4), 0, s.fixed(torch.tensor([2, 0])), s.float(2, 4)),
        {},
    ),
    "embedding.default": looked_up(),
    "gather.default": lambda s: ((s.float(3, 4), 0, s.fixed(torch.tensor([[2, 0]]))), {}),
    "index.Tensor": lambda s: ((s.float(3, 4), [s.fixed(torch.tensor([2, 0]))]), {}),
    "full.default": lambda s: (([2, 3], s.number()), {"dtype": s.dtype}),
    "full_like.default": with_number,
    "fake_quantize_per_tensor_affine_cachemask.default": lambda s: ((s.float(3, 4), 0.02, 10, 0, 255), {}),
    "arange.start_step": lambda s: (s.chance.choice([(-3.5, 9, 2), (9, -3, -0.5)]), {"dtype": s.dtype}),
}
WITH_FLOATS = sorted(name for name, rule in RULES.items() if rule.floats is not NO_FLOATS)


def sample_of(name, seed, dtype=torch.float32):
    """Return the range claimed for a call, and what torch computes."""
    s = Sample(seed, dtype)
    args, kwargs = SAMPLES.get(name.removeprefix("aten."), one)(s)
    node = s.graph.graph.call_function(find_op(name), args, kwargs)
    values = fx.map_arg((args, kwargs), lambda source: s.tensors[source])
    result = find_op(name)(*values[0], **values[1])
    node.meta["val"] = result
    claimed = stored(range_of_result(node, Values(SimpleNamespace(**s.graph.weights), s.ranges)), dtype)
    several = name.removeprefix("aten.").startswith(("split", "unbind"))
    results = result if several else [result[0] if isinstance(result, tuple) else result]
    return claimed, torch.cat([part.flatten() for part in results]), values


# torch has no bfloat16 kernel for the others.
SWEPT = [(name, torch.float32) for name in WITH_FLOATS]
NOT_IN_HALVES = ("aten.avg_pool3d.default", "aten.fake_quantize_per_tensor_affine_cachemask.default")
SWEPT += [(name, torch.bfloat16) for name in WITH_FLOATS if name not in NOT_IN_HALVES]


@pytest.mark.parametrize("seeds", [40, pytest.param(100, marks=pytest.mark.conformance)])
@pytest.mark.parametrize(("name", "dtype"), SWEPT, ids=[f"{name}-{dtype}" for name, dtype in SWEPT])
def test_ranges_hold_for_what_torch_computes(name, dtype, seeds):
    something_known = False
    for seed in range(seeds if dtype is torch.float32 else seeds * 2 // 5):
        claimed, result, values = sample_of(name, seed, dtype)
        told = f"{claimed} does not hold {result.tolist()} of {values}"
        assert claimed.nan or not result.isnan().any(), told
        numbers = result[~result.isnan()]
        assert (numbers >= claimed.low).all(), told
        assert (numbers <= claimed.high).all(), told
        something_known |= not claimed.nan
    assert something_known, "anything, whatever it is given"


def test_an_op_that_is_not_known_gives_anything():
    graph = HandMade()
    node = graph.call(aten.log1p.default, graph.input(3, dtype=torch.float32))
    assert range_of_result(node, Values(graph.module(node), {})) == ANYTHING


def test_an_op_without_a_range_is_not_registered():
    with pytest.raises(TypeError, match="floats"):
        takes("log1p.default", "f")


def test_no_op_has_two_rules():
    with pytest.raises(ValueError, match=r"two rules for aten\.relu\.default"):
        takes("relu.default", "f", NO_FLOATS)


def test_samples_are_of_ops_that_have_rules():
    assert {f"aten.{name}" for name in SAMPLES} <= set(WITH_FLOATS)


def test_half_precision_rounds_past_no_number_that_it_has():
    assert stored(Range(0.0, 1.0), torch.bfloat16) == Range(0.0, 1.0)
    assert stored(Range(-0.1, 3e38), torch.float32) == Range(-0.1, 3e38)
    rounded = stored(Range(-0.1, 1.001), torch.bfloat16)
    assert rounded.low < -0.1
    assert rounded.high > 1.001
    assert stored(Range(0.0, 3.4e38), torch.bfloat16).high == INF
    assert not stored(Range(0.0, 1e10), torch.float16).infinite  # computed in float32


def test_what_is_known_of_a_tensor():
    assert range_of_tensor(torch.tensor([1.0, -INF])) == Range(-INF, 1.0)
    assert range_of_tensor(torch.tensor([1.0, NAN])) == ANYTHING
    assert range_of_tensor(torch.tensor([0.5, 2.0])) == Range(0.5, 2.0)
    assert not FINITE.infinite
