"""The time estimate, compared with values computed by hand."""

import pytest

from torchport.targets.ttnn import estimate
from torchport.targets.ttnn.ttnn_program import Call, Crossing, DeviceTensor, Ref, TtnnProgram, Weight


def tensor(*shape, dtype="bfloat16"):
    return DeviceTensor(shape, dtype, "tile")


def test_a_product_is_bound_by_the_slower_of_computing_and_moving():
    big = tensor(4096, 4096)
    call = Call("matmul", (Ref("x"), Ref("w")), (), ("y",), (big,))
    program = TtnnProgram(
        (Crossing("x", big, (4096, 4096), "float32"),), (Weight("w", big),), (), (call,),
        (Crossing("y", big, (4096, 4096), "float32"),),
    )  # fmt: skip
    computing = 2 * 4096**3 / (74e12 * 0.35)
    moving = 3 * 4096 * 4096 * 2 / (288e9 * 0.6)
    crossing = 2 * (20e-6 + 4096 * 4096 * 2 / 16e9)
    assert computing > moving
    assert estimate.estimate(program) == pytest.approx(6e-6 + computing + crossing)


def test_an_op_on_elements_is_bound_by_memory():
    big = tensor(4096, 4096)
    call = Call("add", (Ref("x"), Ref("x")), (), ("y",), (big,))
    program = TtnnProgram((Crossing("x", big, (4096, 4096), "float32"),), (), (), (call,), ())
    moving = 2 * 4096 * 4096 * 2 / (288e9 * 0.6)
    assert estimate.estimate(program) == pytest.approx(6e-6 + moving + 20e-6 + 4096 * 4096 * 2 / 16e9)


@pytest.mark.parametrize(
    ("call", "flops"),
    [
        (
            Call(
                "conv2d", (), (("kernel_size", (3, 3)), ("groups", 1), ("in_channels", 64)), ("y",),
                (tensor(1, 1, 64, 128),),
            ),
            2 * 64 * 128 * 9 * 64,
        ),
        (Call("linear", (Ref("x"),), (), ("y",), (tensor(10, 64),)), 2 * 32 * 64 * 96),  # of whole tiles
        (
            Call(
                "transformer.scaled_dot_product_attention", (Ref("q"), Ref("k")), (), ("y",),
                (tensor(1, 4, 64, 32),),
            ),
            4 * 4 * 64 * 32 * 128,
        ),
        (Call("relu", (Ref("x"),), (), ("y",), (tensor(10, 64),)), 0),
    ],
)  # fmt: skip
def test_operations_are_counted(call, flops):
    tensors = {"x": tensor(10, 70), "q": tensor(1, 4, 64, 32), "k": tensor(1, 4, 100, 32)}
    assert estimate.flops_of(call, tensors) == flops
