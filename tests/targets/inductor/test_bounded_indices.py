"""Out-of-bounds indices: eager torch raises its error, and nothing ends the process."""

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from runtime.fresh_process import run_fresh
from torchport.errors import TargetError
from torchport.targets.inductor.bounded_indices import bound_indices, indices_fit

ROWS = torch.arange(20.0).view(10, 2)


def graph_of(function, **weights: torch.Tensor) -> fx.GraphModule:
    """Return a graph; the function's parameters named in `weights` are weights, the others inputs."""
    graph, code = fx.Graph(), function.__code__
    names = code.co_varnames[: code.co_argcount]
    nodes = [graph.get_attr(name) if name in weights else graph.placeholder(name) for name in names]
    graph.output((graph.call_function(*function(*nodes)),))
    return fx.GraphModule(weights, graph)


@pytest.mark.parametrize(
    ("function", "good", "bad"),
    [
        (lambda x, i: (torch.ops.aten.embedding.default, (x, i)), [0, 9], [[10], [-1], [2**40]]),
        (lambda x, i: (torch.ops.aten.index_select.default, (x, 0, i)), [0, 9], [[10], [-1]]),
        (lambda x, i: (torch.ops.aten.index.Tensor, (x, [i])), [-10, 9], [[10], [-11]]),
        (lambda x, i: (torch.ops.aten.index.Tensor, (x, [i, i])), [-2, 1], [[2], [-3]]),
        (lambda x, i: (torch.ops.aten.take.default, (x, i)), [-20, 19], [[20], [-21], [2**40]]),
    ],
)
def test_a_graph_says_whether_all_indices_are_inside(function, good, bad):
    graph_module = graph_of(function)
    example = torch.zeros(len(good), dtype=torch.int64)
    op, args = function(ROWS, torch.tensor(good))
    assert bound_indices(graph_module, [ROWS, example])
    result, inside = graph_module(ROWS, torch.tensor(good))
    assert inside
    assert torch.equal(result, op(*args))
    for values in bad:
        assert not graph_module(ROWS, torch.tensor([values[0], 0]))[-1]


def test_an_ignored_class_is_inside():
    def loss(scores, classes):
        return torch.ops.aten.nll_loss_forward.default(scores, classes, None, 0, -7)[0] * 2

    classes = torch.tensor([-7, 1, 0, 1, 0, -7, 1, 0, 1, 0])
    graph_module = make_fx(loss, decomposition_table={})(ROWS, classes)
    graph_module.graph.output_node().args = ((graph_module.graph.output_node().args[0],),)
    assert bound_indices(graph_module, [ROWS, classes])
    result, inside = graph_module(ROWS, classes)
    assert inside
    assert torch.equal(result, loss(ROWS, classes))
    for bad in (-1, 2, -(2**40)):
        classes[3] = bad
        assert not graph_module(ROWS, classes)[-1]


def test_constants_are_looked_at_once():
    def look(x, i):
        return torch.ops.aten.index_select.default, (x, 0, i)

    inside = graph_of(look, i=torch.tensor([3]))
    assert not bound_indices(inside, [ROWS])
    assert torch.equal(inside(ROWS)[0], ROWS[3:4])
    with pytest.raises(TargetError, match=r"an index of aten.index_select.default is outside 0 … 9"):
        bound_indices(graph_of(look, i=torch.tensor([10])), [ROWS])


def test_whether_indices_fit_is_found_without_running_the_graph():
    def graph_for(rows):
        table = torch.randn(rows, 3)

        def positions(ids):
            present = ids.ne(1).int()
            return (table[(present.cumsum(1) * present + 1).long()],)

        return make_fx(positions)(padded)

    padded = torch.tensor([[5, 7, 1, 1]])
    for rows, zeros_fit in ((6, True), (5, False)):  # four tokens and the row of padding, and one more
        graph_module = graph_for(rows)
        assert indices_fit(graph_module, [padded])
        assert indices_fit(graph_module, [torch.zeros_like(padded)]) == zeros_fit
    assert indices_fit(make_fx(lambda x: (x * 2,))(ROWS), [ROWS])


@pytest.mark.usefixtures("forked_python")
def test_no_index_ends_the_process():
    code = """
import torch, torchport
torch.set_num_threads(2)
x, i = torch.randn(10, 8), torch.zeros(4000, 8, dtype=torch.int64)
options = {"child_trial": False}  # this process is the subject
function = lambda x, i: torch.gather(x, 0, i) * 2
compiled = torchport.compile(function, (x, i), target="inductor", options=options)
i[3999, 7] = 9
assert torch.equal(compiled(x, i), torch.gather(x, 0, i) * 2)
i[3999, 7] = 10
try:
    compiled(x, i)
except RuntimeError as error:
    print(compiled.coverage.ops_remain, "index 10 is out of bounds" in str(error))
"""
    assert run_fresh(code) == "0 True"


@pytest.mark.conformance
@pytest.mark.usefixtures("forked_python")
def test_no_class_and_no_position_ends_the_process(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    code = """
import torch, torchport
from torch.nn import functional as F
torch.set_num_threads(2)
def function(x, i, j):
    values, places = F.max_pool2d(x[None, :, :8], 3, 1, 1, return_indices=True)
    summed = x[0].scatter_reduce(0, j, x[0], "sum")
    return F.cross_entropy(x[0], i, reduction="none"), summed, values.exp(), places * 2
x, i = torch.randn(1, 4000, 8), torch.zeros(4000, dtype=torch.int64)
j = torch.zeros(4000, 8, dtype=torch.int64)
options = {"child_trial": False}  # this process is the subject
compiled = torchport.compile(function, (x, i, j), target="inductor", options=options)
def agree():
    pairs = zip(compiled(x, i, j), function(x, i, j), strict=True)
    return all(torch.allclose(ours, theirs, rtol=1e-3, atol=1e-3) for ours, theirs in pairs)
i[0] = -100
assert agree()
x[0, :2, :3] = float("-inf")  # a window of the pool has nothing but padding and these
x[0, 0, 3] = 1
print(compiled.coverage.ops_remain, agree(), compiled.coverage.stayed)
for wrong in (i, j.view(-1)):
    wrong[3999] += 2**40
    try:
        compiled(x, i, j)
    except (IndexError, RuntimeError) as error:
        print("out of" in str(error))
    wrong[3999] = 0
"""
    assert run_fresh(code) == "0 True ()\nTrue\nTrue"
