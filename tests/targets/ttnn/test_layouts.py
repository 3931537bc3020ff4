"""Layouts across a whole program: compared with results by hand, and with every other assignment."""

import itertools

import torch
from torch.nn import functional

from targets.ttnn.programs import assert_accepted, compiled_for, functions_in, program_of, random, store
from torchport.targets.ttnn.layouts import assign_layouts
from torchport.targets.ttnn.ttnn_program import Call, DeviceTensor, Name, Ref

TENSOR = DeviceTensor((64, 64), "bfloat16", "tile")
ROWS = DeviceTensor((64, 64), "bfloat16", "row_major")


def twice_padded(x):
    """Pad in front twice, which needs row-major input; the ops in between accept both layouts."""
    return functional.pad(functional.pad(x * 2, (1, 0))[:, 2:].transpose(0, 1), (3, 0)) * 2


def test_what_stands_between_two_kernels_on_rows_stays_in_rows():
    x = random(40, 50)
    compiled = compiled_for(twice_padded, x, dtype="float32")
    functions = functions_in(program_of(compiled))
    assert functions == ["mul", "to_layout", "pad", "slice", "permute", "pad", "to_layout", "mul"]
    torch.testing.assert_close(compiled(x), twice_padded(x))


def test_the_real_library_takes_it(tmp_path):
    assert_accepted([store(compiled_for(twice_padded, random(40, 50)), tmp_path / "padded")])


def converted(calls):
    return sum(call.tensors[0].bytes for call in calls if call.function == "to_layout")


def call(function, sources, result, tensor=TENSOR):
    return Call(function, tuple(Ref(name) for name in sources), (), (result,), (tensor,))


def to(source, result, layout):
    names = {"tile": "TILE_LAYOUT", "row_major": "ROW_MAJOR_LAYOUT"}
    tensor = ROWS if layout == "row_major" else TENSOR
    return Call("to_layout", (Ref(source), Name(names[layout])), (), (result,), (tensor,))


def test_no_assignment_is_cheaper():
    """A small graph of four free calls: the result is compared with all sixteen assignments."""
    calls = [
        call("permute", ["x"], "a"),
        to("a", "a_rows", "row_major"),
        call("upsample", ["a_rows"], "b", ROWS),
        to("b", "b_tiles", "tile"),
        call("permute", ["b_tiles"], "c"),
        call("slice", ["c"], "d"),
        to("d", "d_rows", "row_major"),
        call("upsample", ["d_rows"], "e", ROWS),
        to("e", "e_tiles", "tile"),
        call("permute", ["e_tiles"], "f"),
        call("relu", ["f"], "y"),
    ]
    found = assign_layouts(calls, {"x": TENSOR}, {"y"})
    edges = [("x", "a"), ("a", "R"), ("R", "c"), ("c", "d"), ("d", "R"), ("R", "f"), ("f", "T")]
    cheapest = min(
        sum(
            TENSOR.bytes
            for one, other in edges
            if {**sides, "x": "T", "R": "R", "T": "T"}[one] != {**sides, "x": "T", "R": "R", "T": "T"}[other]
        )
        for sides in (dict(zip("acdf", choice, strict=True)) for choice in itertools.product("TR", repeat=4))
    )
    assert converted(found) == cheapest == 2 * TENSOR.bytes
    assert converted(calls) == 4 * TENSOR.bytes


def test_without_kernels_on_rows_nothing_changes():
    calls = [call("permute", ["x"], "a"), call("relu", ["a"], "y")]
    assert assign_layouts(calls, {"x": TENSOR}, {"y"}) is calls
