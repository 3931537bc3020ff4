"""The new rows of many KV caches are one output of a model, and one sum shows whether they are small."""

import math
import platform

import numpy
import pytest
import torch

import torchport
from generation.models import tiny_llama
from torchport.errors import TargetError
from torchport.records import TensorSpec
from torchport.targets.openvino import compile_model, load, request
from torchport.targets.openvino.ir_graph import is_number, port_key
from torchport.targets.openvino.joined_cache_outputs import join_rows
from torchport.targets.openvino.library import core, openvino

IS_X86 = platform.machine().lower() in ("x86_64", "amd64")
COUNT = 9
SHAPE = (1, 2, 3, 4)
# The kernel requires heads of this width, and rows are only joined from this number of layers.
SIZES = {
    "num_hidden_layers": 4, "hidden_size": 128, "intermediate_size": 96, "num_attention_heads": 4,
    "num_key_value_heads": 2,
}  # fmt: skip
GREEDY = {"max_new_tokens": 12, "do_sample": False}


def rows_model(count=COUNT, *, other_use=False):
    """Return a model that doubles logits and rows, and returns them, their sum, and the rows' sum of squares.

    Args:
        count: how many rows there are.
        other_use: whether their concatenation is a result of its own, too.
    """
    opset = openvino().opset13
    inputs = [opset.parameter(SHAPE, numpy.float32) for _ in range(count + 1)]
    logits, *rows = [opset.multiply(each, opset.constant(numpy.float32(2))) for each in inputs]
    line = opset.constant([-1])
    joined = opset.concat([opset.reshape(each, line, False) for each in (logits, *rows)], 0)
    crossing = opset.reduce_sum(joined, opset.constant([0]), False)
    total = opset.multiply(rows[0], rows[0])
    for row in rows[1:]:
        total = opset.add(total, opset.multiply(row, row))
    squares = opset.reduce_sum(total, opset.constant([0, 1, 2, 3]), False)
    inside = opset.multiply(squares, opset.constant(numpy.float32(3)))
    given = [logits, *rows, *([joined] if other_use else []), crossing, inside]
    return openvino().Model([opset.result(each) for each in given], inputs)


def joined_model(model, made, sums=2):
    results, ports = join_rows(model, made, sums)
    return openvino().Model(results, model.get_parameters()), ports


def run(model, arrays):
    compiled = core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return [value.copy() for value in compiled(arrays).values()]


def inputs_of(count=COUNT):
    generator = numpy.random.default_rng(3)
    return [generator.standard_normal(SHAPE, dtype=numpy.float32) for _ in range(count + 1)]


def squares(arrays):
    return (numpy.stack(arrays).astype(float) ** 2).sum()


def kinds(model):
    return [node.get_type_name() for node in model.get_ordered_ops()]


def test_rows_are_one_output_and_one_sum():
    model, ports = joined_model(rows_model(), range(1, COUNT + 1))
    arrays = inputs_of()
    logits, rows, crossing, inside = run(model, arrays)
    assert ports == [[0], list(range(1, COUNT + 1))]
    numpy.testing.assert_array_equal(logits, 2 * arrays[0])
    numpy.testing.assert_array_equal(rows, 2 * numpy.stack(arrays[1:]))
    numpy.testing.assert_allclose(inside, 12 * squares(arrays[1:]), 1e-5)
    numpy.testing.assert_allclose(crossing, (2 * arrays[0]).sum(), 1e-4, 1e-5)
    assert "Add" not in kinds(model)
    assert kinds(model).count("Multiply") == COUNT + 1 + 2  # the doublings, the square and the factor


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 3e19])
@pytest.mark.parametrize("place", [0, 1, COUNT])
def test_what_is_not_finite_is_seen_in_a_sum(number, place):
    model, _ = joined_model(rows_model(), range(1, COUNT + 1))
    arrays = inputs_of()
    arrays[place][0, 1, 2, 3] = number
    *_, crossing, inside = run(model, arrays)
    expected = not math.isfinite(number) or place > 0  # a row's square overflows
    assert expected == (not numpy.isfinite(crossing + inside))


def test_few_rows_and_rows_of_other_shapes_stay_by_themselves():
    model, ports = joined_model(rows_model(5), range(1, 6))
    assert ports == [[place] for place in range(6)]
    assert len(model.outputs) == 8
    arrays = inputs_of(5)
    *rows, crossing, _ = run(model, arrays)
    numpy.testing.assert_array_equal(numpy.stack(rows), 2 * numpy.stack(arrays))
    numpy.testing.assert_allclose(crossing, 2 * numpy.stack(arrays).astype(float).sum(), 1e-4, 1e-5)


def test_what_is_joined_for_something_else_stays_as_it_is():
    model, _ = joined_model(rows_model(other_use=True), range(1, COUNT + 1))
    arrays = inputs_of()
    found = run(model, arrays)
    expected = 2 * numpy.stack(arrays).reshape(-1)
    numpy.testing.assert_array_equal(found[1], expected)
    numpy.testing.assert_allclose(found[3], expected.astype(float).sum(), 1e-4, 1e-5)


def test_a_sum_of_something_else_too_stays_as_it_is():
    made = range(1, COUNT)  # the last one is not a row
    model, ports = joined_model(rows_model(), made)
    arrays = inputs_of()
    found = run(model, arrays)
    assert ports == [[0], [COUNT], list(made)]
    numpy.testing.assert_array_equal(found[1], 2 * arrays[COUNT])
    numpy.testing.assert_allclose(found[-1], 12 * squares(arrays[1:]), 1e-5)
    numpy.testing.assert_allclose(found[-2], 2 * numpy.stack(arrays).astype(float).sum(), 1e-4, 1e-5)


def test_results_that_differ_are_not_given_as_one():
    one, wide = TensorSpec((1, 2), "float32"), TensorSpec((1, 3), "float32")
    total = TensorSpec((), "float32")
    assert load._joined_specs([[2], [0, 1]], [one, one, wide, total]) == [
        wide, TensorSpec((2, 1, 2), "float32"), total
    ]  # fmt: skip
    for other in (wide, TensorSpec((1, 2), "bfloat16")):
        with pytest.raises(TargetError, match="inputs or outputs differ from the island's"):
            load._joined_specs([[0, 1]], [one, other])
    assert request._joined_shape([(1, 2), (1, 2)]) == (2, 1, 2)
    with pytest.raises(RuntimeError, match="joined into one output"):
        request._joined_shape([(1, 2), (1, 3)])


def test_numbers_and_results_are_told_apart():
    opset = openvino().opset13
    assert is_number(opset.constant([2]), 2)
    assert not is_number(opset.constant([2, 2]), 2)
    parts = opset.split(opset.constant([1, 2]), opset.constant(0), 2)
    assert port_key(parts.output(0)) != port_key(parts.output(1))


@pytest.mark.parametrize(
    ("dtype", "limit"),
    [
        pytest.param(torch.float32, 0, marks=pytest.mark.conformance),
        (torch.bfloat16, 1 << 30),
        pytest.param(torch.float32, 1 << 30, marks=pytest.mark.conformance),
        pytest.param(torch.bfloat16, 0, marks=pytest.mark.conformance),
    ],
)
def test_a_model_of_many_layers_generates_as_eager_torch_does(dtype, limit, monkeypatch):
    monkeypatch.setattr(request, "_SMALL_OUTPUT", limit)
    monkeypatch.setattr(compile_model, "computes_halves", lambda: not IS_X86)
    made, hold = [], compile_model.hold_caches

    def noting(*args, **kwargs):
        made.append(hold(*args, **kwargs))
        return made[-1]

    monkeypatch.setattr(compile_model, "hold_caches", noting)
    model = tiny_llama(**SIZES).to(dtype)
    ids = torch.randint(3, 97, (1, 5), generator=torch.Generator().manual_seed(3))
    compiled = torchport.compile(
        model, (ids,), target="openvino", max_length=64, options={"cache": False, "speed_trial": False}
    )
    settings = {**GREEDY, "return_dict_in_generate": True, "output_logits": True}
    own, eager = compiled.generate(ids, **settings), model.generate(ids, **settings)
    assert compiled.fallbacks.fallbacks == 0
    assert not IS_X86 or [len(places) for places in made[-1].ports] == [1, 8]
    if dtype is torch.float32:
        assert torch.equal(own.sequences, eager.sequences)
        torch.testing.assert_close(torch.stack(own.logits), torch.stack(eager.logits))
    filled = own.past_key_values.get_seq_length()
    for mine, theirs in zip(own.past_key_values.layers, eager.past_key_values.layers, strict=True):
        length = filled if dtype is torch.float32 else ids.shape[1]  # in bfloat16, later tokens may differ
        close = {} if dtype is torch.float32 else {"atol": 0.05, "rtol": 0.05}
        for name in ("keys", "values"):
            found, expected = getattr(mine, name), getattr(theirs, name)
            torch.testing.assert_close(found[:, :, :length], expected[:, :, :length], **close)
