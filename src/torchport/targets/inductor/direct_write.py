"""Extracts the call sequence and the kernels from a graph that inductor compiled, to run without inductor.

inductor generates a module: imports of its own, kernels as source text, and a function that calls them and
torch's ops. The imports take seconds in the process that loads a package, and on a CPU the kernels are
compiled again there. The direct form written here is that function, without unused code, and the kernels as
shared libraries and cubins. It is tested before it is used; a graph not known to work has no direct form.
"""

from __future__ import annotations

import ast
import json
import logging
import marshal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import BuiltinFunctionType
from typing import Any

import torch

from torchport.errors import one_line
from torchport.targets.inductor.direct_run import CPP, CUDA, LENGTH, read
from torchport.torch_private import COMPILER_MODULES, static_kernel, wrapper_function

_log = logging.getLogger(__name__)

_COMPILER = "async_compile"
_EXTERN = "extern_kernels"
_UNUSED = frozenset({"benchmark_compiled_module", "get_args", "recursively_apply_fns"})
_EQUIVALENTS = {"bias_addmm": "addmm"}  # inductor's own functions, with the torch function for the same
# Namespaces whose ops are torch's own C++: others could be registered by a module that is not imported.
_NAMESPACES = frozenset({"aten", "mkldnn", "quantized", "_quantized", "inductor"})
_POOL = "_alloc_from_pool"


class _NotDirectError(Exception):
    """A compiled graph has no direct form; the message says why."""


def to_direct_form(compiled: Any, arguments: Sequence[torch.Tensor], device: str) -> bytes:
    """Return the direct form that `direct_run.read` reads; empty if there is none.

    Args:
        compiled: the graph as compiled by inductor.
        arguments: inputs and weights to test it with.
        device: `cpu` or `cuda`.
    """
    try:
        with torch.no_grad():
            expected = list(compiled(*arguments))  # GPU kernels are chosen on their first run
            form = _write(compiled, device)
            _check_same(list(read(form)(*arguments)), expected)
    except Exception as error:  # noqa: BLE001  # a kernel launched in another way may raise anything
        _log.info("the package needs inductor to run: %s", one_line(error))
        return b""
    return form


def _check_same(actual: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    if len(actual) != len(expected):
        raise _NotDirectError("its results differ")
    for ours, theirs in zip(actual, expected, strict=True):
        same = ours.shape == theirs.shape and ours.dtype == theirs.dtype and ours.stride() == theirs.stride()
        if not same or not torch.allclose(ours.double(), theirs.double(), rtol=1e-3, equal_nan=True):
            raise _NotDirectError("its results differ")


def _write(compiled: Any, device: str) -> bytes:
    call = wrapper_function(compiled)
    if call is None:
        raise _NotDirectError("the module that inductor generated was not found")
    module = split_module(Path(call.__code__.co_filename).read_text())
    entries, files = [], []
    for name in module.kernels:
        entry, content = _kernel(name, call.__globals__[name], device)
        entries.append({"name": name, "bytes": len(content), **entry})
        files.append(content)
    functions = {name: _own_function(name, call.__globals__[_EXTERN]) for name in module.extern}
    header = json.dumps({"text": module.text, "functions": functions, "kernels": entries}).encode()
    return b"".join([LENGTH.pack(len(header)), header, *files])


def _kernel(name: str, kernel: object, device: str) -> tuple[dict[str, object], bytes]:
    """Return the header entry of a kernel, and the contents of its file."""
    if device == "cpu":
        library = getattr(getattr(kernel, "__self__", None), "__file__", None)
        if not isinstance(kernel, BuiltinFunctionType) or library is None:
            raise _NotDirectError(f"{name} is not a function of a shared library")
        return {"kind": CPP}, Path(library).read_bytes()
    number = torch.cuda.current_device()
    found = static_kernel(kernel, number)
    if found is None:
        raise _NotDirectError(f"torch cannot launch {name} without inductor")
    entry: dict[str, object] = {
        "kind": CUDA,
        "function": found.function,
        "warps": found.warps,
        "shared": found.shared,
        "types": found.types,
        "scratch": found.scratch,
        "device": number,
        "launcher": marshal.dumps(found.launcher).hex(),
    }
    return entry, Path(found.cubin).read_bytes()


def _own_function(name: str, extern: object) -> str:
    """Return the name of the torch function behind a name of `extern_kernels`."""
    own = _EQUIVALENTS.get(name, name)
    if name not in _EQUIVALENTS and getattr(extern, name, None) is not getattr(torch, own, None):
        raise _NotDirectError(f"{name} is inductor's own")
    return own


# ---- the module's text


@dataclass(frozen=True, slots=True)
class ModuleText:
    """The parts needed from a module that inductor generated.

    Args:
        text: its statements, without imports of inductor and without the kernels.
        kernels: the names of the kernels that it calls.
        extern: the names of the functions that it calls on `extern_kernels`.
    """

    text: str
    kernels: tuple[str, ...]
    extern: tuple[str, ...]


def split_module(source: str) -> ModuleText:
    """Return the parts needed from a module that inductor generated.

    Raises:
        _NotDirectError: it needs something that may not exist without inductor.
    """
    kept, kernels, dropped = [], [], {_COMPILER}
    for statement in ast.parse(source).body:
        names = _assigned(statement)
        if isinstance(statement, (ast.Import, ast.ImportFrom)) and _is_of_the_compiler(statement):
            dropped.update(alias.asname or alias.name.partition(".")[0] for alias in statement.names)
        elif _is_call_of(statement, _COMPILER):
            kernels += names
        elif not (
            _reads(statement) & {_COMPILER}
            or set(names) & _UNUSED
            or isinstance(statement, (ast.If, ast.Expr))
        ):
            kept.append(statement)
    kept = _without_unused(kept)
    needed = {name for statement in kept for name in _reads(statement)}
    missing = needed & (dropped - {_EXTERN})
    if missing:
        raise _NotDirectError(f"the module needs {', '.join(sorted(missing))}")
    _check_ops(kept)
    used = tuple(name for name in kernels if name in needed)
    text = ast.unparse(ast.Module(kept, []))
    return ModuleText(text, used, tuple(sorted(_attributes_of(kept, _EXTERN))))


def _is_of_the_compiler(statement: ast.Import | ast.ImportFrom) -> bool:
    modules = [alias.name for alias in statement.names]
    if isinstance(statement, ast.ImportFrom):
        modules = [statement.module or ""]
    return any(module.startswith(COMPILER_MODULES) for module in modules)


def _is_call_of(statement: ast.stmt, name: str) -> bool:
    """Whether a statement is `x = name.f(…)`."""
    value = statement.value if isinstance(statement, ast.Assign) else None
    function = value.func if isinstance(value, ast.Call) else None
    return isinstance(function, ast.Attribute) and getattr(function.value, "id", None) == name


def _assigned(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.Assign):
        return [target.id for target in statement.targets if isinstance(target, ast.Name)]
    return [statement.name] if isinstance(statement, (ast.FunctionDef, ast.ClassDef)) else []


def _reads(statement: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)} - set(
        _assigned(statement) if isinstance(statement, ast.Assign) else []
    )


def _without_unused(statements: list[ast.stmt]) -> list[ast.stmt]:
    """Drop assignments to names that nothing reads: most of those at the top of every module."""
    while True:
        needed = {"call"}.union(*(_reads(statement) for statement in statements))
        kept = [
            statement
            for statement in statements
            if not isinstance(statement, ast.Assign) or needed & set(_assigned(statement))
        ]
        if len(kept) == len(statements):
            return kept
        statements = kept


def _check_ops(statements: Iterable[ast.stmt]) -> None:
    """Refuse ops that a Python module may have registered."""
    for namespace in _attributes_of(statements, "torch.ops") - _NAMESPACES:
        raise _NotDirectError(f"ops of {namespace} are not torch's own")
    taken = {*_attributes_of(statements, "inductor_ops"), *_attributes_of(statements, "torch.ops.inductor")}
    if taken - {_POOL}:
        raise _NotDirectError(f"the module needs {', '.join(sorted(taken))} of inductor")


def _attributes_of(statements: Iterable[ast.stmt], name: str) -> set[str]:
    return {
        node.attr
        for statement in statements
        for node in ast.walk(statement)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == name
    }
