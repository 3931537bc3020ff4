"""`torchport survey`: rows as a table or as lines of JSON, and the exit code."""

import json

import pytest

from torchport.records import SurveyRow


@pytest.fixture
def models(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(
        "import torch\n"
        "def works():\n    return torch.nn.Linear(2, 3), (torch.ones(1, 2),)\n"
        "def raises():\n    raise ValueError('three is odd')\n"
    )
    return tmp_path


@pytest.mark.usefixtures("forked_python")
def test_json_lines_for_each_row_and_a_summary(command, models):
    ran = command(
        "survey", "net.py::works", "net.py::raises", "--backward", "--workers", "1", "-o", "stat", "--json"
    )
    assert ran.code == 1
    *rows, summary = [json.loads(line) for line in ran.out.splitlines()]
    found = {row["model"]: SurveyRow.from_json(row) for row in rows}
    assert found["net.py::works"].status == "ok"
    assert found["net.py::works"].forward_ops == 2
    assert "three is odd" in found["net.py::raises"].error
    assert (summary["models"], summary["ok"], summary["failed"]) == (2, 1, 1)
    assert summary["forward_ops"] == 2
    # Run again: nothing is left to do, and the table shows all rows.
    ran = command("survey", "net.py::works", "--backward", "-o", "stat")
    assert ran.code == 0
    assert ran.out.splitlines()[1].split()[:3] == ["net.py::works", "ok", "2"]
    assert "1 of 1 model recorded" in ran.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name a MODEL or a --zoo"),
        (["--zoo", "torchvison"], "did you mean 'torchvision'"),
        (["--zoo", "torchvision:clasification"], "did you mean 'torchvision:classification'"),
        (["--zoo", "torchvision", "--filter", "resnetto*"], "no model of torchvision matches"),
        (["net.py::works", "--filter", "a*"], "--filter requires --zoo"),
        (["net.py::works", "--engine", "rya"], "did you mean 'ray'"),
        (["net.py::works", "--address", "auto"], "the local engine has no address"),
        (["net.py::works", "--backend", "opnvino"], "did you mean 'openvino'"),
        (["net.py::works", "--memory", "0"], "0 is not in the range"),
    ],
)
def test_an_error_is_one_line_and_writes_nothing(command, models, arguments, message):
    ran = command("survey", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert not (models / "stat").exists()
