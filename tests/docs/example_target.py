"""Installs examples/numpy_target.py, as an installer would: the file, and metadata with its entry point."""

from pathlib import Path

from docs.markdown import ROOT


def install(entry: str, folder: Path) -> None:
    """Put the example into a folder of Python's path.

    Args:
        entry: the entry point, such as `numpy_target:NumpyTarget`.
        folder: where.
    """
    (folder / "numpy_target.py").write_text((ROOT / "examples" / "numpy_target.py").read_text())
    information = folder / "numpy_target-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy-target\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(f"[torchport.targets]\nnumpy = {entry}\n")
