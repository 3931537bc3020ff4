"""The unique modules of a model: class, shapes and parameters, and where each occurs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from torchport.records.record import Record

ROOT = "(root)"


@dataclass(frozen=True, slots=True)
class UniqueModule(Record):
    """One module, or several that differ in nothing but where they are.

    Args:
        id: such as `mod_001`.
        class_name: its class.
        module_path: where it is first; `(root)` for the model itself.
        parent: the path of the module that holds it; None for the model itself.
        input_shapes, output_shapes: such as `1x3x224x224`, one for each tensor; empty if it is never called.
        input_dtypes, output_dtypes: such as `float32`.
        parameters: the arguments that it was constructed with, as far as it keeps them.
        occurrences: the paths of all that are alike.
        input_names: the arguments that the inputs are, by name or position.
        class_path: its class with the Python module that defines it.
        calls: how often those in `occurrences` are called so in one run.
        like: the entry that differs from this one in a number alone that says its place, as `layer_idx` does.
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
    """What the modules are of.

    Args:
        load_fn_location: the file and function that made the model, such as `my_model.py:load_model`.
        load_fn_name: the function alone.
        model_class: the model's class.
        total_modules: how many modules there are, each counted once.
        unique_modules: how many entries.
        timestamp: when they were extracted.
        module_paths: how many paths the modules have; a shared module has several.
        values: whether the model ran on fake tensors or on real ones.
        note: why on real ones.
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
    """Return the path of the module that holds the one at `path`; None for the model itself.

    Example:
        >>> parent_of("block1.layer2"), parent_of("block1"), parent_of("(root)")
        ('block1', '(root)', None)
    """
    if path == ROOT:
        return None
    return path.rpartition(".")[0] or ROOT


def shape_text(shape: tuple[int, ...]) -> str:
    """Return a shape as text; a size that is known at run time only as `?`.

    Example:
        >>> shape_text((1, 3, 224, 224)), shape_text(())
        ('1x3x224x224', 'scalar')
    """
    return "x".join("?" if size < 0 else str(size) for size in shape) or "scalar"
