"""Decomposing in pieces gives the same as torch's decomposition of the whole program."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.export import Dim, ExportedProgram

from compiler.decompositions import as_a_whole, described, in_pieces
from torchport.capture import quiet_torch
from torchport.compiler.decompose_pieces import decompose_pieces
from torchport.compiler.in_place_writes import NotInPieces
from torchport.torch_private import tree_leaves

F = nn.functional


class _Call(nn.Module):
    """A function as a module, with a weight that it may read."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.arange(16.0).reshape(4, 4) / 8 - 1)
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("variance", torch.ones(4))

    def forward(self, *args: torch.Tensor) -> object:
        return self.function(self, *args)


def _export(function: Callable[..., object], *args: torch.Tensor, sizes: object = None) -> ExportedProgram:
    with quiet_torch(), torch.no_grad():
        return torch.export.export(_Call(function).eval(), args, dynamic_shapes=sizes)


def _layers(self: _Call, x: torch.Tensor) -> torch.Tensor:
    for _ in range(3):
        x = F.layer_norm(x, (4,), self.mean, self.variance)
        x = F.dropout(F.gelu(x @ self.weight), 0.1, training=False).reshape(-1, 2, 2).flatten(1)
    return x.to(torch.float64).contiguous()


def _folded(self: _Call, x: torch.Tensor) -> torch.Tensor:
    return torch.matmul(self.weight, x) + torch.matmul(x, self.weight)


def _several(self: _Call, x: torch.Tensor) -> list[torch.Tensor]:
    first, second = x.chunk(2, 1)
    values, places = torch.max(first, 1)
    return [*second.unbind(1), values, places, *torch.var_mean(x, 1)]


def _in_place(self: _Call, x: torch.Tensor) -> torch.Tensor:
    y = F.relu(F.batch_norm(x, self.mean, self.variance), inplace=True)
    z = (y @ self.weight).mul_(2)
    z.add_(1)
    return F.hardtanh(z, inplace=True).sigmoid_()


def _in_place_on_a_view(self: _Call, x: torch.Tensor) -> torch.Tensor:
    return (x @ self.weight).reshape(-1).mul_(2).add_(1)


def _same_twice(self: _Call, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = x + 1
    z = y.add_(x)
    return y * 2, z * 3


def _random(self: _Call, x: torch.Tensor) -> torch.Tensor:
    unused = torch.rand(3)
    if self.training and unused.sum() > 1:
        return x
    return F.dropout(F.dropout(x, 0.5, training=True) + torch.rand_like(x), 0.5, training=True)


_SAME = [_layers, _folded, _several, _in_place, _same_twice, _random]


@pytest.mark.parametrize("target", ["openvino", "ttnn"])
@pytest.mark.parametrize("function", _SAME, ids=lambda function: function.__name__)
def test_it_is_what_torch_makes_of_the_whole(function: Callable[..., object], target: str) -> None:
    program = _export(function, torch.randn(6, 4) if function is not _folded else torch.randn(2, 4, 4))
    assert described(in_pieces(program, target)) == described(as_a_whole(program, target))


@pytest.mark.parametrize(
    "function",
    # For the last one, torch's own result has more views, which are dead code.
    [_layers, _folded, _several, _in_place, _same_twice, _in_place_on_a_view],
    ids=lambda each: each.__name__,
)
def test_it_computes_the_same(function: Callable[..., object]) -> None:
    example = torch.randn(6, 4) if function is not _folded else torch.randn(2, 4, 4)
    module = in_pieces(_export(function, example)).module()
    with torch.no_grad():
        expected = _Call(function).eval()(example.clone())
        actual = module(example.clone())
    for ours, theirs in zip(tree_leaves(actual), tree_leaves(expected), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_random_numbers_come_in_the_same_order() -> None:
    example = torch.randn(6, 4)
    module = in_pieces(_export(_random, example)).module()
    torch.manual_seed(3)
    first = F.dropout(example, 0.5, training=True) + torch.rand_like(example)
    expected = F.dropout(first, 0.5, training=True)
    torch.manual_seed(3)
    torch.testing.assert_close(module(example), expected)


def test_each_kind_of_call_is_traced_once() -> None:
    calls = []

    def counted(x: torch.Tensor, *args: object, **kwargs: object) -> torch.Tensor:
        calls.append(tuple(x.shape))
        # Or torch would take calls of its compiled functions, in any thread, for part of another trace.
        assert torch.compiler.is_compiling()
        return x * torch.sigmoid(x)

    def many(self: _Call, x: torch.Tensor) -> torch.Tensor:
        for _ in range(20):
            x = F.silu(x)
        return F.silu(x[:2])

    program = _export(many, torch.randn(6, 4))
    with quiet_torch(), torch.no_grad():
        made = decompose_pieces(program, {torch.ops.aten.silu.default: counted}, ())
    assert calls == [(6, 4), (2, 4)]
    assert sum(node.target is torch.ops.aten.sigmoid.default for node in made.graph.nodes) == 21


def test_sizes_that_vary() -> None:
    def grown(self: _Call, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            x = F.gelu(x.reshape(x.shape[0] * 2, 2).reshape(-1, 4)).to(torch.float32)
        places = torch.arange(x.shape[0] + y.shape[0])
        return torch.cat([x, y]).contiguous() * places[:, None]

    first, second = Dim("first", min=2, max=50), Dim("second", min=2, max=50)
    program = _export(grown, torch.randn(6, 4), torch.randn(5, 4), sizes={"args": ({0: first}, {0: second})})
    made = in_pieces(program)
    ops = [str(node.target) for node in made.graph.nodes if node.op == "call_function"]
    whole = [str(node.target) for node in as_a_whole(program).graph.nodes if node.op == "call_function"]
    assert sorted(op for op in ops if "sym_size" not in op) == sorted(
        op for op in whole if "sym_size" not in op
    )
    for rows, more in ((6, 5), (3, 9), (40, 2)):
        x, y = torch.randn(rows, 4), torch.randn(more, 4)
        torch.testing.assert_close(made.module()(x, y), _Call(grown)(x, y))


def test_lines_and_modules_of_a_call_are_those_of_its_pieces() -> None:
    program = _export(_layers, torch.randn(6, 4))
    for node in in_pieces(program).graph.nodes:
        if node.op == "call_function":
            assert node.meta["nn_module_stack"]
            assert "test_decompose_pieces.py" in node.meta["stack_trace"]


def _writes_to_input(self: _Call, x: torch.Tensor) -> torch.Tensor:
    return x.add_(1)


def _writes_to_view_of_input(self: _Call, x: torch.Tensor) -> torch.Tensor:
    return x[:2].add_(1)


def _writes_to_buffer(self: _Call, x: torch.Tensor) -> torch.Tensor:
    self.mean.add_(1)
    return x + self.mean


def _trains_a_norm(self: _Call, x: torch.Tensor) -> torch.Tensor:
    return F.batch_norm(x, self.mean, self.variance, training=True)


def _writes_to_a_part(self: _Call, x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y[0] = 0
    return y


def _view_sees_the_write(self: _Call, x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    view = y.view(-1)
    y.add_(1)
    return view


def _parts_see_the_write(self: _Call, x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    first, _ = y.split(3)
    y.add_(1)
    return first


@pytest.mark.parametrize(
    "function",
    [
        _writes_to_input,
        _writes_to_view_of_input,
        _writes_to_buffer,
        _trains_a_norm,
        _writes_to_a_part,
        _view_sees_the_write,
        _parts_see_the_write,
    ],
    ids=lambda function: function.__name__,
)
def test_writes_that_others_see_are_left_to_torch(function: Callable[..., object]) -> None:
    with pytest.raises(NotInPieces):
        in_pieces(_export(function, torch.randn(6, 4)))


def test_sizes_that_depend_on_values_are_left_to_torch() -> None:
    with pytest.raises(NotInPieces, match="data-dependent size"):
        in_pieces(_export(lambda self, x: x[x > 0], torch.randn(6, 4)))


def test_what_autocast_casts_is_left_to_torch() -> None:
    program = _export(_layers, torch.randn(6, 4))
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(NotInPieces, match="autocast"):
        in_pieces(program)
