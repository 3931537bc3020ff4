"""Data movement: what is transferred, in which form, what is freed, and how much memory that takes."""

import torch
from torch import nn

from targets.ttnn.programs import compiled_for, functions_in, program_of, random
from torchport.targets.ttnn.transfers import peak_bytes
from torchport.targets.ttnn.ttnn_program import (
    Call,
    Crossing,
    DeviceTensor,
    Ref,
    TtnnProgram,
    Weight,
    refs_in,
)


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 8, 1)
    ).eval()


def test_images_cross_once_in_the_form_of_the_convolution_and_back_once():
    model, x = network(), random(2, 3, 16, 16)
    compiled = compiled_for(model, x)
    program = program_of(compiled)
    assert functions_in(program) == ["conv2d", "max_pool2d", "conv2d", "typecast"]
    [image], [result] = program.inputs, program.outputs
    assert (image.tensor.shape, image.tensor.layout, image.order) == (
        (1, 1, 512, 3),
        "row_major",
        (0, 2, 3, 1),
    )
    assert (result.tensor.shape, result.host_shape) == ((1, 1, 128, 8), (2, 8, 8, 8))
    torch.testing.assert_close(compiled(x), model(x).detach(), rtol=0.05, atol=0.05)


def test_channels_first_and_last_meet_without_a_move():
    """A transformer on patches: the image's channels become the tokens' features."""

    class Patches(nn.Module):
        def __init__(self):
            super().__init__()
            self.cut = nn.Conv2d(3, 32, 4, 4)
            self.norm = nn.LayerNorm(32)

        def forward(self, x):
            return self.norm(self.cut(x).flatten(2).transpose(1, 2)).permute(0, 2, 1).reshape(1, 32, 4, 4)

    model, x = Patches().eval(), random(1, 3, 16, 16)
    compiled = compiled_for(model, x)
    assert "permute" not in functions_in(program_of(compiled))
    torch.testing.assert_close(compiled(x), model(x).detach(), rtol=0.05, atol=0.05)


def test_indices_cross_as_they_are_looked_up():
    table = nn.Embedding(100, 64)
    program = program_of(compiled_for(table, torch.tensor([[1, 2, 3]])))
    [indices] = program.inputs
    assert (indices.tensor.dtype, indices.tensor.layout) == ("uint32", "row_major")
    assert functions_in(program) == ["embedding", "typecast"]


def test_every_tensor_is_freed_after_its_last_use_and_none_before():
    program = program_of(compiled_for(network(), random(1, 3, 16, 16)))
    alive = {item.name for item in (*program.inputs, *program.weights)}
    alive |= {name for call in program.load for name in call.results}
    made = set(alive)
    for call in program.calls:
        assert set(refs_in(call)) <= alive
        alive |= set(call.results)
        made |= set(call.results)
        alive -= set(call.frees)
    outputs = {item.name for item in program.outputs}
    assert alive & {name for call in program.calls for name in call.results} == outputs


def test_the_most_memory_at_once_by_hand():
    small = DeviceTensor((32, 32), "bfloat16", "tile")  # 2,048 bytes
    calls = (
        Call("relu", (Ref("x"),), (), ("a",), (small,), ("x",)),  # x, a
        Call("relu", (Ref("a"),), (), ("b",), (small,)),  # a, b
        Call("add", (Ref("a"), Ref("b")), (), ("c",), (small,), ("a", "b")),  # a, b, c
    )
    crossing = Crossing("x", small, (32, 32), "float32")
    program = TtnnProgram(
        (crossing,), (Weight("w", small),), (), calls, (Crossing("c", small, (32, 32), "float32"),)
    )
    assert peak_bytes(program) == 2048 + 3 * 2048


def test_the_same_work_is_done_once():
    def twice(x, y):
        return x.transpose(0, 1) @ y + x.transpose(0, 1) @ y

    program = program_of(compiled_for(twice, random(4, 4), random(4, 4)))
    assert functions_in(program).count("matmul") == 1


def test_what_depends_on_weights_alone_is_computed_once():
    """Parameters are not folded at compile time; the device folds them when the program is loaded."""

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(random(8))

        def forward(self, x):
            return x * torch.exp(self.scale).reshape(1, 8)

    model, x = Scaled(), random(2, 8)
    compiled = compiled_for(model, x, dtype="float32")
    program = program_of(compiled)
    assert functions_in(program) == ["mul"]
    assert [call.function for call in program.load] == ["exp", "reshape"]
    torch.testing.assert_close(compiled(x), model(x).detach())


def test_single_rows_are_not_padded_to_tiles_of_their_own():
    """In tiles, [197, 1, 64] takes 32 times the memory of [197, 64]."""
    layer = nn.Linear(64, 192)

    def parts(x):
        return layer(x).reshape(197, 1, 3, 64).permute(2, 0, 1, 3)[1].reshape(197, 64) * 2

    x = random(197, 1, 64)
    compiled = compiled_for(parts, x, dtype="float32")
    program = program_of(compiled)
    assert max(call.tensors[0].bytes for call in program.calls) <= 197 * 32 * 64 * 4  # [197, 3, 64]
    torch.testing.assert_close(compiled(x), parts(x).detach(), rtol=1e-4, atol=1e-4)
