"""OpenVINO's verdicts: the checks for all ops, and the rules of each family."""

import pytest
import torch
import torch.nn.functional as F

import torchport
from targets.graphs import HandMade, aten, planned, verdict_on
from torchport.records import REASONS
from torchport.targets import find
from torchport.targets.decompositions import find_op
from torchport.targets.openvino.rules import RULES
from torchport.targets.value_ranges import annotate

X = torch.randn(2, 3, 4, 4)
ROWS = torch.randn(3, 4)
IDS = torch.tensor([1, 2])
FLAGS = torch.tensor([True, False])


def verdict(node):
    return find("openvino").verdict(node, find("openvino").make_options({}))


TAKEN = [
    ("aten.relu.default", torch.relu, (X,)),
    ("aten.add.Tensor", torch.add, (IDS, IDS)),
    ("aten.lt.Scalar", lambda x: x < 3, (IDS,)),
    ("aten.bitwise_and.Tensor", torch.bitwise_and, (FLAGS, FLAGS)),
    ("aten.convolution.default", F.conv2d, (X, torch.randn(5, 3, 3, 3))),
    ("aten.linear.default", F.linear, (ROWS, torch.randn(2, 4))),
    ("aten._softmax.default", lambda x: torch.softmax(x, -1), (ROWS,)),
    ("aten.scaled_dot_product_attention.default", F.scaled_dot_product_attention, (X, X, X)),
    ("aten.native_layer_norm.default", lambda x: F.layer_norm(x, (4,)), (ROWS,)),
    ("aten.max_pool2d_with_indices.default", lambda x: F.max_pool2d(x, 2), (X,)),
    ("aten.upsample_nearest2d.vec", lambda x: F.interpolate(x, scale_factor=1.5), (X,)),
    ("aten.upsample_bilinear2d.vec", lambda x: F.interpolate(x, size=(3, 7), mode="bilinear"), (X,)),
    ("aten.rms_norm.default", lambda x: F.rms_norm(x, (4,)), (ROWS,)),
    ("aten.avg_pool2d.default", lambda x: F.avg_pool2d(x, 2), (X,)),
    ("aten.sum.dim_IntList", lambda x: x.sum(0), (ROWS,)),
    ("aten.var.correction", lambda x: x.var(0), (ROWS,)),
    ("aten.embedding.default", F.embedding, (IDS, ROWS)),
    ("aten.gather.default", lambda x: x.gather(0, torch.zeros(1, 4, dtype=torch.long)), (ROWS,)),
    ("aten.index.Tensor", lambda x, i: x[i], (ROWS, IDS)),
    ("aten.slice.Tensor", lambda x: x[1:] + 1, (ROWS,)),
    ("aten.upsample_nearest2d.vec", lambda x: F.interpolate(x, scale_factor=2.0), (X,)),
    ("aten.floor_divide.default", lambda x: x.clamp(0, 9) // 2, (IDS,)),
    ("aten.clamp.default", lambda x: x.clamp(0, 1), (IDS,)),
    ("aten.remainder.Scalar", lambda x: x.clamp(0, 90) % 7, (IDS,)),
    ("aten.index_copy.default", lambda x: x.index_copy(0, torch.arange(2) + 1, x[:2]), (ROWS,)),
    ("aten.sign.default", torch.sign, (IDS,)),
    ("aten.add.Tensor", lambda x: torch.split(x, 1)[1] + 1, (IDS,)),
    ("aten.relu.default", torch.relu, (X.bfloat16(),)),
    ("aten.linear.default", F.linear, (ROWS.half(), torch.randn(2, 4).half())),
    ("aten.embedding.default", F.embedding, (IDS, ROWS.bfloat16())),
]

STAYS = [
    # checks for all ops
    ("dtype", "aten.relu.default", torch.relu, (X.double(),)),
    ("dtype", "aten.mul.Tensor", torch.mul, (ROWS.to(torch.complex64), 2)),
    ("dtype", "aten.add.Tensor", torch.add, (IDS.to(torch.int16), IDS.to(torch.int16))),
    ("shape", "aten.mul.Tensor", torch.mul, (torch.empty(0, 3), 2)),
    ("no_lowering", "aten.linalg_inv_ex.default", lambda x: torch.linalg.inv(x @ x.T), (ROWS,)),
    ("random", "aten.bernoulli.default", torch.bernoulli, (FLAGS.float(),)),
    # integers
    ("integer_range", "aten.mul.Tensor", lambda x: x * 2**30, (IDS,)),
    ("integer_range", "aten.lt.Scalar", lambda x: x < 2**40, (IDS,)),
    ("integer_range", "aten.rsub.Scalar", lambda x: torch.rsub(x, 0, alpha=2**20), (IDS,)),
    ("integer_range", "aten.embedding.default", lambda x, i: F.embedding(i * 2, x), (ROWS, IDS)),
    ("integer_range", "aten._to_copy.default", lambda x: x.long(), (ROWS,)),
    # checks of each family
    ("argument", "aten.sub.Tensor", lambda x: (x + 12582912.0) - 12582912.0, (ROWS,)),
    ("argument", "aten.div.Tensor", lambda x: x / 0, (ROWS,)),
    ("argument", "aten.pow.Tensor_Scalar", lambda x: x ** float("inf"), (ROWS,)),
    ("argument", "aten.clamp.default", lambda x: x.clamp(2, 1), (ROWS,)),
    ("argument", "aten.clamp.default", lambda x: x.clamp(float("nan"), 1), (ROWS,)),
    ("argument", "aten.floor_divide.default", torch.floor_divide, (IDS, IDS)),
    ("argument", "aten.floor_divide.default", lambda x: x // 2, (IDS,)),
    ("argument", "aten.floor_divide.default", lambda x: x.clamp(-9, 0) // -1, (IDS,)),
    ("argument", "aten.remainder.Scalar", lambda x: x % 7, (IDS,)),
    ("argument", "aten.remainder.Scalar", lambda x: x.clamp(0, 9) % -7, (IDS,)),
    ("argument", "aten.index_copy.default",
     lambda x: x.index_copy(0, torch.tensor([1, 1]), x[:2]), (ROWS,)),
    ("argument", "aten.index_copy.default",
     lambda x, i: x.index_copy(0, i.clamp(0, 2), x[:2]), (ROWS, IDS)),
    ("argument", "aten.index_copy.default",
     lambda x: x.index_copy(0, (torch.arange(3) + 1) % 2, x), (ROWS,)),
    ("argument", "aten.masked_fill.Scalar", lambda x: x.masked_fill(x > 0, float("nan")), (ROWS,)),
    ("argument", "aten.avg_pool2d.default", lambda x: F.avg_pool2d(x, 3, ceil_mode=True), (X,)),
    ("argument", "aten.avg_pool2d.default", lambda x: F.avg_pool2d(x, 2, divisor_override=3), (X,)),
    ("argument", "aten.max_pool2d_with_indices.default",
     lambda x: F.max_pool2d(x, 2, return_indices=True), (X,)),
    ("shape", "aten.max_pool2d_with_indices.default", lambda x: F.max_pool2d(x, 2), (X[0],)),
    ("argument", "aten.upsample_nearest2d.vec", lambda x: F.interpolate(x, scale_factor=1.7), (X,)),
    ("argument", "aten.upsample_bicubic2d.vec",
     lambda x: F.interpolate(x, scale_factor=1.3, mode="bicubic"), (X,)),
    ("shape", "aten.upsample_bilinear2d.vec",
     lambda x: F.interpolate(x, size=(1, 4), mode="bilinear"), (X,)),
    ("shape", "aten.avg_pool2d.default", lambda x: F.avg_pool2d(x, 2), (X[0],)),
    ("argument", "aten.native_layer_norm.default", lambda x: F.layer_norm(x, (4,), eps=0.0), (ROWS,)),
    ("argument", "aten.native_group_norm.default", lambda x: F.group_norm(x, 3, eps=0.0), (X,)),
    ("argument", "aten.rms_norm.default", lambda x: F.rms_norm(x, (4,), eps=0.0), (ROWS,)),
    ("argument", "aten.native_layer_norm.default",
     lambda x: torch.native_layer_norm(x, [4], None, None, 1e-5), (ROWS,)),
    ("argument", "aten._native_batch_norm_legit_no_training.default",
     lambda x, y: F.batch_norm(x, y, y), (X.bfloat16(), torch.ones(3).bfloat16())),
    ("argument", "aten.index.Tensor", lambda x: x[:, IDS, :, IDS], (X,)),
    ("shape", "aten.sum.default", torch.sum, (torch.tensor(2.0),)),
    ("shape", "aten.cumsum.default", lambda x: x.cumsum(0), (torch.tensor(2.0),)),
    ("argument", "aten.var.correction", lambda x: x.var(0, correction=3), (ROWS,)),
    ("shape", "aten.convolution.default",
     lambda x: F.conv_transpose1d(x, torch.ones(4, 2, 2)), (ROWS.T[None],)),
    ("argument", "aten.scaled_dot_product_attention.default",
     lambda x: F.scaled_dot_product_attention(x, x[:, :1], x[:, :1], enable_gqa=True), (X,)),
    ("random", "aten.scaled_dot_product_attention.default",
     lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5), (X,)),
]  # fmt: skip


@pytest.mark.parametrize(("op", "function", "args"), TAKEN, ids=[row[0] for row in TAKEN])
def test_an_op_is_taken(op, function, args):
    assert verdict_on(op, function, *args).ok


@pytest.mark.parametrize(
    ("reason", "op", "function", "args"), STAYS, ids=[f"{row[0]}-{row[1]}" for row in STAYS]
)
def test_an_op_stays_with_a_reason(reason, op, function, args):
    verdict = verdict_on(op, function, *args)
    assert not verdict.ok
    assert verdict.reason == reason
    assert verdict.reason in REASONS
    assert verdict.detail


def test_integers_that_the_host_computed_may_be_too_large_to_go_on():
    # 2**20 times an id is out of range, so the host computes it, and its result is out of range, too.
    graph = planned(lambda x: (x * 2**20) > 5, IDS)
    found = find("openvino")
    options = found.make_options({})
    answers = {
        str(node.target): found.verdict(node, options) for node in graph.nodes if node.op == "call_function"
    }
    assert [answer.reason for answer in answers.values()] == ["integer_range", "integer_range"]


def test_an_index_that_was_clamped_is_taken():
    verdict = verdict_on(
        "aten.embedding.default", lambda x, i: F.embedding((i * 2).clamp(0, 2), x), ROWS, IDS
    )
    assert verdict.ok


def test_a_look_into_a_tuple_goes_where_the_tuple_is():
    nodes = {str(node.target): node for node in planned(lambda x: torch.split(x, 2, 1), ROWS).nodes}
    look = next(node for name, node in nodes.items() if "getitem" in name)
    assert verdict(look) == verdict(look.args[0])


def test_what_is_no_op_has_no_lowering():
    graph = HandMade()
    node = graph.graph.call_function(len, (graph.input(2),))
    assert verdict(node).reason == "no_lowering"


def test_a_sparse_tensor_stays():
    graph = HandMade()
    x = graph.input(2, 2, dtype=torch.float32)
    node = graph.graph.call_function(aten.relu.default, (x,))
    x.meta["val"] = node.meta["val"] = torch.ones(2, 2).to_sparse()
    annotate(graph.module(node), lambda node: False)
    assert verdict(node).reason == "argument"


def test_every_rule_is_of_an_op_that_torch_has():
    assert [name for name in RULES if find_op(name) is None] == []


def test_an_op_with_a_rule_is_never_taken_apart():
    target = find("openvino")
    assert not {str(op) for op in target.decompositions()} & RULES.keys()
    assert {str(op) for op in target.kept_composites()} <= RULES.keys()


@pytest.mark.parametrize(
    "lookup",
    [
        lambda mask, index: mask[:, index],
        lambda mask, index: torch.gather(mask, 1, index[:2]),
        lambda mask, index: torch.where(mask[:, index] & (index > 3), 1.0, float("-inf")),
    ],
    ids=["index", "gather", "masked"],
)
def test_masks_are_looked_up_in(lookup):
    """Attention masks are indexed this way, by batch and position."""
    mask, index = torch.rand(2, 9) > 0.5, torch.randint(0, 9, (4, 5))
    compiled = torchport.compile(lookup, (mask, index), target="openvino")
    assert compiled.coverage.complete
    torch.testing.assert_close(compiled(mask, index), lookup(mask, index), rtol=0, atol=0)
    torch.testing.assert_close(compiled(~mask, index), lookup(~mask, index), rtol=0, atol=0)
