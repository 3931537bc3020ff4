"""Layers whose indices or divisors OpenVINO does not check: files with them are refused, models still run."""

import functools

import numpy
import openvino
import pytest
import torch
from openvino import opset8, opset13

from torchport import compile as compile_model
from torchport.errors import TargetError
from torchport.targets.openvino.build import _read_payload
from torchport.targets.openvino.ir_check import check_ir

I64, I32 = numpy.int64, numpy.int32


def number(value, dtype=I64):
    return opset13.constant(numpy.array(value, dtype=dtype))


def computed(x, value, dtype=I64):
    """Return a tensor of this value that OpenVINO cannot know in advance."""
    zero = opset13.multiply(opset13.reduce_max(x, number([0, 1]), False), number(0, numpy.float32))
    return opset13.add(
        opset13.convert(zero, numpy.dtype(dtype).name.replace("int", "i")), number(value, dtype)
    )


def check(make, folder):
    """Check the IR of a function of a tensor, as when an island is loaded."""
    x = opset13.parameter([4, 8], numpy.float32, name="x")
    model = openvino.Model([opset13.result(make(x))], [x], "model")
    openvino.serialize(model, folder / "island.xml", folder / "island.bin")
    payload, properties = _read_payload(folder)
    weights = payload[: properties["weights_bytes"]]
    check_ir((folder / "island.xml").read_bytes(), weights, inputs=1, outputs=1)


def counted(x, step, dtype="i64"):
    return opset13.range(computed(x, 1), computed(x, 5), step, dtype)


ROW = numpy.ones((1, 8), dtype=numpy.float32)
ATTACKS = {
    "an index beyond a tensor": lambda x: opset8.gather_nd(x, computed(x, [[4, 0]])),
    "a constant index beyond a tensor": lambda x: opset8.gather_nd(x, number([[2**29, 0]])),
    "a place before a tensor": lambda x: opset13.scatter_elements_update(
        x, computed(x, [[-5] * 8]), opset13.constant(ROW), number(0)
    ),
    "an axis that a tensor lacks": lambda x: opset13.roll(x, number([1]), computed(x, [2**29])),
    "a computed step": lambda x: counted(x, computed(x, 0)),
    "a step that is rounded to 0": lambda x: counted(x, number(0.3, numpy.float32)),
    "a step of 0 in 32 bits": lambda x: counted(x, number(2**32)),
}
DIVISORS = {
    "-1": lambda x, dtype: number(-1, dtype),
    "0": lambda x, dtype: number(0, dtype),
    "one that is 0": lambda x, dtype: number([3, 0], dtype),
    "a computed constant": lambda x, dtype: opset13.subtract(number(1, dtype), number(2, dtype)),
    "a computed one": lambda x, dtype: computed(x, -1, dtype),
    "one that is clamped to 0": lambda x, dtype: opset13.maximum(computed(x, -1, dtype), number(0, dtype)),
    "one that is clamped to -1": lambda x, dtype: opset13.minimum(computed(x, -1, dtype), number(-1, dtype)),
    "one that is clamped to less": lambda x, dtype: opset13.minimum(computed(x, -1, dtype), number(1, dtype)),
    "a size": lambda x, dtype: opset13.subtract(
        opset13.shape_of(x, numpy.dtype(dtype).name.replace("int", "i")), number([5, 9], dtype)
    ),
}  # fmt: skip
SAFE_DIVISORS = {
    "3": lambda x, dtype: number(3, dtype),
    "-3": lambda x, dtype: number(-3, dtype),
    "one that is clamped to 1": lambda x, dtype: opset13.maximum(number(1, dtype), computed(x, -1, dtype)),
    "one that is clamped to -2": lambda x, dtype: opset13.minimum(computed(x, -1, dtype), number(-2, dtype)),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_its_kernels_do_not_check_is_refused(attack, tmp_path):
    with pytest.raises(TargetError):
        check(ATTACKS[attack], tmp_path)


@pytest.mark.parametrize("divisor", DIVISORS)
@pytest.mark.parametrize("divide", [opset13.divide, opset13.mod])
@pytest.mark.parametrize("dtype", [I64, I32])
def test_a_division_that_could_trap_is_refused(divide, divisor, dtype, tmp_path):
    lowest = number(numpy.iinfo(dtype).min, dtype)
    with pytest.raises(TargetError, match="could divide an integer by 0 or -1"):
        check(lambda x: divide(lowest, DIVISORS[divisor](x, dtype)), tmp_path)


@pytest.mark.parametrize("divisor", SAFE_DIVISORS)
@pytest.mark.parametrize("divide", [opset13.divide, opset13.mod])
def test_other_divisions_are_permitted(divide, divisor, tmp_path):
    lowest = number(numpy.iinfo(I32).min, I32)
    check(lambda x: divide(lowest, SAFE_DIVISORS[divisor](x, I32)), tmp_path)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: opset13.divide(opset13.cos(x), opset13.exp(x)),
        lambda x: opset13.divide(number(1, numpy.float32), opset13.sqrt(opset13.convert(number(4), "f32"))),
        lambda x: opset13.divide(opset13.split(x, number(0), 2).output(1), opset13.reduce_sum(x, number(0))),
        lambda x: opset13.divide(opset13.topk(x, number(1), 0, "max", "value").output(0), opset13.tan(x)),
        lambda x: counted(x, number(2)),
        lambda x: counted(x, number(0.3, numpy.float32), "f32"),
    ],
)  # fmt: skip
def test_floats_may_be_divided_by_anything(make, tmp_path):
    check(make, tmp_path)


def test_a_result_of_integers_does_not_pass_for_floats(tmp_path):
    def make(x):
        places = opset13.topk(x, number(1), 0, "max", "value").output(1)
        return opset13.divide(places, opset13.subtract(places, places))

    with pytest.raises(TargetError, match="could divide an integer"):
        check(make, tmp_path)


class Function(torch.nn.Module):
    """A function as a model."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


ROWS, IDS = torch.randn(6, 4), torch.tensor([5, -7, 90])
MODELS = {
    "a computed divisor": (lambda i, j: i.abs() // (j.abs() + 1), (IDS, IDS.flip(0))),
    "a computed divisor in 32 bits": (lambda i, j: i.abs() // (j.abs() + 1), (IDS.int(), IDS.flip(0).int())),
    "a computed divisor below 0": (lambda i, j: -i.abs() // (-2 - j.abs()), (IDS, IDS.flip(0))),
    "a number": (lambda i: i.abs() // 3, (IDS.int(),)),
    "a number below 0": (lambda i: -i.abs() // -3, (IDS,)),
    "a weight": (functools.partial(lambda w, i: i.abs() // w, torch.tensor([2, 3, 4])), (IDS,)),
    "a remainder": (lambda i: i.abs() % 3, (IDS,)),
    "a copy along a negative dimension": (
        lambda x, y: (x * 2).index_copy(-2, torch.arange(2) + 1, y), (ROWS, ROWS[:2])
    ),
    "several indices": (lambda x, i: (x * 2)[i.abs() % 3, i.abs() % 2], (ROWS, IDS)),
    "a roll": (lambda x: torch.roll(x * 2, (1, 2), (0, 1)), (ROWS,)),
    "part of a tensor": (lambda x, y: torch.slice_scatter(x * 2, y, 0, 1, 3) + 1, (ROWS, ROWS[:2])),
}  # fmt: skip


@pytest.mark.parametrize("target", ["openvino", "onnxruntime"])
@pytest.mark.parametrize("name", MODELS)
def test_models_of_such_ops_still_run_on_the_device(name, target):
    function, arguments = MODELS[name]
    expected = function(*arguments)
    if target == "onnxruntime":
        pytest.importorskip("onnxruntime")
    compiled = compile_model(Function(function), arguments, target=target, options={"cache": False})
    assert torch.equal(compiled(*arguments), expected)
    assert compiled.coverage.ops_remain == 0


LOWEST = torch.tensor([7, -8, torch.iinfo(torch.int64).min])
LIMITS = torch.tensor([3, 2, -1])


@pytest.mark.parametrize("target", ["openvino", "onnxruntime"])
@pytest.mark.parametrize("function", [torch.floor_divide, torch.remainder, lambda a, b: a // -1])
@pytest.mark.parametrize("of_weights", [False, True])
def test_the_lowest_integer_is_divided_as_torch_does(function, of_weights, target):
    if target == "onnxruntime":
        pytest.importorskip("onnxruntime")
    model = Function(lambda a, b, x: x + function(a, b))
    arguments = (LOWEST, LIMITS, torch.ones(3))
    if of_weights:
        model = Function(lambda x: x + function(LOWEST, LIMITS))
        arguments = arguments[2:]
    compiled = compile_model(model, arguments, target=target, options={"cache": False})
    assert torch.equal(compiled(*arguments), model(*arguments))
