"""The unique modules of a model: class, shapes and parameters, and where each occurs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from torchport.records.record import Record

ROOT = "(root)"


@dataclass(frozen=True, slots=True)
class UniqueModule(Record):
    """One module, or several that differ only in their paths.

    Args:
        id: its id, such as `mod_001`.
        class_name: its class.
        module_path: the path of its first occurrence; `(root)` for the model itself.
        parent: the path of the module that contains it; None for the model itself.
        input_shapes, output_shapes: a shape such as `1x3x224x224` for each tensor; empty if it is not called.
        input_dtypes, output_dtypes: a dtype such as `float32` for each tensor.
        parameters: the arguments that it was constructed with, as far as it keeps them.
        occurrences: the paths of all identical modules.
        input_names: the names or positions of the arguments that hold the inputs.
        class_path: its class, qualified with the Python module that defines it.
        calls: how often the modules in `occurrences` are called like this in one run.
        like: the id of an entry that differs only in a number for its position, such as `layer_idx`.
    """

    id: str
    class_name: str
    module_path: str
    parent: str | None
    input_shapes: tuple[str, ...]
    output_shapes: tuple[str, ...]
    input_dtypes: tuple[str, ...]
    output_dtypes: tuple[str, ...]
    parameters: dict[str, object]
    occurrences: tuple[str, ...]
    input_names: tuple[str, ...] = ()
    class_path: str = ""
    calls: int = 0
    like: str | None = None


@dataclass(frozen=True, slots=True)
class ModuleMetadata(Record):
    """Where a table of modules comes from.

    Args:
        load_fn_location: the file and function that made the model, such as `my_model.py:load_model`.
        load_fn_name: the function's name alone.
        model_class: the model's class.
        total_modules: the number of modules, each counted once.
        unique_modules: the number of entries.
        timestamp: when they were extracted.
        module_paths: the number of module paths; a shared module has several.
        values: whether the model ran on fake or on real tensors.
        note: why it ran on real tensors.
    """

    load_fn_location: str
    load_fn_name: str
    model_class: str
    total_modules: int
    unique_modules: int
    timestamp: str
    module_paths: int = 0
    values: str = "fake"
    note: str = ""


@dataclass(frozen=True, slots=True)
class ModuleTable(Record):
    """The unique modules of a model, at every level."""

    schema: ClassVar[str] = "torchport.unique_modules/1"

    metadata: ModuleMetadata
    modules: tuple[UniqueModule, ...] = field(default_factory=tuple)


def parent_of(path: str) -> str | None:
    """Return the path of the module that contains the one at `path`; None for the model itself.

    Example:
        >>> parent_of("block1.layer2"), parent_of("block1"), parent_of("(root)")
        ('block1', '(root)', None)
    """
    if path == ROOT:
        return None
    return path.rpartition(".")[0] or ROOT


def shape_text(shape: tuple[int, ...]) -> str:
    """Return a shape as text, with `?` for sizes known only at run time.

    Example:
        >>> shape_text((1, 3, 224, 224)), shape_text(())
        ('1x3x224x224', 'scalar')
    """
    return "x".join("?" if size < 0 else str(size) for size in shape) or "scalar"
