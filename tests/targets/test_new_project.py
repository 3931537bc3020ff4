"""A new target's project works at once: its tests pass, in an empty folder, before anything is installed."""

import os
import re
import subprocess
import sys
from importlib.resources import files

import pytest

from torchport.errors import TargetError
from torchport.targets import new_target
from torchport.targets.new_project import FILES


@pytest.mark.usefixtures("forked_python")
def test_its_own_tests_pass_at_once(tmp_path):
    written = new_target("my_chip", tmp_path / "my_chip")
    assert all(path.is_file() for path in written)
    environment = os.environ | {"TORCHPORT_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--show-capture=no"],
        cwd=tmp_path / "my_chip", env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    rules = (tmp_path / "my_chip" / "my_chip_target.py").read_text().count("RULES.add(")
    assert f"{rules + 3 + 3} passed" in done.stdout  # a test per op, three of models, three of explain


def test_the_target_is_a_hundred_lines_and_nothing_is_left_of_the_template(tmp_path):
    for path in new_target("my_chip", tmp_path / "new"):
        text = path.read_text()
        assert "{{" not in text
        assert path.name != "my_chip_target.py" or len(text.splitlines()) <= 100
        if path.suffix == ".py":
            compile(text, str(path), "exec")


def test_metadata_of_the_project_and_of_its_tests_name_the_same_class(tmp_path):
    new_target("my_chip", tmp_path / "new")
    [installed] = re.findall(r'^my_chip = "(.+)"$', (tmp_path / "new" / "pyproject.toml").read_text(), re.M)
    [tried] = re.findall(r'"my_chip = (.+)"$', (tmp_path / "new" / "conftest.py").read_text(), re.M)
    module, _, name = installed.partition(":")
    assert installed == tried
    assert f"class {name}(" in (tmp_path / "new" / f"{module}.py").read_text()


def test_every_template_is_a_file_of_the_project():
    found = {path.name for path in (files("torchport.targets") / "template").iterdir()}
    assert found == {f"{name}.template" for name in FILES}


@pytest.mark.parametrize(
    "name", ["", "My", "a-b", "1a", "a b", "../a", "class", "host", "json", "a" * 41, "é"]
)
def test_names_that_are_none_are_refused(name, tmp_path):
    with pytest.raises(TargetError):
        new_target(name, tmp_path / "new")
    assert not list(tmp_path.iterdir())


def test_what_is_there_stays(tmp_path):
    (tmp_path / "mine").mkdir()
    new_target("my_chip", tmp_path / "mine")  # an empty folder is filled
    (tmp_path / "mine" / "README.md").write_text("mine")
    with pytest.raises(TargetError, match="not an empty folder"):
        new_target("my_chip", tmp_path / "mine")
    assert (tmp_path / "mine" / "README.md").read_text() == "mine"
    (tmp_path / "file").write_text("mine")
    with pytest.raises(TargetError):
        new_target("my_chip", tmp_path / "file")
    with pytest.raises(TargetError, match="cannot be written"):
        new_target("my_chip", tmp_path / "file" / "below")
    assert {path.name for path in tmp_path.iterdir()} == {"mine", "file"}  # and nothing partially written
