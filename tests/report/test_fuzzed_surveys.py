"""Mutated files of a survey lead to a message or a report: no crash, no hang, nothing written elsewhere."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .records_at_hand import bench, coverage, failed, stayed, write
from .survey.surveys_at_hand import convolution, relu, write_model, write_row

ROOT = Path(__file__).parents[2]


@pytest.fixture
def stat(tmp_path):
    directory = tmp_path / "inside" / "stat"
    write_model(directory, "a", convolution(), relu(), relu(direction="bw"))
    write_model(directory, "b", *[convolution(shape=f"{n}x3x8x8", flops=n) for n in range(1, 40)])
    write_row(directory, "c", None, status="raised", error="no")
    write(directory, bench(), failed(), coverage("torchvision:resnet18", stayed()))
    return directory


def fuzz(directory, kind, count):
    outside = directory.parent.parent
    before = sorted(path for path in outside.rglob("*") if directory not in path.parents)
    environment = os.environ | {"TMPDIR": str(outside), "PYTHONPATH": str(ROOT / "src")}
    ran = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "fuzz.py"), str(directory), kind, "0", str(count)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    last = ran.stdout.splitlines()[-1] if ran.stdout else ""
    assert ran.returncode == 0, f"after {last}: {ran.stderr[-2000:]}"
    assert last.startswith("done"), last
    assert sorted(path for path in outside.rglob("*") if directory not in path.parents) == before


@pytest.mark.parametrize("kind", ["parquet", "json", pytest.param("value", marks=pytest.mark.conformance)])
def test_some_mutated_files(stat, kind):
    fuzz(stat, kind, 8)


@pytest.mark.conformance
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["parquet", "json", "value"])
def test_a_thousand_mutated_files(stat, kind):
    fuzz(stat, kind, 1000)
