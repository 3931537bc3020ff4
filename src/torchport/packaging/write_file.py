"""A compiled model → a file, in the format of its extension: `.pt2`, or `.pt` for TorchScript."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from torchport.compiler import CompiledModel
from torchport.errors import PackageError
from torchport.packaging.package_file import package_file
from torchport.packaging.save_model import save
from torchport.packaging.torchscript import to_torchscript
from torchport.records.deferred_error_file import written_by_torch

KINDS = (".pt2", ".pt")


@dataclass(frozen=True, slots=True)
class FileContents:
    """What to store in a compiled model's file; fields as in `torchport.save`."""

    compiled_form: bool = True
    with_graph: bool = False
    separate_weights: bool = False


PLAIN = FileContents()


def check_file_name(path: Path, contents: FileContents) -> None:
    """Refuse a file name with an unknown extension, or one whose format cannot store the contents.

    Raises:
        PackageError: the name does not end in `.pt2` or `.pt`, or ends in `.pt` where only `.pt2` will do.
    """
    if path.suffix not in KINDS:
        raise PackageError(
            "the name of a compiled model's file must end in .pt2, or in .pt for TorchScript",
            where=str(path),
            remedy=f"call it {path.stem}.pt2",
        )
    if path.suffix == ".pt" and (contents.with_graph or contents.separate_weights):
        asked = "the model's graph" if contents.with_graph else "weights beside it"
        raise PackageError(
            f"a TorchScript file cannot be written with {asked} here",
            where=str(path),
            remedy=f"call it {path.stem}.pt2, or see dynamic_shapes and separate_weights of torchport.trace",
        )


def write_model(
    compiled: CompiledModel,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    path: Path,
    contents: FileContents = PLAIN,
) -> None:
    """Write a compiled model to a file, atomically.

    Args:
        compiled: the compiled model.
        args, kwargs: inputs that it was compiled for; TorchScript is traced with them.
        path: the file to write.
        contents: what to store in the file.

    Raises:
        PackageError: the model cannot be written, or not in this format.
    """
    check_file_name(path, contents)
    if path.suffix == ".pt2":
        save(compiled, path, **asdict(contents))
        return
    signature = inspect.signature(compiled.original.forward)
    first = compiled.current_programs[0]
    script = to_torchscript(
        first, signature, args, kwargs, as_function=False, compiled_form=contents.compiled_form
    )
    with package_file(path) as temporary, written_by_torch(temporary) as file:
        torch.jit.save(script, file)
