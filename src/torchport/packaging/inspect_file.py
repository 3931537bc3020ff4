"""Describes a compiled model's file without running any of it."""

from __future__ import annotations

import os
import pickletools
from pathlib import Path

from torchport.errors import PackageError
from torchport.packaging.archive import Archive, path_of, reading
from torchport.packaging.load_model import read_package
from torchport.records import PackageSummary, ProgramRecord, parse_json

_START = '{"schema": "' + ProgramRecord.schema + '"'


def inspect_package(path: str | os.PathLike[str]) -> PackageSummary:
    """Summarize a `.pt2` of `torchport.save` or a `.pt` of `torchport.trace`, without running it.

    Args:
        path: the file.

    Raises:
        PackageError: the file is neither, or is damaged.

    Example:
        >>> inspect_package("relu.pt2").target
        'host'
    """
    where = path_of(path)
    with reading(where):
        report, size = _torchscript_report(where)
        if report is not None:
            record = ProgramRecord.from_json(parse_json(report, "its report"))
            return PackageSummary(
                str(where), "pt", size, record.model, record.target, (record,), record.versions
            )
        package = read_package(where)
    programs = tuple(packaged.record for packaged in package.programs)
    form = None if package.generation is None else package.generation.form
    return PackageSummary(
        str(where),
        "pt2",
        size,
        package.model,
        package.target,
        programs,
        package.versions,
        package.tries,
        form,
    )


def _torchscript_report(path: Path) -> tuple[str | None, int]:
    """Return the report in a TorchScript file's pickle, found without unpickling, and the file's size."""
    with Archive(path) as archive:
        if not archive.has("data.pkl"):
            return None, archive.size
        texts = pickletools.genops(archive.bytes("data.pkl").tobytes())
        for _, argument, _ in texts:
            if isinstance(argument, str) and argument.startswith(_START):
                return argument, archive.size
    raise PackageError(
        "the TorchScript contains no torchport report", remedy="torchport.trace writes one into modules"
    )
