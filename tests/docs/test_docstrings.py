"""Every example in a docstring runs, and gives what it says."""

import doctest
import functools
import importlib
import pkgutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import torch

import torchport
from forked_python import ForkedPopen
from torchport import bringup, capture, compiler, packaging, records, report, structure, survey, targets, zoo
from torchport.report import survey as survey_reports

pytestmark = pytest.mark.usefixtures("forked_python")
_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class _WhatIsShown(doctest.OutputChecker):
    """Compares what an example gives where it shows that; where it shows nothing, it need only run."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return not want or super().check_output(want, got, optionflags)


def examples() -> Iterator[doctest.DocTest]:
    """Yield the examples of every module, with the names that the module itself knows."""
    for info in pkgutil.walk_packages(torchport.__path__, "torchport."):
        if not info.name.endswith("__main__"):
            module = importlib.import_module(info.name)
            tests = doctest.DocTestFinder().find(module, info.name)
            yield from (test for test in tests if test.examples)


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    """A folder with the files that examples read: a package, results of bench, a survey."""
    folder = tmp_path_factory.mktemp("files")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("TORCHPORT_CACHE_DIR", str(folder / "cache"))
        patch.setattr(subprocess, "Popen", ForkedPopen)
        model = "model.py::load"
        Path("model.py").write_text(
            "import torch\n\n\ndef load():\n    return torch.nn.ReLU()\n\n\n"
            "def inputs():\n    return (torch.ones(1, 4),)\n"
        )
        relu = torchport.compile(torch.nn.ReLU(), (torch.ones(2),), target="host")
        torchport.save(relu, "relu.pt2")
        load = functools.partial(zoo.load, inputs="model.py::inputs")
        bringup.run_benches([model], targets=["host"], directory=Path("out/demo"), load=load)
        torchport.run_survey([model], settings=torchport.SurveySettings(inputs="model.py::inputs"))
    return folder


@pytest.fixture
def names() -> Mapping[str, object]:
    """What an example may use without saying where it comes from: the stages' own names, and a model."""
    known: dict[str, object] = {}
    for stage in (
        records,
        zoo,
        capture,
        targets,
        compiler,
        packaging,
        bringup,
        survey,
        report,
        survey_reports,
        torchport,
    ):
        known.update({name: getattr(stage, name) for name in getattr(stage, "__all__", dir(stage))})
    model, args = torch.nn.ReLU(), (torch.ones(1, 4),)
    return known | {
        "Path": Path,
        "torch": torch,
        "torchport": torchport,
        "structure": structure,
        "zoo": zoo,
        "model": model,
        "args": args,
        "load_model": lambda: model,
        "get_inputs": lambda: args,
    }


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.name.removeprefix("torchport."))
def test_the_example_gives_what_it_says(example, files, names, monkeypatch):
    monkeypatch.chdir(files)
    example.globs = {**names, **example.globs}
    said: list[str] = []
    result = doctest.DocTestRunner(_WhatIsShown(), optionflags=_FLAGS).run(example, out=said.append)
    assert not result.failed, "".join(said)
