"""Memory placement: as many tensors in L1 as the budget allows, and never more."""

import torch
from torch import nn

from targets.ttnn.programs import assert_accepted, compiled_for, program_of, random, store
from torchport.targets.ttnn import l1_placement
from torchport.targets.ttnn.l1_placement import DRAM, L1, place_tensors
from torchport.targets.ttnn.ttnn_program import Call, DeviceTensor, Ref

HALF = DeviceTensor((1024, 2048), "bfloat16", "tile")  # 4 MiB, half of the budget


def places(calls):
    return [dict(call.kwargs).get("memory_config") for call in place_tensors(calls)]


def relu(source, result, frees=()):
    return Call("relu", (Ref(source),), (), (result,), (HALF,), frees)


def test_what_does_not_fit_goes_to_dram_and_what_is_freed_makes_room():
    assert 2 * HALF.bytes == l1_placement.L1_BUDGET
    kept = [relu("x", "a"), relu("a", "b"), relu("b", "c")]
    assert places(kept) == [L1, L1, DRAM]
    freed = [relu("x", "a"), relu("a", "b", ("a",)), relu("b", "c", ("b",))]
    assert places(freed) == [L1, L1, L1]


def test_what_a_convolution_reads_lies_where_its_weights_are_prepared_for():
    def layer(source, result, function):
        return Call(function, (Ref(source),), (), (result,), (HALF,), (source,))

    followed = [layer("x", "a", "relu"), layer("a", "b", "cumsum"), layer("b", "c", "conv2d")]
    assert places(followed) == [DRAM, None, None]
    assert places([layer("x", "a", "relu"), layer("a", "b", "relu"), layer("b", "c", "conv2d")])[:2] == [
        L1,
        DRAM,
    ]
    assert places([layer("x", "a", "conv2d"), layer("a", "b", "relu")])[1] == L1


def test_kernels_that_cannot_be_told_are_left_alone():
    assert places([Call("cumsum", (Ref("x"), 0), (), ("y",), (HALF,))]) == [None]


def test_the_result_is_the_same_and_the_estimate_shorter():
    model = nn.Sequential(nn.Linear(512, 512), nn.GELU(), nn.LayerNorm(512)).eval()
    x = random(512, 512)
    far, near = compiled_for(model, x), compiled_for(model, x, memory="l1")
    assert torch.equal(far(x), near(x))
    assert near.simulated_seconds < far.simulated_seconds
    assert L1 in [dict(call.kwargs).get("memory_config") for call in program_of(near).calls]


def test_the_real_library_takes_it(tmp_path):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Conv2d(3, 32, 3, padding=1)
            self.layers = nn.TransformerEncoderLayer(32, 1, 64, batch_first=True)

        def forward(self, x):
            return self.layers((self.stem(x).sigmoid() * 2).flatten(2).transpose(1, 2))[:, 1:]

    compiled = compiled_for(Block().eval(), random(1, 3, 8, 8), memory="l1")
    assert compiled.coverage.ops_remain == 0
    assert_accepted([store(compiled, tmp_path / "near")])
