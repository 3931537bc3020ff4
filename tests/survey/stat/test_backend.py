"""The torch.compile backend torchport_stat records the graphs of a running program, and changes nothing."""

import duckdb
import pytest
import torch
from torch import nn

from torchport.errors import SurveyError
from torchport.records import SurveyRow, file_name, read_record
from torchport.survey.directory import SurveyDirectory


class Net(nn.Module):
    """Two pieces, with a graph break in between."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 2)

    def forward(self, x):
        x = self.first(x).relu()
        torch._dynamo.graph_break()
        return self.second(x)


@pytest.fixture(autouse=True)
def _forget_compiled():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(module, output, name="net"):
    return torch.compile(module, backend="torchport_stat", options={"output": str(output), "model": name})


def ops_in(output):
    """Return how often each op occurs in each graph."""
    found = duckdb.sql(
        f"SELECT direction, graph, list(op ORDER BY node) FROM '{output}/raw/*.parquet' GROUP BY ALL"
    )
    return {(direction, graph): ops for direction, graph, ops in found.fetchall()}


def test_inference_gives_the_same_and_records_each_graph_once(tmp_path):
    module, x = Net(), torch.rand(3, 4)
    faster = compiled(module, tmp_path)
    with torch.no_grad():
        for _ in range(3):
            assert torch.equal(faster(x), module(x))
    linear = ["aten.t.default", "aten.addmm.default"]
    assert ops_in(tmp_path) == {("fw", 0): [*linear, "aten.relu.default"], ("fw", 1): linear}


def test_training_gives_the_same_and_records_backward_graphs_too(tmp_path):
    results = []
    for wrap in (lambda module: module, lambda module: compiled(module, tmp_path)):
        module = Net()
        run = wrap(module)
        optimizer = torch.optim.SGD(module.parameters(), 0.1)
        for step in range(3):
            loss = run(torch.full((3, 4), float(step))).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        results.append([loss.detach(), *(parameter.detach() for parameter in module.parameters())])
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))
    graphs = ops_in(tmp_path)
    assert sorted(graphs) == [("bw", 0), ("bw", 1), ("fw", 0), ("fw", 1)]
    assert "aten.threshold_backward.default" in graphs["bw", 1]  # the first piece's backward comes last
    row = read_record(tmp_path / "rows" / file_name("net"), SurveyRow)
    assert row.forward_ops == len(graphs["fw", 0]) + len(graphs["fw", 1])
    assert row.backward_ops == len(graphs["bw", 0]) + len(graphs["bw", 1])


def test_other_sizes_are_another_graph_and_the_same_one_compiled_again_is_not(tmp_path):
    module = nn.ReLU()
    with torch.no_grad():
        compiled(module, tmp_path)(torch.rand(3))
        assert sorted(ops_in(tmp_path)) == [("fw", 0)]
        torch._dynamo.reset()
        compiled(module, tmp_path)(torch.rand(3))
        assert sorted(ops_in(tmp_path)) == [("fw", 0)]
        compiled(module, tmp_path)(torch.rand(3, 2))
        assert sorted(ops_in(tmp_path)) == [("fw", 0), ("fw", 1)]


def test_models_have_files_of_their_own(tmp_path):
    with torch.no_grad():
        compiled(nn.ReLU(), tmp_path, "one")(torch.rand(3))
        compiled(nn.Tanh(), tmp_path, "two")(torch.rand(3))
    found = duckdb.sql(f"SELECT model, op FROM '{tmp_path}/raw/*.parquet' ORDER BY ALL").fetchall()
    assert found == [("one", "aten.relu.default"), ("two", "aten.tanh.default")]


def test_an_unknown_option_and_a_directory_that_a_survey_writes_to_are_refused(tmp_path):
    with pytest.raises(Exception, match="did you mean 'output'") as raised:
        torch.compile(nn.ReLU(), backend="torchport_stat", options={"ouput": "x"})(torch.rand(2))
    assert isinstance(raised.value.__cause__ or raised.value.inner_exception, SurveyError)
    with (
        SurveyDirectory(tmp_path).locked(),
        pytest.raises(Exception, match="another survey is writing there"),
    ):
        compiled(nn.ReLU(), tmp_path)(torch.rand(2))
