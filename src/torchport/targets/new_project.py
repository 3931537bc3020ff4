"""Creates a project with a new, working target, for `torchport new-target`."""

from __future__ import annotations

import keyword
import re
import shutil
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from torchport.errors import TargetError
from torchport.targets.registry import names

# The files of a project, by the template's names; `{{name}}` stands for the target's.
FILES = {
    "target.py": "{{name}}_target.py",
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "conftest.py": "conftest.py",
    "test_ops.py": "tests/test_ops.py",
    "test_models.py": "tests/test_models.py",
    "test_explain.py": "tests/test_explain.py",
}


def new_target(name: str, folder: Path | str | None = None) -> list[Path]:
    """Create a project with a target: the target in a hundred lines, its entry point, and its tests.

    The tests pass from the start: they sweep its ops, and check whole models and `torchport.explain`.

    Args:
        name: the target's name: lower case letters, digits and underscores.
        folder: the project's folder, created atomically; by default, one of that name in the current folder.

    Returns:
        The paths of the files.

    Raises:
        TargetError: the name is invalid or taken, the folder is not empty, or it cannot be written.

    Example:
        >>> [path.name for path in new_target("my_chip", "somewhere/my_chip")][0]
        'my_chip_target.py'
    """
    _check_name(name)
    folder = Path(folder) if folder is not None else Path(name)
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise TargetError(
                f"{folder} exists and is not an empty folder", remedy="choose another one with -o DIR"
            )
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            written = [_write(made, template, path, name) for template, path in FILES.items()]
            made.chmod(0o755)
            made.replace(folder)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    except OSError as error:
        raise TargetError(f"the project cannot be written: {error}", where=str(folder)) from error
    return [folder / path for path in written]


def _check_name(name: str) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,39}", name) or keyword.iskeyword(name):
        raise TargetError(
            f"{name!r} is not a valid target name",
            remedy="use lower case letters, digits and underscores, and begin with a letter: my_chip",
        )
    if name in names():
        raise TargetError(f"there is a target {name!r} already", remedy="choose another name")
    if name in sys.stdlib_module_names:
        raise TargetError(f"{name!r} is a module of Python's standard library", remedy="choose another name")


def _write(folder: Path, template: str, path: str, name: str) -> Path:
    text = (files("torchport.targets") / "template" / f"{template}.template").read_text(encoding="utf-8")
    words = {
        "{{name}}": name,
        "{{Class}}": "".join(part.capitalize() for part in name.split("_")),
        "{{distribution}}": name.replace("_", "-").strip("-"),
    }
    for word, value in words.items():
        text, path = text.replace(word, value), path.replace(word, value)
    written = folder / path
    written.parent.mkdir(exist_ok=True)
    written.write_text(text, encoding="utf-8")
    return Path(path)
