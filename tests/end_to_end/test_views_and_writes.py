"""Models that write to their inputs, and models that return views of them."""

import copy

import pytest
import torch
from torch import nn

import torchport

X = torch.tensor([[0.5, -1.0], [2.0, 0.0]])

VIEWS = {
    "view": lambda x: x.view(-1),
    "select": lambda x: x[1],
    "slice": lambda x: x[:, 1:],
    "transpose": lambda x: x.t(),
    "unsqueezed slice": lambda x: x.unsqueeze(0)[..., :1],
    "diagonal": lambda x: x.diagonal(),
    "last of a split": lambda x: x.split(1)[-1],
    "last of a chunk": lambda x: x.chunk(2, 1)[-1],
    "last of an unbind": lambda x: x.unbind()[-1],
    "expanded": lambda x: x[:1].expand(3, 1, 2)[0],
    "reshaped": lambda x: x.reshape(4),
    "detached": lambda x: x.detach(),
    "beside a result": lambda x: (x * 2, x[0])[1],
    "of another dtype": lambda x: x.view(torch.int32),
}


@pytest.mark.parametrize("function", VIEWS.values(), ids=VIEWS)
def test_writing_to_a_returned_view_writes_to_the_input(function, target):
    compiled = torchport.compile(function, (torch.ones(2, 2),), target=target)
    ours, theirs = torch.ones(2, 2), torch.ones(2, 2)
    torch.testing.assert_close(compiled(ours), function(theirs))
    compiled(ours).fill_(7)
    function(theirs).fill_(7)
    torch.testing.assert_close(ours, theirs)


def test_a_view_of_a_weight_is_one(target):
    model = nn.Linear(2, 2, bias=False)

    def transposed(x):
        return model(x), model.weight.t()

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, x):
            return transposed(x)

    _, view = torchport.compile(Model(), (torch.ones(1, 2),), target=target)(torch.ones(1, 2))
    with torch.no_grad():
        view.zero_()
    assert model.weight.count_nonzero() == 0


def test_a_view_of_another_result_is_one(bring_up):
    def model(x):
        y = x * 2
        return y, y[0]

    whole, part = bring_up(model, torch.ones(2, 2))(torch.ones(2, 2))
    part.zero_()
    assert whole.tolist() == [[0.0, 0.0], [2.0, 2.0]]


def test_two_views_of_the_same_share_memory():
    def model(x):
        y = x * 2
        return y.view(-1), y[0]

    flat, row = torchport.compile(model, (torch.ones(2, 2),), target="openvino")(torch.ones(2, 2))
    flat.zero_()
    assert row.tolist() == [0.0, 0.0]


def add_one(x):
    x.add_(1)
    return x * 2


def write_a_part(x):
    x[0] = 5
    x[:, 1].mul_(3)
    return x.sum()


def write_and_return(x):
    x.mul_(2)
    return x


def write_through_a_view(x):
    flat = x.view(-1)
    flat[2] = 9
    return flat * 1


def copy_over(x):
    x.copy_(x.t().clone())
    return x + 1


WRITES = {
    write.__name__: write
    for write in (add_one, write_a_part, write_and_return, write_through_a_view, copy_over)
}


@pytest.mark.parametrize("function", WRITES.values(), ids=WRITES)
def test_writes_to_an_input_are_seen_by_the_caller(function, bring_up):
    start = torch.arange(4.0).view(2, 2)
    compiled = bring_up(function, start.clone())
    ours, theirs = start.clone(), start.clone()
    for _ in range(2):
        torch.testing.assert_close(compiled(ours), function(theirs))
        torch.testing.assert_close(ours, theirs)


def test_an_input_that_is_written_and_returned_is_itself(bring_up):
    x = torch.ones(2)
    assert bring_up(write_and_return, torch.ones(2))(x) is x


@pytest.mark.parametrize(
    "function",
    [lambda x: x.add_(1).view(-1), lambda x: (x.mul_(2), x[0])[1]],
    ids=["view of what was written", "part of what was written"],
)
def test_a_view_of_a_written_input_is_one(function, target):
    x = torch.ones(2, 2)
    torchport.compile(function, (torch.ones(2, 2),), target=target)(x).fill_(7)
    assert (x == 7).any()


def test_writes_to_part_of_a_larger_tensor_reach_it(bring_up):
    base = torch.zeros(4, 4)
    bring_up(add_one, torch.zeros(2, 4))(base[1:3])
    assert base.sum(1).tolist() == [0.0, 4.0, 4.0, 0.0]


def test_inputs_that_share_memory(bring_up):
    def model(a, b):
        a.add_(1)
        return b * 2

    compiled = bring_up(model, torch.zeros(4), torch.zeros(2, 2))
    assert compiled(torch.zeros(4), torch.zeros(2, 2)).sum() == 0
    base = torch.zeros(4)
    assert compiled(base, base.view(2, 2)).tolist() == [[2.0, 2.0], [2.0, 2.0]]
    assert base.tolist() == [1.0] * 4


def test_the_same_tensor_given_twice(bring_up):
    def model(a, b):
        a.add_(1)
        return a + b

    compiled = bring_up(model, torch.zeros(2), torch.zeros(2))
    x = torch.zeros(2)
    assert compiled(x, x).tolist() == [2.0, 2.0]
    assert compiled(torch.zeros(2), torch.zeros(2)).tolist() == [1.0, 1.0]


class Norms(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 1)
        self.norm = nn.BatchNorm2d(3)

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x)))


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(8, 3)
        self.register_buffer("step", torch.tensor(0))
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x):
        y = x + self.table(self.step)
        self.step += 1
        self.seen = self.seen * 0.9 + x.mean(0) * 0.1
        return y + self.seen


class Swaps(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("a", torch.zeros(3))
        self.register_buffer("b", torch.ones(3))

    def forward(self, x):
        kept = self.a.clone()
        self.a.copy_(self.b)
        self.b.copy_(kept)
        return x + self.a


STATEFUL = {
    "batch norm in training": (Norms, lambda: torch.randn(2, 2, 3, 3)),
    "counter": (Counts, lambda: torch.randn(2, 3)),
    "swap": (Swaps, lambda: torch.randn(3)),
}


@pytest.mark.parametrize(("make", "inputs"), STATEFUL.values(), ids=STATEFUL)
def test_buffers_that_forward_updates(make, inputs, bring_up):
    model = make().train()
    eager = copy.deepcopy(model)
    compiled = bring_up(model, inputs())
    for _ in range(3):
        x = inputs()
        torch.testing.assert_close(compiled(x), eager(x), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(model.state_dict(), eager.state_dict(), rtol=1e-4, atol=1e-4)


def test_a_buffer_that_is_written_can_be_replaced(bring_up):
    model = Swaps()
    eager = copy.deepcopy(model)
    compiled = bring_up(model, torch.ones(3))
    for each in (model, eager):
        each.load_state_dict({"a": torch.full((3,), 4.0), "b": torch.full((3,), 5.0)}, assign=True)
    for _ in range(2):
        torch.testing.assert_close(compiled(torch.ones(3)), eager(torch.ones(3)))
        torch.testing.assert_close(model.state_dict(), eager.state_dict())


def test_a_written_buffer_that_is_returned_is_that_buffer(target):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(3))

        def forward(self, x):
            self.total.add_(x)
            return self.total

    model = Model()
    result = torchport.compile(model, (torch.ones(3),), target=target)(torch.ones(3))
    assert result.data_ptr() == model.total.data_ptr()


class Cache(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("rows", torch.zeros(4, 3))

    def forward(self, x):
        self.rows[1:2].copy_(x * 2)
        return self.rows[1:], self.rows.t()


def test_views_of_a_written_buffer_are_views(bring_up):
    model = Cache()
    compiled = bring_up(model, torch.ones(1, 3))
    tail, turned = compiled(torch.ones(1, 3))
    torch.testing.assert_close(tail, torch.tensor([[2.0] * 3, [0.0] * 3, [0.0] * 3]))
    tail[2].fill_(9)
    assert model.rows[3].tolist() == [9.0] * 3
    assert turned[:, 3].tolist() == [9.0] * 3


def test_a_view_of_a_written_part_of_a_larger_tensor(bring_up):
    def model(x):
        x.mul_(2)
        return x[1]

    base = torch.ones(6, 2)
    row = bring_up(model, torch.ones(3, 2))(base[2:5])
    row.fill_(7)
    assert base.tolist() == [[1.0, 1.0], [1.0, 1.0], [2.0, 2.0], [7.0, 7.0], [2.0, 2.0], [1.0, 1.0]]


def test_what_is_copied_to_an_input_is_not_the_input(bring_up):
    def model(x):
        y = x + 1
        x.copy_(y)
        return y.view(-1)

    x = torch.ones(2, 2)
    bring_up(model, torch.ones(2, 2))(x).fill_(7)
    assert (x == 2).all()


def test_results_that_share_memory_with_sizes_that_vary(bring_up):
    def model(x):
        y = x * 2
        return y.view(-1), y[0]

    compiled = bring_up(model, torch.ones(2, 2))
    for rows in (2, 3):
        flat, row = compiled(torch.ones(rows, 2))
        assert flat.tolist() == [2.0] * (2 * rows)
        flat.zero_()
        assert row.tolist() == [0.0, 0.0]


def test_a_view_that_comes_before_its_base_and_shows_the_same():
    def model(x):
        y = x @ x.t()
        return y.t(), y

    compiled = torchport.compile(model, (torch.ones(1, 2),), target="openvino")
    assert [view.op for view in compiled.coverage.host_views] == ["aten.transpose.int"]
    turned, whole = compiled(torch.ones(1, 2))
    turned.zero_()
    assert whole.tolist() == [[0.0]]


def test_an_input_that_cannot_be_written_is_found_before_another_one_is(bring_up):
    def model(x, y):
        x.mul_(2)
        y.sub_(x)
        return x + y

    compiled = bring_up(model, torch.ones(2, 3), torch.ones(2, 3))
    x, y = torch.ones(2, 3), torch.ones(1, 3).expand(2, 3)
    with pytest.raises(RuntimeError, match="single memory location"):
        compiled(x, y)
    assert torch.equal(x, torch.full((2, 3), 2.0))  # as eager torch leaves it


def test_an_input_that_is_written_and_shows_a_weight(target):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("scale", torch.arange(4.0))

        def forward(self, x):
            x.add_(1)
            return (self.scale * 2).sin() + x

    model, eager = Model().eval(), Model().eval()
    compiled = torchport.compile(model, (torch.zeros(4),), target=target)
    torch.testing.assert_close(compiled(model.scale[:]), eager(eager.scale[:]))
    assert torch.equal(model.scale, eager.scale)


class WithScale(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.tensor(2.5).expand(1))  # its stride is 0

    def forward(self, x):
        return (x * self.scale).tanh(), self.scale


@pytest.mark.parametrize("target", ["host", "openvino", "onnxruntime", "ttnn"])
def test_a_buffer_of_one_element_with_a_stride_of_0(target, tmp_path):
    model = WithScale()
    compiled = torchport.compile(model, (X,), target=target)
    assert compiled.coverage.complete
    torchport.save(compiled, tmp_path / "model.pt2")
    for run in (compiled, torchport.load(tmp_path / "model.pt2")):
        for found, expected in zip(run(X), model(X), strict=True):
            torch.testing.assert_close(found, expected, atol=0.01, rtol=0.01)
    graph = torchport.trace_graph(model, (X,))
    graph.generate_code(tmp_path / "net.py", tmp_path / "net.safetensors", "Net")  # compares the bytes
