"""Builds torchport-compat with setuptools, and adds the `.pth` file that makes its names importable.

The names are not top-level packages in site-packages: they are in `torchport_compat/names`, which a `.pth`
file appends to Python's path. So no file of a real package can be overwritten, and a real package is found
first. If one is already installed, the build fails.
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
PATH_FILE = "zz_torchport_compat.pth"  # alphabetically last, so that its line is at the end of the path


def build_wheel(directory: str, settings: Settings = None, metadata: str | None = None) -> str:
    """Build a wheel with a `.pth` file that adds the names' folder in site-packages to the path."""
    refuse_real_packages()
    name: str = build_meta.build_wheel(directory, settings, metadata)
    add_file(Path(directory, name), PATH_FILE, NAMES_FOLDER + "\n")
    return name


def build_editable(directory: str, settings: Settings = None, metadata: str | None = None) -> str:
    """Build an editable wheel, which refers to this checkout."""
    refuse_real_packages()
    name: str = build_meta.build_editable(directory, settings, metadata)
    add_file(Path(directory, name), PATH_FILE, f"{SOURCES / NAMES_FOLDER}\n")
    return name


def refuse_real_packages() -> None:
    """Refuse to build if another installed distribution has one of the names."""
    names = {path.name for path in (SOURCES / NAMES_FOLDER).iterdir() if (path / "__init__.py").is_file()}
    for distribution in distributions():
        own_name = distribution.metadata["Name"] or ""
        if re.sub(r"[-_.]+", "-", own_name).lower() == OWN:
            continue
        for taken in sorted(names & top_level_of(distribution)):
            raise SystemExit(
                f"torchport-compat cannot be installed: {own_name} {distribution.version} already provides "
                f"the package {taken!r}, at {distribution.locate_file('')}: uninstall it, or do without "
                "torchport-compat"
            )


def top_level_of(distribution: Distribution) -> set[str]:
    """Return a distribution's top-level packages, also if it is an editable install."""
    listed = set((distribution.read_text("top_level.txt") or "").split())
    files = {Path(str(file)) for file in distribution.files or ()}
    return listed | {file.parts[0] for file in files if len(file.parts) > 1} | {file.stem for file in files}


def add_file(wheel: Path, name: str, text: str) -> None:
    """Add a file to a wheel, and to its RECORD."""
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
