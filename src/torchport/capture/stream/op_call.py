"""One call of a torch op: its arguments by their schema names, its tensors by shape and dtype."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from torchport.capture.tensor_specs import tensor_spec
from torchport.records import TensorSpec
from torchport.torch_private import OpOverload, disable_current_modes, script_type


@dataclass(frozen=True, slots=True)
class OpCall:
    """A call of an op.

    Args:
        op: the op.
        arguments: every argument of the op's schema by name, including defaults; each tensor, also within
            lists, is replaced by a `TensorSpec`.
        results: the flattened results; None for each that is not a tensor.
    """

    op: OpOverload
    arguments: Mapping[str, object]
    results: tuple[TensorSpec | None, ...]

    @property
    def name(self) -> str:
        """The op's name without the overload, such as `aten::conv2d`."""
        return str(self.op._schema.name)

    def tensor(self, argument: str) -> TensorSpec:
        """Return a tensor argument.

        Raises:
            KeyError: the argument is not a tensor, or does not exist.
        """
        value = self.arguments[argument]
        if not isinstance(value, TensorSpec):
            raise KeyError(argument)
        return value

    def tensors(self) -> Iterator[tuple[str, TensorSpec]]:
        """Yield the tensors in the arguments with their names; those in a list as `name[0]`, …"""
        for name, value in self.arguments.items():
            if isinstance(value, TensorSpec):
                yield name, value
            elif isinstance(value, tuple):
                for index, item in enumerate(value):
                    if isinstance(item, TensorSpec):
                        yield f"{name}[{index}]", item


@dataclass(frozen=True, slots=True)
class OpArgument:
    """An argument of an op's schema: its name, its default, and whether the op writes to it."""

    name: str
    default: object
    written: bool


@functools.lru_cache(maxsize=4096)
def schema_arguments(op: OpOverload) -> tuple[OpArgument, ...]:
    """Return the arguments of an op's schema, positional ones first."""
    return tuple(
        OpArgument(
            argument.name,
            argument.default_value if argument.has_default_value() else None,
            argument.alias_info is not None and argument.alias_info.is_write,
        )
        for argument in op._schema.arguments
    )


def describe_call(
    op: OpOverload, args: Sequence[object], kwargs: Mapping[str, object], result: object
) -> OpCall:
    """Return a description of a call, without its tensors' values.

    Example:
        >>> x = torch.ones(2)
        >>> describe_call(torch.ops.aten.add.Tensor, (x, x), {}, x).arguments["alpha"]
        1
    """
    arguments: dict[str, object] = {}
    for index, argument in enumerate(schema_arguments(op)):
        if index < len(args):
            arguments[argument.name] = _described(args[index])
        else:
            arguments[argument.name] = _described(kwargs.get(argument.name, argument.default))
    return OpCall(op, arguments, tuple(_results(result)))


def _described(value: object) -> object:
    """Return a value with specs in place of tensors; lists become tuples, so that calls can be compared."""
    if isinstance(value, torch.Tensor):
        return tensor_spec(value)
    if isinstance(value, (list, tuple)):
        return tuple(_described(item) for item in value)
    if isinstance(value, torch.ScriptObject):
        return _packed(value)
    return value


def _packed(value: torch.ScriptObject) -> object:
    """Return the spec of a quantized op's packed weight; for other objects, the name of the class."""
    name = script_type(value).rpartition(".")[2]
    try:
        with disable_current_modes():  # unpacking runs ops that are not the model's
            unpacked = value.unpack()  # type: ignore[attr-defined]  # if it has this method
    except (AttributeError, RuntimeError):
        return name
    weight = unpacked[0] if isinstance(unpacked, tuple) else unpacked
    return tensor_spec(weight) if isinstance(weight, torch.Tensor) else name


def _results(result: object) -> Iterator[TensorSpec | None]:
    if isinstance(result, (list, tuple)):
        for item in result:
            yield from _results(item)
    else:
        yield tensor_spec(result) if isinstance(result, torch.Tensor) else None
