"""The program record: sizes compared with values by hand, and a JSON round trip."""

import json
import math

import pytest

from torchport.errors import RecordError
from torchport.targets.ttnn import simulator  # noqa: F401  # registers the functions that programs may call
from torchport.targets.ttnn.program_check import read_program
from torchport.targets.ttnn.ttnn_program import (
    Call,
    Crossing,
    DeviceTensor,
    Make,
    Name,
    Ref,
    TtnnProgram,
    Weight,
    refs_in,
)


@pytest.mark.parametrize(
    ("shape", "dtype", "layout", "size"),
    [
        ((1, 1, 49, 512), "bfloat16", "tile", 64 * 512 * 2),  # 49 rows are two tiles high
        ((3, 5), "float32", "tile", 32 * 32 * 4),
        ((3, 5), "float32", "row_major", 3 * 5 * 4),
        ((), "bfloat16", "tile", 32 * 32 * 2),
        ((7,), "int32", "tile", 32 * 32 * 4),
        ((64, 64), "bfloat8_b", "tile", 64 * 64 + 64 * 64 // 16),  # one exponent per 16 elements
    ],
)
def test_a_tensor_takes_whole_tiles(shape, dtype, layout, size):
    assert DeviceTensor(shape, dtype, layout).bytes == size


def test_a_program_survives_json():
    tensor = DeviceTensor((2, 3), "bfloat16", "tile")
    config = Make("Conv2dConfig", (), (("weights_dtype", Name("bfloat16")),))
    prepared = Call("neg", (Ref("matrix"),), (), ("v",), (tensor,))
    call = Call(
        "conv2d", (Ref("x"), (Ref("matrix"), -math.inf), True, 1, 1.0, None), (("conv_config", config),),
        ("y",), (tensor,), ("x",), "encoder.layer.0",
    )  # fmt: skip
    program = TtnnProgram(
        (Crossing("x", tensor, (3, 2), "float32", (1, 0)),), (Weight("matrix", tensor, False),), (prepared,),
        (call,), (Crossing("y", tensor, (2, 3), "bool"),), "HiFi2", 17,
    )  # fmt: skip
    again = read_program(json.loads(json.dumps(program.to_json(), allow_nan=False)))
    assert again == program
    assert [type(item) for item in again.calls[0].args[2:5]] == [bool, int, float]
    assert refs_in(again.calls[0]) == ["x", "matrix"]


def test_another_schema_is_refused():
    with pytest.raises(RecordError, match="schema"):
        read_program({"schema": "torchport.ttnn_program/0"})
