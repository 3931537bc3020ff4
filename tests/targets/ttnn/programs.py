"""Helpers that compile functions and models to programs, inspect them, and hand them to the judge."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import torchport
from targets.ttnn.mock_chip import call_judge, environment
from torchport.structure import tensors_in
from torchport.targets import Artifact
from torchport.targets.ttnn.format import unpack
from torchport.targets.ttnn.ttnn_program import TtnnProgram


def compiled_for(function, *args, check=False, **options):
    """Compile a function or module for ttnn without the trial, to test the lowering itself."""
    return torchport.compile(
        function, args, target="ttnn", options={"check": check, "cache": False, **options}
    )


def program_of(compiled) -> TtnnProgram:
    """Return the program of a model that compiles to a single island."""
    [record] = compiled.record.islands
    blob = getattr(compiled._first.program.graph_module, record.name)
    return unpack(Artifact(blob.numpy(), record.properties))[0]


def functions_in(program: TtnnProgram) -> list[str]:
    """Return the names of the ttnn functions that a program calls, in order."""
    return [call.function for call in program.calls]


def store(compiled, folder: Path) -> Path:
    """Write a compiled model's program and script for the judge."""
    folder.mkdir(parents=True, exist_ok=True)
    compiled.emit(folder / "program.py")
    (folder / "program.json").write_text(json.dumps(program_of(compiled).to_json()))
    return folder


def judged(folders: list[Path]) -> list[dict]:
    """Return the real library's verdicts on programs; skip the test if the library is unavailable."""
    try:
        return call_judge.verdicts(folders, timeout=540)
    except environment.Unavailable as reason:
        pytest.skip(f"the real library with a mock chip cannot be had here: {reason}")


def assert_accepted(folders: list[Path]) -> None:
    """Fail unless the real library accepts every program completely."""
    refused = [line for line in judged(folders) if not line["accepted"]]
    assert not refused, "\n".join(f"{line['folder']}: {line['refusal']}" for line in refused)


def expected_outputs(compiled, result) -> list[list]:
    """Return the dtypes and shapes of the model's own results, in the judge's format.

    Results that are constants are not computed by the program, and are left out.
    """
    given = [[spec.dtype, list(spec.shape)] for spec in compiled.record.islands[0].outputs]
    specs = [
        [str(tensor.dtype).removeprefix("torch."), list(tensor.shape)] for _, tensor in tensors_in(result)
    ]
    return [spec for spec in specs if spec in given]


def random(*shape: int) -> torch.Tensor:
    """Return the same random numbers each time."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))
