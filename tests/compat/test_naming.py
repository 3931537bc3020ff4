"""A real package of one of the names is never shadowed, and a name's owner is reported."""

import importlib
import json
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

import pytest
import torch

from compat.commands import run_here
from torchport_compat import NAMES, NameTaken, locate
from torchport_compat.command import names
from torchport_compat.naming import FOLDER
from torchport_compat.tools.model_analysis import model_analysis


@pytest.fixture
def real(tmp_path, monkeypatch) -> Path:
    """A folder with real packages of all names, not on the path yet; imported modules are removed."""
    folder = tmp_path / "real"
    for name in NAMES:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text("REAL = True\n")
    for module in imported():
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.delattr(torch, "neuron", raising=False)
    importlib.invalidate_caches()
    yield folder
    for module in imported():  # for good; modules imported before the test are restored
        del sys.modules[module]


def imported() -> list[str]:
    return [name for name in sys.modules if name.split(".")[0] in NAMES or name == "torch.neuron"]


def described() -> dict[str, dict[str, object]]:
    found = json.loads(run_here(names, "--json").out)["names"]
    return {entry["name"]: entry for entry in found}


@pytest.mark.parametrize("name", NAMES)
def test_the_names_are_torchports_if_there_is_no_real_package(name):
    assert Path(importlib.import_module(name).__file__).is_relative_to(FOLDER)
    assert locate(name) is None
    assert described()[name] == {
        "name": name,
        "ok": True,
        "path": str(FOLDER / name),
        "detail": "torchport's",
    }
    assert run_here(names).code == 0


@pytest.mark.parametrize("name", NAMES)
def test_a_real_package_that_comes_first_is_imported(name, real, monkeypatch):
    monkeypatch.syspath_prepend(real)
    assert importlib.import_module(name).REAL
    assert not described()[name]["ok"]
    assert described()[name]["path"] == str(real / name / "__init__.py")
    assert "not used" in described()[name]["detail"]


@pytest.mark.parametrize("name", NAMES)
def test_a_real_package_behind_it_is_not_shadowed(name, real, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, str(real)])
    with pytest.raises(NameTaken, match="would shadow") as caught:
        importlib.import_module(name)
    assert isinstance(caught.value, ImportError)
    assert str(real / name) in str(caught.value)
    assert "pip uninstall torchport-compat" in str(caught.value)
    assert name not in sys.modules
    done = run_here(names)
    assert done.code == 1
    assert str(real / name) in done.out
    assert "refuses to be imported" in done.out


def test_a_real_package_found_by_a_custom_finder_is_not_shadowed(real, monkeypatch):
    class Editable:
        """What setuptools installs for an editable checkout whose folders are not laid out like packages."""

        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
            return PathFinder.find_spec(name, [str(real)]) if name == "tinynn" else None

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Editable])
    with pytest.raises(NameTaken):
        importlib.import_module("tinynn.graph.tracer")


def test_a_folder_without_code_is_not_a_package(real, folder, monkeypatch):
    Path("model_analysis").mkdir()
    assert locate("model_analysis") is None
    assert importlib.import_module("model_analysis").extract_unique_modules


def test_the_command_does_not_replace_a_real_package(real, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, str(real)])
    done = run_here(model_analysis, "--model-path a.py::load --inputs-path a.py::inputs")
    assert done.code == 2
    assert "would shadow" in done.err


def test_another_torch_neuron_is_left_alone(real, monkeypatch):
    monkeypatch.setattr(torch, "neuron", "another", raising=False)
    with pytest.raises(NameTaken, match=r"torch\.neuron already exists"):
        importlib.import_module("torch_neuron")
    assert torch.neuron == "another"
