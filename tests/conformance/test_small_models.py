"""Small torch.nn models equal eager torch on the other engines; also tests the sweep that runs on GPUs."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest
import torch

from conformance.engine_sweep import Sweep, Work, check_model
from conformance.small_models import MODELS


@pytest.mark.parametrize("name", ["shuffle"])
def test_a_model_equals_eager(name: str) -> None:
    assert check_model(name, "host", "cpu", torch.float32) == []


class Fragile:
    """A worker that crashes on one op."""

    def do(self, work: Work, seconds: float) -> list[str] | None:
        return None if "crashes" in work.names else []


def test_ops_that_crash_together_are_tried_apart_and_what_was_seen_is_kept(tmp_path: Path) -> None:
    given = argparse.Namespace(minutes=1, records=tmp_path / "seen.json", item_seconds=1)
    both = Work("ops", ("add", "crashes"), ("float32",))
    sweep = Sweep(given, [both])
    sweep._do(Fragile(), both)
    for work in both.split():
        sweep._do(Fragile(), work)
    assert sweep.summary() == 1
    rows = json.loads(given.records.read_text())
    assert rows["add, float32"]["problems"] == []
    assert "crashed" in rows["crashes, float32"]["problems"][0]
    assert Sweep(given, [both])._left.empty()


@pytest.mark.conformance
@pytest.mark.parametrize("engine", ["onnxruntime", "inductor"])
@pytest.mark.parametrize("name", MODELS)
def test_the_other_engines_equal_eager(name: str, engine: str) -> None:
    assert check_model(name, engine, "cpu", torch.float32) == []
