"""`--html`: the HTML report of a command."""

import pytest

from report.pages import blocks_of
from torchport.records import SurveyRow, write_record


def data_of(path):
    return blocks_of(path.read_text(encoding="utf-8"))


def test_explain(command, models, tmp_path):
    page = tmp_path / "page.html"
    ran = command("explain", f"{models}::load", "--target", "host", "--html", page)
    assert ran.code == 0
    assert f"wrote {page}" in ran.err
    data, *blocks = data_of(page)
    assert [(graph["view"], graph["target"]) for graph in data["graphs"]] == [
        ("written", ""),
        ("aten", "host"),
    ]
    assert data["coverages"][0]["ops"][0] == data["coverages"][0]["ops"][1] == len(blocks[1]["names"])


def test_explain_with_the_time_of_each_op(command, models, tmp_path):
    page = tmp_path / "page.html"
    ran = command("explain", f"{models}::load", "--target", "openvino", "--measure", "--html", page)
    assert ran.code == 0, ran.err
    _, _, graph, *_ = data_of(page)
    times = graph["measures"]["Milliseconds"]
    assert len(times) == len(graph["names"])
    assert max(times) > 0


def test_analyze(command, models, tmp_path):
    page = tmp_path / "page.html"
    ran = command("analyze", f"{models}::load", "--dir", tmp_path / "net", "--html", page)
    assert ran.code == 0
    data, graph, analysis = data_of(page)
    assert data["analyses"] == [{"block": 2, "model": f"{models}::load"}]
    assert graph["names"] == ["linear", "relu", "linear", "relu"]
    assert analysis["parameters"] == 2 * (4 * 4 + 4)
    assert command("report", tmp_path / "net", "--html", page).code == 0
    assert data_of(page)[0]["graphs"][0]["model"] == f"{models}:load"


def test_bench_adds_analyses_except_for_a_model_that_fails(command, models, tmp_path):
    page, out = tmp_path / "page.html", tmp_path / "out"
    names = [f"{models}::load", f"{models}::load_broken"]
    ran = command("bench", *names, "--target", "host", "--runs", 1, "--warmup", 0, "-o", out, "--html", page)
    assert ran.code == 2
    data = data_of(page)[0]
    assert sorted(row["status"] for row in data["rows"]) == ["failed", "ok"]
    assert [each["model"] for each in data["analyses"]] == [f"{models}:load"]
    assert [graph["view"] for graph in data["graphs"]] == ["written", "aten"]
    assert [each["histograms"][0]["zero"] for each in data["accuracies"]] == [8]  # eager torch is the target
    assert {path.name for path in out.iterdir()} == {"bench", "coverage", "graph", "accuracy", "analysis"}


def test_a_baseline_requires_an_html_file(command, tmp_path):
    ran = command("report", tmp_path, "--baseline", tmp_path)
    assert ran.code == 2
    assert "--baseline requires an HTML file" in ran.err


def test_a_graph_with_a_dangling_reference_is_a_problem_of_its_own(command, models, tmp_path):
    page, out = tmp_path / "page.html", tmp_path / "out"
    command("bench", f"{models}::load", "--target", "host", "--runs", 1, "-o", out)
    [path] = (out / "graph").iterdir()
    path.write_text(path.read_text().replace('"kind": 0', '"kind": 99'))
    ran = command("report", out, "-o", page)
    assert ran.code == 1
    assert "there is no entry 99" in ran.err
    assert data_of(page)[0]["graphs"] == []


@pytest.mark.parametrize("option", ["-o", "--html"])
def test_both_names_of_the_option(command, tmp_path, option):
    write_record(SurveyRow("m", "ok"), tmp_path / "other" / "x.json")  # not a record that reports read
    ran = command("report", tmp_path, option, tmp_path / "page.html")
    assert ran.code == 2
    assert "holds no bench records" in ran.err


def test_quantize(command, tmp_path):
    model = tmp_path / "net.py"
    model.write_text(
        "import torch\n"
        "def load():\n"
        "    torch.manual_seed(0)\n"
        "    return torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))\n"
        "def inputs():\n"
        "    return torch.ones(2, 16)\n"
    )
    page = tmp_path / "page.html"
    ran = command(
        "quantize",
        f"{model}::load",
        "--inputs",
        f"{model}::inputs",
        "--method",
        "weight_only",
        "--html",
        page,
    )
    assert ran.code == 0, ran.err
    [found] = data_of(page)[0]["quantizations"]
    assert {layer["name"] for layer in found["layers"]} == {"0", "2"}
    assert found["bytes"] < found["bytes_float"]
