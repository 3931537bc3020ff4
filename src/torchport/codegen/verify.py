"""Verifies generated code: imports, loads and runs it, and compares it with the model bit for bit."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import sys
import traceback
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch
from torch import nn

from torchport.capture import Argument, Size, StandIn, copy_of, input_sizes, with_other_sizes
from torchport.codegen.weights_file import write_weights
from torchport.errors import CodegenError, one_line
from torchport.records import temporary_folder
from torchport.structure import flatten
from torchport.torch_private import compiling
from torchport.verification import compare, tensor_bytes


@dataclass(frozen=True, slots=True)
class Original:
    """What the code was generated from, as in `CallGraph`: the model, example inputs, sizes that may vary."""

    model: nn.Module
    arguments: tuple[Argument, ...]
    free: tuple[Size, ...] | None


def verify_code(text: str, state: dict[str, torch.Tensor], original: Original, weights_name: str) -> None:
    """Run generated code, and compare it with its original.

    Raises:
        CodegenError: the code cannot be imported, loaded or run, or its results differ.
    """
    tensors = [*state.values(), *_leaves(original.arguments)]
    if any(tensor.is_meta for tensor in tensors):
        return  # there are no values to compare
    with temporary_folder("codegen") as folder:
        path = folder / "generated.py"
        path.write_text(text, encoding="utf-8")
        write_weights(state, folder / weights_name)
        code = _Code(path, text)
        with code.explained("cannot be imported"):
            module = _import(path)
        with code.explained("does not load"):
            made = module.load_model()
        _compare(original, made, code)


@dataclass(frozen=True, slots=True)
class _Code:
    """Generated code that is being verified.

    Args:
        path: the file.
        text: its contents.
    """

    path: Path
    text: str

    @contextlib.contextmanager
    def explained(self, what: str) -> Iterator[None]:
        """Turn any exception into an error that names the statement at fault.

        Raises:
            CodegenError: the body raised.
        """
        try:
            yield
        except Exception as error:  # any failure of the generated code is reported
            message = " ".join(str(error).split())[:300]
            raise CodegenError(
                f"the generated code {what}: {type(error).__name__}: {message}",
                where=self._statement(error),
                remedy="nothing was written; report this statement and the model code that it came from",
            ) from error

    def _statement(self, error: Exception) -> str:
        """Return the innermost statement of the file that an error comes from; empty if there is none."""
        if isinstance(error, SyntaxError) and error.filename == str(self.path):
            return f"line {error.lineno}: {(error.text or '').strip()}"
        lines = [line for path, line in _calls_of(error) if path == str(self.path)]
        if not lines:
            return ""
        source = ast.get_source_segment(self.text, self._statement_at(lines[-1])) or ""
        return f"line {lines[-1]}: {' '.join(source.split())[:200]}"

    def is_guard(self, error: Exception) -> bool:
        """Whether a `raise` statement of the file itself raised an error: only guards are written as such."""
        path, line = _calls_of(error)[-1]
        return path == str(self.path) and isinstance(self._statement_at(line), ast.Raise)

    def _statement_at(self, line: int) -> ast.stmt:
        """Return the innermost statement at a line."""
        around = [
            node
            for node in ast.walk(ast.parse(self.text))
            if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno)
        ]
        return max(around, key=lambda node: node.lineno)


def _calls_of(error: Exception) -> list[tuple[str, int]]:
    """Return the file and line of each call that an error passed through, outermost first."""
    trace = traceback.walk_tb(error.__traceback__)
    return [(frame.f_code.co_filename, line) for frame, line in trace]


def _import(path: Path) -> ModuleType:
    name = f"torchport_generated_{uuid.uuid4().hex}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[name]
    return module


def _compare(original: Original, made: nn.Module, code: _Code) -> None:
    """Compare on the example, and on inputs of other sizes if the model accepts them."""
    try:
        expected = _run(original.model, original.arguments)
    except Exception as error:  # it ran on fake tensors, but may still fail on real ones
        raise CodegenError(
            f"the model itself raises {type(error).__name__} on its example inputs: {one_line(error)}",
            remedy="call the model on these inputs without torchport, and fix it or the inputs first",
        ) from error
    with code.explained("fails"):
        actual = _run(made, original.arguments)
    difference = _difference(original, original.arguments, expected, actual)
    if difference:
        raise CodegenError(f"the generated code gives a different result: {difference}")
    for arguments, wanted in _others(original):
        sizes = [tuple(leaf.shape) for leaf in _leaves(arguments)]
        with code.explained(f"fails for inputs of {sizes}"):
            try:
                actual = _run(made, arguments)
            except ValueError as error:
                if not code.is_guard(error):
                    raise
                continue  # it refuses these inputs
        difference = _difference(original, arguments, wanted, actual)
        if difference:
            raise CodegenError(
                f"the generated code gives a different result for inputs of {sizes}: {difference}"
            )


def _difference(original: Original, arguments: Sequence[Argument], expected: object, actual: object) -> str:
    """Return where the code's result differs from the model's; empty if it does not.

    A model may check whether it is being compiled, and in eager mode skip a mask that masks nothing: other
    ops, which round differently. The code has the compiled path, so it is then compared with that.
    """
    difference = first_difference(expected, actual)
    if not difference or not compare(actual, expected).ok:
        return difference
    try:
        with compiling():
            compiled = _run(original.model, arguments)
    except Exception:  # noqa: BLE001  # the model has no compiled path: report the difference found
        return difference
    return difference if first_difference(compiled, actual) else ""


def _others(original: Original) -> Iterator[tuple[list[Argument], object]]:
    """Yield inputs of other sizes that the model accepts, with its results; most sizes changed first."""
    sizes = input_sizes(original.arguments)
    trials = [original.free] if original.free else []
    if original.free is None:
        trials = [tuple(sizes), *((size,) for size in sizes)]
    for trial in trials:
        arguments = with_other_sizes(original.arguments, trial)
        try:
            wanted = _run(original.model, arguments)
        except Exception:  # noqa: BLE001  # a model may reject other sizes in any way
            continue
        yield arguments, wanted
        if len(trial) == len(sizes):
            return


def _leaves(arguments: Sequence[Argument]) -> list[torch.Tensor]:
    return flatten([argument.value for argument in arguments]).leaves


def _run(module: nn.Module, arguments: Sequence[Argument]) -> object:
    flat = flatten([argument.value for argument in arguments])
    inputs = flat.structure.rebuild([leaf.detach().clone() for leaf in flat.leaves])
    assert isinstance(inputs, list)
    args = [value for value, argument in zip(inputs, arguments, strict=True) if not argument.keyword]
    kwargs = {argument.name: v for v, argument in zip(inputs, arguments, strict=True) if argument.keyword}
    stand_in = StandIn(module, copy_of)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        return stand_in.module(*args, **kwargs)


def first_difference(expected: object, actual: object) -> str:
    """Return where two results differ, bit for bit; empty if they do not."""
    if type(expected) is not type(actual):
        return f"a {type(actual).__name__} instead of a {type(expected).__name__}"
    theirs, ours = flatten(expected), flatten(actual)
    if theirs.structure.paths != ours.structure.paths:
        return f"tensors at {list(ours.structure.paths)} instead of {list(theirs.structure.paths)}"
    for path, left, right in zip(theirs.structure.paths, theirs.leaves, ours.leaves, strict=True):
        if left.shape != right.shape or left.dtype != right.dtype:
            return f"{path} is {tuple(right.shape)} {right.dtype}, not {tuple(left.shape)} {left.dtype}"
        if not torch.equal(tensor_bytes(left), tensor_bytes(right)):
            error = (left.to(torch.float64) - right.to(torch.float64)).abs().max().item()
            return f"{path} differs by up to {error:.3g}"
    return ""
