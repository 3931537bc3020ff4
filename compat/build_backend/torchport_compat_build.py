"""Builds torchport-compat with setuptools, and adds the line that makes its names importable.

The names are not packages of site-packages: they lie in `torchport_compat/names`, which a `.pth` file puts at
the end of Python's path. So no file of a real package can be written over, and a real package is found first.
Where one is installed already, nothing is built.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zipfile
from collections.abc import Mapping
from importlib.metadata import Distribution, distributions
from pathlib import Path

from setuptools import build_meta
from setuptools.build_meta import (
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

Settings = Mapping[str, object] | None

OWN = "torchport-compat"
NAMES_FOLDER = "torchport_compat/names"
SOURCES = Path(__file__).resolve().parents[1] / "src"
PATH_FILE = "zz_torchport_compat.pth"  # the last by the alphabet, so that its line is at the end of the path


def build_wheel(directory: str, settings: Settings = None, metadata: str | None = None) -> str:
    """Build a wheel; its names lie beside it in site-packages."""
    refuse_real_packages()
    name: str = build_meta.build_wheel(directory, settings, metadata)
    add_file(Path(directory, name), PATH_FILE, NAMES_FOLDER + "\n")
    return name


def build_editable(directory: str, settings: Settings = None, metadata: str | None = None) -> str:
    """Build a wheel that refers to this checkout."""
    refuse_real_packages()
    name: str = build_meta.build_editable(directory, settings, metadata)
    add_file(Path(directory, name), PATH_FILE, f"{SOURCES / NAMES_FOLDER}\n")
    return name


def refuse_real_packages() -> None:
    """Refuse to build where another distribution has one of the names."""
    names = {path.name for path in (SOURCES / NAMES_FOLDER).iterdir() if (path / "__init__.py").is_file()}
    for distribution in distributions():
        own_name = distribution.metadata["Name"] or ""
        if re.sub(r"[-_.]+", "-", own_name).lower() == OWN:
            continue
        for taken in sorted(names & top_level_of(distribution)):
            raise SystemExit(
                f"torchport-compat is not installed: {own_name} {distribution.version} has the package "
                f"{taken!r} already, at {distribution.locate_file('')}: uninstall it, or go on without "
                "torchport-compat"
            )


def top_level_of(distribution: Distribution) -> set[str]:
    """Return the packages of a distribution, also of one that is installed as a link to its checkout."""
    listed = set((distribution.read_text("top_level.txt") or "").split())
    files = {Path(str(file)) for file in distribution.files or ()}
    return listed | {file.parts[0] for file in files if len(file.parts) > 1} | {file.stem for file in files}


def add_file(wheel: Path, name: str, text: str) -> None:
    """Add a file to a wheel, and to the wheel's own list of its files."""
    content = text.encode()
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    with zipfile.ZipFile(wheel) as given:
        entries = {entry: given.read(entry) for entry in given.infolist()}
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as rewritten:
        rewritten.writestr(name, content)
        for entry, data in entries.items():
            if entry.filename.endswith(".dist-info/RECORD"):
                data = f"{name},sha256={digest},{len(content)}\n".encode() + data
            rewritten.writestr(entry, data)
