"""Maps a user's `dynamic_shapes` to the tensors of the inputs, and checks shapes against the limits."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence

import torch
from torch import nn
from torch.export import Dim, ExportedProgram

from torchport.capture.callable_module import CallableModule
from torchport.errors import CaptureError, RuntimeRefusal, nearest
from torchport.structure import Flat, flatten

ANY_SHAPE = "any"  # every dimension may vary, as far as the model permits
ANY_BATCH = "batch"  # the first dimension of each tensor may vary


def spread_over_leaves(
    module: nn.Module,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    flat: Flat,
    dynamic_shapes: object,
) -> tuple[object, ...] | None:
    """Return one entry per input tensor: its dynamic dimensions, or None; None if all shapes are static.

    Args:
        module: the module, for the names of its positional inputs.
        args, kwargs: the inputs.
        flat: the same inputs, flattened.
        dynamic_shapes: nested entries in a dict by input name or a tuple by position; or `ANY_SHAPE`, or
            `ANY_BATCH`.

    Raises:
        CaptureError: an entry matches no input.
    """
    if dynamic_shapes is None:
        return None
    if dynamic_shapes == ANY_SHAPE:
        return tuple(dict.fromkeys(range(leaf.dim()), Dim.AUTO) for leaf in flat.leaves)
    if dynamic_shapes == ANY_BATCH:
        return tuple({0: Dim.AUTO} if leaf.dim() else None for leaf in flat.leaves)
    if isinstance(dynamic_shapes, str):
        raise CaptureError(
            f"unknown dynamic_shapes {dynamic_shapes!r}",
            remedy=nearest(dynamic_shapes, [ANY_SHAPE, ANY_BATCH]),
        )
    named = _by_name(module, args, kwargs)
    entries = _entries_by_name(list(named), dynamic_shapes)
    found: dict[int, object] = {}
    for name, value in named.items():
        _walk(value, entries.get(name), name, found)
    return tuple(found.get(id(leaf)) for leaf in flat.leaves)


def _by_name(module: nn.Module, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, object]:
    """Return the inputs, keyed by their names in the forward or function; `*args` become `args_0`, …"""
    names = [
        parameter.name
        for parameter in _signature(module).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    names += [f"args_{index}" for index in range(len(names), len(args))]
    return dict(zip(names, args, strict=False)) | dict(kwargs)


def _signature(module: nn.Module) -> inspect.Signature:
    called = module.function if isinstance(module, CallableModule) else module.forward
    try:
        return inspect.signature(called)
    except ValueError:  # a builtin function, which has none
        return inspect.signature(module.forward)


def _entries_by_name(names: list[str], dynamic_shapes: object) -> dict[str, object]:
    if isinstance(dynamic_shapes, Mapping):
        for name in dynamic_shapes:
            if name not in names:
                raise CaptureError(
                    f"dynamic_shapes names the input {name!r}, which is not among the inputs",
                    remedy=nearest(str(name), names),
                )
        return dict(dynamic_shapes)
    if isinstance(dynamic_shapes, Sequence):
        if len(dynamic_shapes) > len(names):
            raise CaptureError(f"dynamic_shapes has {len(dynamic_shapes)} entries for {len(names)} inputs")
        return dict(zip(names, dynamic_shapes, strict=False))
    raise CaptureError(f"dynamic_shapes must be a dict or a tuple, not {type(dynamic_shapes).__name__}")


def _walk(value: object, entry: object, path: str, found: dict[int, object]) -> None:
    if entry is None:
        return
    if isinstance(value, torch.Tensor):
        found[id(value)] = entry
    elif isinstance(value, Mapping) and isinstance(entry, Mapping):
        for key, inner in entry.items():
            if key not in value:
                raise CaptureError(f"dynamic_shapes names {path}[{key!r}], which is not in the input")
            _walk(value[key], inner, f"{path}[{key!r}]", found)
    elif isinstance(value, Sequence) and isinstance(entry, Sequence) and len(value) == len(entry):
        for index, inner in enumerate(entry):
            _walk(value[index], inner, f"{path}[{index}]", found)
    elif isinstance(entry, Sequence) and not isinstance(entry, str):
        leaves = flatten(value).leaves
        if len(leaves) != len(entry):
            raise CaptureError(
                f"dynamic_shapes has {len(entry)} entries for the {len(leaves)} tensors of {path}"
            )
        for leaf, inner in zip(leaves, entry, strict=True):
            found[id(leaf)] = inner
    else:
        raise CaptureError(f"dynamic_shapes does not match the input {path}, a {type(value).__name__}")


def input_shapes(program: ExportedProgram) -> list[list[object]]:
    """Return the sizes of a program's inputs: numbers, or expressions of symbols."""
    names = set(program.graph_signature.user_inputs)
    return [
        [size if isinstance(size, int) else size.node.expr for size in node.meta["val"].shape]
        for node in program.graph.nodes
        if node.op == "placeholder" and node.name in names
    ]


class ShapeLimits:
    """The input shapes that a dynamically exported program accepts.

    Args:
        shapes: the sizes of each input tensor: numbers, or expressions of symbols.
        ranges: the minimum and maximum of each symbol.
        paths: the path of each tensor in the inputs.
    """

    def __init__(
        self,
        shapes: Sequence[Sequence[object]],
        ranges: Mapping[object, tuple[int, int]],
        paths: Sequence[str],
    ) -> None:
        self._shapes = shapes
        self._ranges = ranges
        self._paths = paths

    @classmethod
    def of(cls, program: ExportedProgram, paths: Sequence[str]) -> ShapeLimits:
        """Read the limits off an exported program."""
        ranges = {
            symbol: (_whole(limits.lower), _whole(limits.upper))
            for symbol, limits in program.range_constraints.items()
            if symbol.is_symbol  # derived expressions such as 2*s0 are listed too: they follow from symbols
        }
        return cls(input_shapes(program), ranges, paths)

    def check(self, leaves: Sequence[torch.Tensor], name: str) -> None:
        """Refuse inputs with shapes that the model was not compiled for.

        Raises:
            RuntimeRefusal: a shape is not allowed; the message names the input, the dimension and the limits.
        """
        if len(leaves) != len(self._shapes):
            raise RuntimeRefusal(
                f"{len(leaves)} tensors are given, {len(self._shapes)} expected",
                where=name,
                remedy="if one tensor is given twice, pass a copy",
            )
        values: dict[object, int] = {}
        for leaf, sizes, path in zip(leaves, self._shapes, self._paths, strict=True):
            if leaf.dim() != len(sizes):
                raise RuntimeRefusal(f"{path} has {leaf.dim()} dimensions, {len(sizes)} expected", where=name)
            for dim, (size, allowed) in enumerate(zip(leaf.shape, sizes, strict=True)):
                if allowed in self._ranges:
                    self._check_symbol(values, allowed, size, f"dimension {dim} of {path}", name)
        for leaf, sizes, path in zip(leaves, self._shapes, self._paths, strict=True):
            for dim, (size, allowed) in enumerate(zip(leaf.shape, sizes, strict=True)):
                self._check_derived(values, allowed, size, f"dimension {dim} of {path}", name)
                wanted = allowed if isinstance(allowed, int) else int(allowed.subs(values))  # type: ignore[attr-defined]  # a sympy expression
                if size != wanted:
                    raise RuntimeRefusal(
                        f"dimension {dim} of {path} is {size}, but must be {wanted}",
                        where=name,
                        remedy="name the dimension in dynamic_shapes, or compile without dynamic_shapes",
                    )

    def _check_symbol(
        self, values: dict[object, int], symbol: object, size: int, what: str, name: str
    ) -> None:
        low, high = self._ranges[symbol]
        if not low <= size <= high:
            raise RuntimeRefusal(
                f"{what} is {size}, outside {low} … {high}", where=name, remedy="widen dynamic_shapes"
            )
        if values.setdefault(symbol, size) != size:
            raise RuntimeRefusal(f"{what} is {size}, but must equal {values[symbol]}", where=name)

    def _check_derived(
        self, values: dict[object, int], allowed: object, size: int, what: str, name: str
    ) -> None:
        """Infer a symbol that is not itself a size, as in `2 * Dim("half")`: torch only has linear ones."""
        unknown: set[object] = getattr(allowed, "free_symbols", set()) - values.keys()
        if len(unknown) != 1:
            return
        [symbol] = unknown
        start, next_one = (int(allowed.subs({**values, symbol: value})) for value in (0, 1))  # type: ignore[attr-defined]  # a sympy expression
        value, remainder = divmod(size - start, next_one - start)
        if remainder:
            raise RuntimeRefusal(
                f"{what} is {size}, but must be {allowed} for a whole number {symbol}", where=name
            )
        self._check_symbol(values, symbol, value, f"{symbol}, where {what} is {allowed},", name)


def _whole(limit: object) -> int:
    """Return a limit as an int; infinity as the largest possible size."""
    try:
        return int(limit)  # type: ignore[call-overload, no-any-return]  # a sympy number
    except (TypeError, OverflowError, ValueError, AttributeError):
        return 2**63 - 1
