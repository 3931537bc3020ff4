"""Loads a model, or its inputs, from a function in a user's Python file: `path/file.py::function`."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from torch import Tensor, nn

from torchport.errors import ZooError, message_of, nearest
from torchport.zoo.model import Model
from torchport.zoo.model_inputs import ModelInputs, read_inputs

# file → (its modification time, its module): a file with both a model and its inputs is imported once.
_modules: dict[Path, tuple[int, ModuleType]] = {}
# module names under which files next to a user's file were imported → their folder.
_siblings: dict[str, Path] = {}


def load_file(name: str, inputs: ModelInputs | None) -> Model:
    """Load the model that `path/file.py::function` returns.

    Args:
        name: the file and its function, class or module object.
        inputs: the inputs to use; if None, those that the function returns.

    Returns:
        The model, as the function made it.

    Raises:
        ZooError: the file or function is missing or fails, its result is not a model, or there are no
            inputs.
    """
    module, own = _split_result(_call(name), name)
    chosen = inputs or own
    if chosen is None:
        raise ZooError(
            "no inputs given",
            where=name,
            remedy="name a function that returns them, inputs='file.py::function' (--inputs), or return "
            "(module, args) from the loader",
        )
    return Model(name, module, chosen.args, chosen.kwargs)


def load_inputs(name: str) -> ModelInputs:
    """Load the inputs that `path/file.py::function` returns.

    Raises:
        ZooError: the file or function is missing or fails, or its result cannot be used as inputs.
    """
    return read_inputs(_call(name), name)


def load_value(name: str) -> object:
    """Return the value of `path/file.py::name`; a function is called for its result.

    Raises:
        ZooError: the file or function is missing or fails.
    """
    return _call(name)


def load_function(name: str) -> Callable[..., object]:
    """Return the function `path/file.py::function` itself.

    Raises:
        ZooError: the file is missing or fails, or has no such function.
    """
    found = _find(name)[0]
    if not callable(found):
        raise ZooError(f"it is {_describe(found)}, not a function", where=name, remedy="name a function")
    return found


def _split_result(result: object, where: str) -> tuple[nn.Module, ModelInputs | None]:
    """Return the module, and the inputs if the result includes them."""
    if isinstance(result, nn.Module):
        return result, None
    if isinstance(result, Model):
        return result.module, ModelInputs(result.args, result.kwargs)
    if isinstance(result, tuple) and 2 <= len(result) <= 3 and isinstance(result[0], nn.Module):
        module, args, *rest = result
        own = read_inputs(args, where)
        if not rest:
            return module, own
        if isinstance(rest[0], Mapping):
            return module, ModelInputs(own.args, {**own.kwargs, **rest[0]})
    raise ZooError(
        f"it returned {_describe(result)}, not a model",
        where=where,
        remedy="return a torch.nn.Module, (module, args), (module, args, kwargs) or a torchport Model",
    )


def _describe(result: object) -> str:
    if isinstance(result, tuple):
        return "a tuple of " + (", ".join(type(item).__name__ for item in result) or "nothing")
    return "None" if result is None else f"a value of type {type(result).__name__}"


def _call(name: str) -> object:
    """Return the value of `path/file.py::function`, called if it is a function."""
    target, function, path = _find(name)
    if isinstance(target, (nn.Module, Model, Tensor)) or not callable(target):
        return target
    with _importable(path.parent):
        return _run(target, f"{function}()", path)


def _find(name: str) -> tuple[object, str, Path]:
    """Return the object at `path/file.py::function`, with the function's name and the file's path."""
    path, function = _split_name(name)
    with _importable(path.parent):
        module = _import_file(path)
    if not hasattr(module, function):
        public = [entry for entry in vars(module) if not entry.startswith("_")]
        raise ZooError(f"it has no function {function!r}", where=str(path), remedy=nearest(function, public))
    return getattr(module, function), function, path


def _split_name(name: str) -> tuple[Path, str]:
    file, separator, function = name.rpartition("::")
    if not separator or not file or not function:
        raise ZooError(
            "the name has no function",
            where=name,
            remedy=f"write FILE.py::FUNCTION, such as {(file or function or 'model.py')}::load",
        )
    path = Path(file).expanduser()
    if not path.is_file():
        raise ZooError("there is no such file", where=file, remedy=_nearest_file(path))
    return path.resolve(), function


def _nearest_file(path: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return f"the folder {folder} does not exist either"
    return nearest(path.name, (entry.name for entry in folder.glob("*.py")))


def _import_file(path: Path) -> ModuleType:
    changed = path.stat().st_mtime_ns
    known = _modules.get(path)
    if known is not None and known[0] == changed:
        return known[1]
    # The name is unique, so that two files called model.py do not collide; the module is registered in
    # sys.modules because dataclasses and pickle require it.
    digest = hashlib.sha256(str(path).encode()).hexdigest()[:12]
    module_name = f"torchport_user_{re.sub(r'[^0-9a-zA-Z_]', '_', path.stem)}_{digest}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise ZooError("it is not a Python file", where=str(path), remedy="name a file that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        loader = spec.loader
        _run(lambda: loader.exec_module(module), "importing it", path)
    except ZooError:
        del sys.modules[module_name]
        raise
    _modules[path] = (changed, module)
    return module


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Make the files in `folder` importable by name within the block."""
    for name, origin in list(_siblings.items()):
        # A helper of the same name that another model imported must not shadow the one in this folder.
        if origin != folder and ((folder / f"{name}.py").is_file() or (folder / name).is_dir()):
            _forget(name)
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        if str(folder) in sys.path:
            sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if "." not in name and file is not None and folder in Path(file).parents:
                _siblings.setdefault(name, folder)


def _forget(name: str) -> None:
    del _siblings[name]
    for entry in [entry for entry in sys.modules if entry == name or entry.startswith(f"{name}.")]:
        del sys.modules[entry]


def _run(function: Callable[[], object], doing: str, path: Path) -> object:
    """Call the user's code; an error names the line of their file at which it failed."""
    try:
        return function()
    except (Exception, SystemExit) as error:
        text = message_of(error).strip()
        raise ZooError(
            f"{doing} raised {type(error).__name__}" + (f": {text}" if text else ""),
            where=_user_line(error, path),
        ) from error


def _user_line(error: BaseException, path: Path) -> str:
    """Return the innermost line of the user's own file in the error's traceback."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"{error.filename}:{error.lineno}"
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)
    ]
    return f"{path}:{lines[-1]}" if lines else str(path)
