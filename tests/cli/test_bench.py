"""`torchport bench`."""

import io

import pytest
from rich.console import Console

from torchport.cli.main import run
from torchport.cli.output import Output
from torchport.records import BenchRecord, read_record
from torchport.report import Report

QUICK = ("--runs", 1, "--warmup", 0)


def test_rows_are_printed_and_written(command, models, tmp_path):
    out = tmp_path / "out"
    ran = command("bench", f"{models}::load", "--target", "host", "--target", "openvino", "-o", out, *QUICK)
    assert ran.code == 0, ran.err + ran.out
    assert ran.out.count("✅") == 2
    assert ran.out.startswith("| Model")
    records = [read_record(path, BenchRecord) for path in (out / "bench").iterdir()]
    assert sorted((record.target, record.runs) for record in records) == [("host", 1), ("openvino", 1)]


def test_json_is_a_report(command, models, tmp_path):
    ran = command("bench", f"{models}::load", "--target", "host", "-o", tmp_path, *QUICK, "--json")
    assert [row.status for row in Report.from_json(ran.json).benches] == ["ok"]
    assert ran.err == ""


def test_the_worst_row_decides_the_exit_code(command, models, tmp_path):
    names = (f"{models}::load", f"{models}::load_broken")
    ran = command("bench", *names, "--target", "host", "-o", tmp_path, *QUICK)
    assert ran.code == 2
    assert (ran.out.count("✅"), ran.out.count("| ❌")) == (1, 1)
    assert "three is odd" in ran.out


def test_a_model_below_the_threshold_is_a_finding(command, models, tmp_path, monkeypatch):
    from torchport.compiler import CompiledModel

    forward = CompiledModel.forward
    monkeypatch.setattr(
        CompiledModel,
        "forward",
        lambda self, *args: {"logits": -forward(self, *args)["logits"] + 1},
    )
    line = ("bench", f"{models}::load", "--target", "host", "-o", tmp_path, *QUICK)
    assert command(*line).code == 1
    assert command(*line, "--pcc", "-1").code == 0


def test_an_unknown_model_fails_only_its_row(command, tmp_path):
    ran = command("bench", "torchvision:resnet19", "--target", "host", "-o", tmp_path)
    assert ran.code == 2
    assert "resnet18" in ran.out


def test_each_target_gets_the_options_that_it_has(command, models, tmp_path):
    line = ("bench", f"{models}::load", "--target", "host", "--target", "openvino", "-o", tmp_path, *QUICK)
    ran = command(*line, "--option", "precision=float32", "--option", "keep_ops=aten.relu", "--json")
    rows = Report.from_json(ran.json).benches
    assert [(row.status, row.ops_remain) for row in rows] == [("ok", 2), ("ok", 2)]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--option", "precison=float32"], "did you mean 'precision'"),
        (["--option", "precision"], "--option takes KEY=VALUE"),
        (["--option", "config={1"], "not valid JSON"),
        (["--option", 'config={"NO_SUCH": 1}'], "rejects the config {'NO_SUCH': 1}"),
        (["--target", "hots"], "did you mean 'host'"),
    ],
)
def test_with_a_usage_error_nothing_is_run(command, models, tmp_path, more, message):
    ran = command("bench", f"{models}::load", "--target", "openvino", "-o", tmp_path / "out", *more)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert not (tmp_path / "out").exists()


def test_a_terminal_shows_progress_on_stderr_only(models, tmp_path):
    out, err = io.StringIO(), io.StringIO()
    output = Output(Console(file=out, width=100), Console(file=err, width=100, force_terminal=True))
    line = ["bench", f"{models}::load", "--target", "host", "-o", str(tmp_path), "--runs", "1"]
    assert run(line, output) == 0
    assert "models.py::load on host" in err.getvalue()
    assert out.getvalue().startswith("| Model")


def test_no_terminal_shows_no_progress(command, models, tmp_path):
    ran = command("bench", f"{models}::load", "--target", "host", "-o", tmp_path, *QUICK)
    assert ran.err.splitlines() == [
        f"records are in {tmp_path}; show them again with `torchport report {tmp_path}`"
    ]


NET = """
import torch
from torch import nn


def load():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4)).eval(), (torch.randn(8, 6),)


def data():
    return [torch.randn(8, 6) for _ in range(4)]
"""


def test_a_quantized_model_has_its_row(command, tmp_path):
    net, out = tmp_path / "net.py", tmp_path / "out"
    net.write_text(NET)
    line = ("bench", f"{net}::load", "--target", "host", "-o", out, *QUICK)
    assert command(*line).code == 0
    ran = command(*line, "--quantize", "dynamic")
    assert ran.code == 0, ran.err + ran.out
    assert "dynamic, 2 of 2" in ran.out
    rows = [read_record(path, BenchRecord) for path in (out / "bench").iterdir()]
    assert sorted(row.quantization for row in rows) == ["", "dynamic"]  # beside the float model's row
    [row] = [row for row in rows if row.quantization]
    # One byte per weight; per output, a scale and a bias in floating point.
    assert row.size_ratio == (6 * 16 + 16 * 4 + 8 * (16 + 4)) / (4 * (6 * 16 + 16 * 4 + 16 + 4))
    assert 0.99 < row.pcc < 1.0


def test_missing_or_conflicting_quantization_options_are_refused(command, tmp_path):
    net = tmp_path / "net.py"
    net.write_text(NET)
    line = ("bench", f"{net}::load", "--target", "host", "-o", tmp_path / "out", *QUICK)
    for more, message in (
        (("--quantize", "ptq"), "requires --calibration"),
        (("--calibration", f"{net}::data"), "--calibration requires --quantize"),
        (("--quantize", "dynamic", "--generate"), "cannot be combined"),
    ):
        ran = command(*line, *more)
        assert ran.code == 2
        assert message in " ".join(ran.err.split())
    ran = command(*line, "--quantize", "ptq", "--calibration", f"{net}::data")
    assert ran.code == 0, ran.err + ran.out
    assert "ptq, 2 of 2" in ran.out
