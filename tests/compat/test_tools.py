"""The scripts of `tools/` translate their options, and report what is missing."""

import subprocess
import sys
from pathlib import Path

import pytest

from compat.commands import run_here
from torchport.records import BenchRecord, write_record
from torchport.zoo import list_zoo
from torchport_compat.results_table import render_results
from torchport_compat.tools import survey_options
from torchport_compat.tools.collect_metrics import collect_metrics
from torchport_compat.tools.generate_report import generate_report
from torchport_compat.tools.image_input import image
from torchport_compat.tools.run_torchvision import IMAGE, run_torchvision
from torchport_compat.tools.run_transformers import run_transformers
from torchport_compat.tools.stat_torchvision import stat_torchvision

PLACE = "<!-- results: begin -->\n<!-- results: end -->\n"


@pytest.fixture
def surveys(monkeypatch) -> list[list[str]]:
    """Records `torchport` command lines instead of running them."""
    lines: list[list[str]] = []
    monkeypatch.setattr(survey_options, "run", lambda arguments, output: lines.append(list(arguments)) or 0)
    return lines


def test_every_script_runs_and_shows_an_example(tools):
    for script in tools.glob("*.py"):
        done = subprocess.run(
            [sys.executable, script, "--help"], capture_output=True, text=True, check=True, timeout=60
        )
        assert f"tools/{script.name}" in done.stdout


def test_all_of_torchvision_is_recorded_on_one_image(surveys):
    assert run_here(stat_torchvision).code == 0
    [line] = surveys
    zoo = line[line.index("--zoo") + 1]
    assert line[0] == "survey"
    assert {"torchvision:resnet18", "torchvision:alexnet"} <= set(list_zoo(zoo))
    assert line[line.index("--inputs") + 1] == IMAGE
    assert Path(IMAGE.partition("::")[0]).is_file()
    assert image().shape == (1, 3, 224, 224)
    assert line[-4:] == ["--backend", "stat", "-o", "stat"]


def test_backends_become_torchports(surveys):
    run_here(run_torchvision, "--backend torch_stat --backward --profile --model resnet18")
    run_here(run_torchvision, "--model resnet18 -o out")
    run_here(run_transformers, "--model a/b --backend torch_stat")
    run_here(run_transformers, "--model a/b --backend torch_ttnn --no-weights")
    recorded, run, stat, ttnn = surveys
    assert recorded[1] == "torchvision:resnet18"
    assert recorded[-6:] == ["--backend", "stat", "--backward", "--profile", "-o", "stat"]
    assert run[-4:] == ["--backend", "ttnn", "-o", "out"]
    assert stat == ["survey", "--model", "a/b", "--backend", "stat", "-o", "stat"]
    assert ttnn == ["survey", "--model", "a/b", "--no-weights", "--backend", "ttnn", "-o", "metrics"]


def test_the_ttnn_backend_records_no_graphs():
    done = run_here(run_torchvision, "--backend torch_ttnn --backward --model resnet18")
    assert done.code == 2
    assert "only runs inference, and records no graphs" in done.err


def test_a_report_without_records_is_refused():
    done = run_here(generate_report)
    assert done.code == 2
    assert "stat" in done.err


def record(model: str, **fields: object) -> BenchRecord:
    return BenchRecord(model, "ttnn", **fields)


def test_results_have_the_columns_of_torch_ttnn():
    rows = [
        record("A", status="ok", ops_before=7, ops_remain=2, transfers=4, original_time=1.5,
               compiled_time=0.25, pcc=0.99992),
        record("B|C", status="failed", error="no"),
        record("D", status="inaccurate", compiled_time=0.5, pcc=0.5, simulated=True),
    ]  # fmt: skip
    header, rule, *lines = [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in render_results(rows).splitlines()
    ]
    assert len(header) == len(rule) == 8
    assert lines[0] == ["A", "Yes", "7", "2", "4", "1.5", "0.25", "0.999920"]
    assert lines[1] == ["B\\|C", "No", *["N/A"] * 6]
    assert lines[2] == ["D", "Yes", "N/A", "N/A", "N/A", "N/A", "0.5 (estimate)", "0.500000"]


def test_the_readme_itself_is_filled_without_a_template():
    write_record(record("A", status="ok"), Path("metrics/bench/a.json"))
    Path("README.md").write_text(f"Head\n{PLACE}Tail\n")
    assert run_here(collect_metrics).code == 0
    first = Path("README.md").read_text()
    assert first.startswith("Head\n<!-- results: begin -->\n| Model ")
    assert first.endswith("<!-- results: end -->\nTail\n")
    assert run_here(collect_metrics).code == 0
    assert Path("README.md").read_text() == first


def test_a_model_that_failed_is_a_finding():
    write_record(record("A", status="failed", error="no"), Path("metrics/bench/a.json"))
    Path("README.md").write_text(PLACE)
    assert run_here(collect_metrics).code == 1


@pytest.mark.parametrize(
    ("readme", "message"), [(None, "cannot be read"), ("# No place\n", "has no place for results")]
)
def test_a_readme_without_a_results_marker_is_not_changed(readme, message):
    write_record(record("A", status="ok"), Path("metrics/bench/a.json"))
    if readme is not None:
        Path("README.md").write_text(readme)
    done = run_here(collect_metrics)
    assert done.code == 2
    assert message in done.err
    assert (Path("README.md").read_text() if Path("README.md").exists() else None) == readme


def test_without_records_there_are_no_results():
    Path("metrics").mkdir()
    Path("README.md").write_text(PLACE)
    assert run_here(collect_metrics).code == 2
