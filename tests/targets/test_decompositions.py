"""torch's decompositions, and ops by name."""

import pytest
import torch
from torch import nn
from torch.export import Dim

import torchport
from torchport.targets.decompositions import core_decompositions, find_op, is_composite


def test_random_ops_stay_whole():
    assert all(torch.Tag.nondeterministic_seeded not in op.tags for op in core_decompositions())
    assert torch.ops.aten.bernoulli.default not in core_decompositions()


def test_an_op_is_found_by_its_name():
    assert find_op("aten.linear.default") is torch.ops.aten.linear.default
    assert find_op("aten.no_such_op.default") is None
    assert find_op("aten.linear.no_such_overload") is None


def test_composites_are_told_from_the_rest():
    assert is_composite(torch.ops.aten.linear.default)
    assert not is_composite(torch.ops.aten.relu.default)


@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_the_gradient_of_smooth_l1_loss_is_torch_s_own_for_all_numbers(reduction):
    op = torch.ops.aten.smooth_l1_loss_backward.default
    given = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.5, -0.5, 0.1, -0.1, 0.3, -0.3, 0.0])
    gradient = torch.full((10,), 2.0) if reduction == 0 else torch.tensor(2.0)
    arguments = gradient, given, torch.zeros(10), reduction, 0.3
    torch.testing.assert_close(core_decompositions()[op](*arguments), op(*arguments), equal_nan=True)


@pytest.mark.parametrize(
    "settings",
    [{}, {"dtype": torch.int32}, {"dtype": torch.float16, "memory_format": torch.contiguous_format}],
)
def test_memory_that_nothing_fills_is_zeros(settings):
    op = torch.ops.aten.empty.memory_format
    filled, expected = core_decompositions()[op]([2, 3], **settings), op([2, 3], **settings)
    assert filled.dtype == expected.dtype
    assert torch.equal(filled, torch.zeros_like(expected))


@pytest.mark.parametrize("order", [[0, 2, 3, 1], [3, 1, 0, 2]])
def test_zeros_for_memory_lie_in_it_as_the_memory_would(order):
    op = torch.ops.aten.empty_permuted.default
    filled, expected = core_decompositions()[op]([2, 3, 4, 5], order), op([2, 3, 4, 5], order)
    assert (filled.shape, filled.stride()) == (expected.shape, expected.stride())
    assert torch.equal(filled, torch.zeros(2, 3, 4, 5))


def test_memory_that_an_op_fills_stays_on_the_device():
    class Around(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.convolution = torch.nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular")

        def forward(self, images):
            return self.convolution(images) + torch.empty_like(images[:, :1]).fill_(2.0)

    images = torch.randn(2, 3, 5, 5).to(memory_format=torch.channels_last)
    model = Around().eval()
    compiled = torchport.compile(model, (images,), target="openvino", options={"speed_trial": False})
    torch.testing.assert_close(compiled(images), model(images))
    assert compiled.coverage.stayed == ()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_sums_at_indices_are_as_exact_as_torch_s_in_half_precision(dtype):
    class Model(nn.Module):
        def forward(self, x, index, added):
            return x.index_add(0, index, added, alpha=2)

    x, index, added = (
        torch.zeros(4, 8, dtype=dtype),
        torch.randint(0, 4, (400,)),
        torch.rand(400, 8).to(dtype),
    )
    exact = x.double().index_add(0, index, added.double(), alpha=2)
    eager = (Model()(x, index, added).double() - exact).abs().max()
    compiled = torchport.compile(Model(), (x, index, added), target="host")
    assert (compiled(x, index, added).double() - exact).abs().max() <= 2 * eager


@pytest.mark.parametrize("target", ["openvino", "host", "ttnn"])
def test_what_is_written_to_a_part_is_on_the_device(target):
    """In a graph without writes, this is a `copy`: the source in the part's shape and dtype."""

    def written(x):
        made = x * 2
        made[:, 1:3] = x[:, :1]
        made[0] = 7
        return made

    x = torch.arange(12.0).reshape(3, 4)
    compiled = torchport.compile(written, (x,), target=target)
    assert compiled.coverage.complete
    assert torch.equal(compiled(x), written(x))


IN_ORDERS = {
    "channels last": lambda: torch.rand(1, 3, 4, 5).to(memory_format=torch.channels_last),
    "transposed": lambda: torch.rand(1, 3, 5, 4).transpose(2, 3),
    "plain": lambda: torch.rand(1, 3, 4, 5),
    "without dimensions": lambda: torch.tensor(1.0),
}


@pytest.mark.parametrize("target", ["openvino", "host"])
@pytest.mark.parametrize("make", IN_ORDERS.values(), ids=IN_ORDERS)
def test_a_copy_has_the_memory_order_of_what_is_written_to(make, target):
    def copied(x, y):
        made = torch.empty_like(x)
        made.copy_(y)
        return made, torch.ops.aten.copy(x, y.int()) + 1

    x = make()
    y = torch.rand(x.shape) * 9
    compiled = torchport.compile(copied, (x, y), target=target)
    for found, expected in zip(compiled(x, y), copied(x, y), strict=True):
        assert torch.equal(found, expected)
        assert found.stride() == expected.stride()


def test_a_copy_to_a_tensor_of_open_strides_is_right():
    def copied(x, y):
        made = torch.empty_like(x)
        made.copy_(y)
        return made + 1

    x, y = (torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last) for _ in range(2))
    batch = Dim("batch", min=1, max=8)
    compiled = torchport.compile(copied, (x, y), dynamic_shapes=({0: batch}, {0: batch}))
    for count in (1, 2, 8):
        x, y = (torch.rand(count, 3, 4, 5).to(memory_format=torch.channels_last) for _ in range(2))
        found, expected = compiled(x, y), copied(x, y)
        assert torch.equal(found, expected)
        assert found.stride() == expected.stride()
