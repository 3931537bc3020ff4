"""Installs a file of targets like another distribution, for this process and its children."""

import os
import sys

from torchport.targets import registry


def install_targets(folder, file, entries, monkeypatch):
    """Install the targets in a file.

    Args:
        folder: where to install it.
        file: the file.
        entries: the names of the targets' classes in it, by the names of their entry points.
        monkeypatch: undoes the installation; the caller must clear `registry._all` afterwards.
    """
    module = file.stem
    information = folder / f"{module}-1.0.dist-info"
    information.mkdir(parents=True)
    (folder / file.name).write_text(file.read_text())
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    lines = "\n".join(f"{name} = {module}:{kind}" for name, kind in entries.items())
    (information / "entry_points.txt").write_text(f"[torchport.targets]\n{lines}\n")
    paths = [str(folder), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in paths if path))
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    registry._all.cache_clear()
