"""Writes to slices: one after another, at places of all kinds, in each dtype."""

import pytest
import torch
from torch.export import Dim

import torchport

X, Y = torch.linspace(-2, 2, 96).reshape(2, 4, 12), torch.linspace(1, 3, 48).reshape(2, 4, 6)


def halves(x, y):
    made = torch.empty_like(x)
    made[..., :6] = y
    made[..., 6:] = y * 2
    return made


def every_second(x, y):
    made = x.clone()
    made[..., ::2] = y
    made[..., 1::2] = y + 1
    return made


def nested(x, y):
    made = x.clone()
    made[:, -1] = 0.5
    made[0, 1, -3:] = y[0, 1, -3:]
    made[1, ..., 2:9:3] += 2
    return made


def to_the_end(x, y):
    made = torch.slice_scatter(x, y, 2, 6, 2**63 - 1)
    return torch.slice_scatter(made, y[..., :2], dim=-1, start=-12, end=-10)


def to_constants(x, y):
    return torch.zeros(2, 4, 12, dtype=x.dtype).slice_scatter(y, 2, 3, 9) + x


def selected(x, y):
    made = torch.select_scatter(x, y.repeat(1, 1, 2)[:, 0], 1, -1)
    return torch.select_scatter(made, y[:, 1, :4], -1, 3)


WRITES = [halves, every_second, nested, to_the_end, to_constants, selected]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("function", WRITES, ids=lambda function: function.__name__)
def test_all_writes_are_on_the_device_and_equal_eager(function, dtype):
    x, y = X.to(dtype), Y.to(dtype)
    compiled = torchport.compile(function, (x, y))
    assert compiled.coverage.complete
    assert torch.equal(compiled(x, y), function(x, y))


def test_integers():
    def written(x):
        made = x.clone()
        made[:, 1:3] = 7
        made[0] = -made[1]
        return made

    x = torch.arange(24).reshape(2, 4, 3) % 5
    compiled = torchport.compile(lambda x: written(x.clamp(0, 9)), (x,))
    assert compiled.coverage.complete
    assert torch.equal(compiled(x), written(x))


def test_writes_beside_an_open_size():
    def written(x):
        made = torch.slice_scatter(x * 2, x[..., :3], 2, 2, 5)
        return torch.slice_scatter(made, x[..., 1:4] + 1, 2, 0, 12, 4)

    compiled = torchport.compile(written, (X,), dynamic_shapes={"x": {1: Dim("rows", min=1, max=30)}})
    assert compiled.coverage.complete
    for rows in (1, 4, 30):
        x = torch.rand(2, rows, 12)
        assert torch.equal(compiled(x), written(x))
    assert len(compiled.programs) == 1
