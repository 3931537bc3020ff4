"""Both distributions are built, installed into an empty environment, and used there."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from importlib.metadata import version
from pathlib import Path

import pytest

import torchport
from torchport_compat import NAMES

ROOT = Path(__file__).parents[2]
BUILD = "import sys; import {backend} as backend; print(backend.{hook}(sys.argv[1]))"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """A copy of the sources, so that the checkout is not modified."""
    copy = tmp_path_factory.mktemp("checkout")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    passed_over = shutil.ignore_patterns("__pycache__", "*.egg-info", "build", "dist")
    for name in ("src", "compat"):
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=passed_over)
    return copy


def run(*command: object, cwd: Path, path: str = "") -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "PIP_NO_INDEX": "1"}
    return subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def build(project: Path, hook: str, output: Path, path: str = "") -> subprocess.CompletedProcess[str]:
    """Call a hook of a project's build backend, as a build front end does."""
    backend = "torchport_compat_build" if project.name == "compat" else "setuptools.build_meta"
    path = os.pathsep.join(filter(None, [str(project / "build_backend"), path]))
    return run(sys.executable, "-c", BUILD.format(backend=backend, hook=hook), output, cwd=project, path=path)


@pytest.fixture(scope="module")
def distributions(checkout, tmp_path_factory) -> dict[str, Path]:
    """The wheel and the sdist of each distribution, by kind."""
    output = tmp_path_factory.mktemp("dist")
    found = {}
    for project in (checkout, checkout / "compat"):
        for hook in ("build_wheel", "build_sdist"):
            done = build(project, hook, output)
            assert done.returncode == 0, done.stderr
            kind = f"{'compat' if project.name == 'compat' else 'torchport'} {hook.removeprefix('build_')}"
            found[kind] = output / done.stdout.splitlines()[-1]
    return found


@pytest.fixture(scope="module")
def environment(distributions, tmp_path_factory) -> Path:
    """An environment with only the two wheels; other packages are borrowed from this one."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    [packages] = folder.glob("lib/python*/site-packages")
    lent = [path for path in sys.path if Path(path).name == "site-packages"]
    (packages / "lent.pth").write_text("\n".join(lent))
    wheels = [distributions["torchport wheel"], distributions["compat wheel"]]
    pip = (sys.executable, "-m", "pip", "--python", folder / "bin" / "python")
    # --ignore-installed: borrowed packages are not touched.
    done = run(*pip, "install", "--no-deps", "--ignore-installed", *wheels, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_both_have_one_version():
    assert version("torchport-compat") == version("torchport") == torchport.__version__


@pytest.mark.conformance
def test_both_have_the_metadata_that_a_package_index_requires(distributions):
    done = run(sys.executable, "-m", "twine", "check", "--strict", *distributions.values(), cwd=ROOT)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("PASSED") == 4


@pytest.mark.parametrize("name", ["torchport", "compat"])
def test_a_wheel_has_its_licence_and_types(distributions, name):
    with zipfile.ZipFile(distributions[f"{name} wheel"]) as wheel:
        names = wheel.namelist()
        [licence] = [entry for entry in names if entry.endswith("/licenses/LICENSE")]
        assert wheel.read(licence) == (ROOT / "LICENSE").read_bytes()
        [metadata] = [entry for entry in names if entry.endswith("/METADATA")]
        assert message_from_bytes(wheel.read(metadata))["Version"] == torchport.__version__
    assert any(entry.endswith("/py.typed") for entry in names)


def test_a_wheel_contains_no_top_level_package_with_a_real_packages_name(distributions):
    with zipfile.ZipFile(distributions["compat wheel"]) as wheel:
        tops = {entry.split("/")[0] for entry in wheel.namelist()}
    version = torchport.__version__
    assert tops == {"torchport_compat", "zz_torchport_compat.pth", f"torchport_compat-{version}.dist-info"}


@pytest.mark.conformance
def test_a_wheel_is_built_from_the_sdist(distributions, tmp_path):
    with tarfile.open(distributions["compat sdist"]) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    [unpacked] = (tmp_path / "unpacked").iterdir()
    assert (unpacked / "tools" / "run_torchvision.py").is_file()
    done = build(unpacked.rename(tmp_path / "compat"), "build_wheel", tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.conformance
def test_doctor_reports_no_problem_in_an_empty_environment(environment, tmp_path):
    done = run(environment / "bin" / "torchport", "doctor", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["versions"]["torchport"] == torchport.__version__
    assert all(check["ok"] for check in found["checks"])


SMALL_COMPILE = """
import torch
import torch_ttnn, tinynn.graph.tracer, model_analysis
import torchport
model, x = torch.nn.Linear(4, 3).eval(), torch.rand(2, 4)
compiled = torchport.compile(model, (x,), target="host")
torch.testing.assert_close(compiled(x), model(x))
print(torchport.__file__, torch_ttnn.__file__)
"""


@pytest.mark.conformance
def test_a_small_model_is_compiled_there(environment, tmp_path):
    done = run(environment / "bin" / "python", "-c", SMALL_COMPILE, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for place in done.stdout.split():
        assert Path(place).is_relative_to(environment)


def test_the_commands_are_installed(environment, tmp_path):
    done = run(environment / "bin" / "torchport-compat", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)["names"]
    assert [entry["name"] for entry in found if Path(entry["path"]).is_relative_to(environment)] == list(
        NAMES
    )
    done = run(environment / "bin" / "tt-model-analysis", "--help", cwd=tmp_path)
    assert "--inputs-path" in done.stdout


def test_it_can_be_installed_in_editable_mode(checkout, tmp_path):
    """Does what `pip install -e .` does."""
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "other", cwd=tmp_path)
    [packages] = tmp_path.glob("other/lib/python*/site-packages")
    lent = [path for path in sys.path if Path(path).name == "site-packages"]
    (packages / "lent.pth").write_text("\n".join([str(ROOT / "src"), *lent]))
    pip = (sys.executable, "-m", "pip", "--python", tmp_path / "other" / "bin" / "python", "install")
    options = ("--no-deps", "--no-build-isolation", "--ignore-installed", "-e", ".")
    done = run(*pip, *options, cwd=checkout / "compat")
    assert done.returncode == 0, done.stderr
    done = run(tmp_path / "other" / "bin" / "torchport-compat", "--json", cwd=tmp_path)
    found = json.loads(done.stdout)["names"]
    assert all(Path(entry["path"]).is_relative_to(checkout / "compat") for entry in found)


@pytest.mark.parametrize("hook", ["build_wheel", "build_editable"])
def test_it_refuses_to_be_installed_over_a_real_package(checkout, tmp_path, hook):
    real = tmp_path / "real"
    (real / "TinyNeuralNetwork-0.1.dist-info").mkdir(parents=True)
    (real / "TinyNeuralNetwork-0.1.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: TinyNeuralNetwork\nVersion: 0.1\n"
    )
    (real / "TinyNeuralNetwork-0.1.dist-info" / "RECORD").write_text("tinynn/__init__.py,,\n")
    done = build(checkout / "compat", hook, tmp_path, str(real))
    assert done.returncode != 0
    [line] = done.stderr.splitlines()
    assert "cannot be installed: TinyNeuralNetwork 0.1 already provides the package 'tinynn'" in line
    assert not list(tmp_path.glob("*.whl"))
