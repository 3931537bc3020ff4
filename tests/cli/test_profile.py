"""`torchport profile`, and `torchport explain --measure`."""

import json

import pytest

from torchport.cli.profile_view import show_profile
from torchport.records import Coverage, Profile, ProfiledOp


def test_the_table_shows_the_time_of_each_op(command, models):
    ran = command(
        "profile",
        f"{models}::load",
        "--target",
        "host",
        "--peak-flops",
        "1e9",
        "--bandwidth",
        "1e9",
        width=200,
    )
    assert ran.code == 0, ran.err
    assert "1.0 GFLOP/s, 1.0 GB/s" in ran.out
    [row] = [
        line.split() for line in ran.out.splitlines() if "aten.relu.default" in line and "encoder.1" in line
    ]
    assert "host" in row
    assert row[-1] == "encoder.1"


def test_times_by_module(command, models):
    ran = command("profile", f"{models}::load", "--target", "host", "--by", "module", "--rows", "2")
    assert ran.code == 0, ran.err
    assert ran.out.count("encoder.") == 2
    assert "and 2 more rows; --json lists all" in ran.out


def test_json_is_the_record_and_the_trace_is_written(command, models, tmp_path):
    trace = tmp_path / "trace.json"
    ran = command("profile", f"{models}::load", "--target", "host", "--json", "--chrome-trace", trace)
    found = Profile.from_json(ran.json)
    assert len(json.loads(trace.read_text())["traceEvents"]) == len(found.ops) > 3


def test_explain_measures_with_the_measure_flag(command, models):
    ran = command("explain", f"{models}::load", "--target", "host", "--measure", width=200)
    assert ran.code == 0, ran.err
    assert "host supports all of it" in ran.out
    assert "of roofline" in ran.out
    data = command("explain", f"{models}::load", "--target", "host", "--measure", "--json").json
    assert Profile.from_json(data["profile"]).ops
    assert Coverage.from_json(data).complete


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--peak-flops", "1e9"], "--peak-flops and --bandwidth must be given together"),
        (["--target", "auto"], "name a target"),
        (["--by", "colour"], "is not one of"),
    ],
)
def test_invalid_options_are_refused(command, models, given, said):
    ran = command("profile", f"{models}::load", *given)
    assert ran.code == 2
    assert said in ran.err


def test_reference_kernels_cause_a_warning(command, capsys):
    from rich.console import Console

    row = ProfiledOp(
        "aten.pool.default", "pool", (), "m", "f.py:1", "openvino", 0.238, "ref_any", "f32", True, 0, 0, 0.0
    )
    show_profile(Profile("m", "openvino", 0.25, (row,), 1e9, 1e9), Console(width=300))
    shown = capsys.readouterr().out
    assert "reference kernels of openvino, which are plain loops, take 238.0 ms in aten.pool.default" in shown
    assert "keep_ops" in shown
