"""Gives lowerings the values of nodes in the form, dtype and layout that they request.

A node's tensor has one of two forms on the device. *plain*: its own shape. *last*: its channels, torch's
dimension 1, are last and the rest is flattened, [1, 1, images × pixels, channels]; convolution and pooling
take and return this form. Elementwise ops keep the form of their operands, so a chain of them moves no data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import fx

from torchport.targets.integer_bounds import bounds_of
from torchport.targets.ttnn.builder import Builder, Value
from torchport.targets.ttnn.refusal import refuse
from torchport.targets.ttnn.ttnn_program import COMPUTE, DEVICE, Dtype, Layout, Name
from torchport.targets.value_ranges import fits
from torchport.torch_private import OpOverload

Form = Literal["plain", "last"]
Transform = Callable[[torch.Tensor], torch.Tensor]

TILE_LAYOUT, ROW_MAJOR_LAYOUT = Name("TILE_LAYOUT"), Name("ROW_MAJOR_LAYOUT")
_LAYOUTS = {"tile": TILE_LAYOUT, "row_major": ROW_MAJOR_LAYOUT}
_BFLOAT16_EXACT = (-256, 256)  # bfloat16 holds these integers exactly
_BFLOAT16_MOST = torch.finfo(torch.bfloat16).max
IN_FLOAT32 = "torchport_ttnn_in_float32"  # marks integers that become float32 although bfloat16 holds them


@dataclass(frozen=True, slots=True, eq=False)
class Formed:
    """A result and its form."""

    value: Value
    form: Form


Result = Value | Formed
Results = Result | list["Result | None"]


class Lowering:
    """The values of a graph's nodes while its program is written.

    Args:
        builder: the builder that calls are added to.
        compute_dtype: what float32 becomes on the device.
        weight_dtype: what the weights of products and convolutions become.
        weights: returns the tensor of a `get_attr` node; on the meta device when only a verdict is needed.
        in_float32: the nodes whose values are computed in float32 even if the rest is not.
    """

    def __init__(
        self,
        builder: Builder,
        compute_dtype: Dtype,
        weight_dtype: Dtype,
        weights: Callable[[fx.Node], torch.Tensor | None],
        in_float32: frozenset[fx.Node] = frozenset(),
    ) -> None:
        self.builder = builder
        self.in_float32 = in_float32
        self.compute_dtype = compute_dtype
        self.weight_dtype = weight_dtype
        self._weights = weights
        self._values: dict[fx.Node, dict[Form, Value]] = {}
        self._unshaped: dict[str, Value] = {}  # the value before a reshape, by the result's name
        self.fused: dict[fx.Node, Any] = {}

    # Values

    def put(self, node: fx.Node, result: Result) -> None:
        """Set the value of a node."""
        formed = result if isinstance(result, Formed) else Formed(result, "plain")
        expected = torch_value(node).shape if formed.form == "plain" else flat_shape(torch_value(node).shape)
        if tuple(expected) != formed.value.shape:
            refuse(
                "shape", f"{node.target} has the shape {list(formed.value.shape)} instead of {list(expected)}"
            )
        self._values.setdefault(node, {})[formed.form] = formed.value

    def share(self, node: fx.Node, origin: fx.Node) -> None:
        """Give a node the value of another node."""
        self._values[node] = self._values[origin]

    def has(self, node: fx.Node, form: Form) -> bool:
        """Whether a node's value exists in a form."""
        return form in self._values.get(node, {})

    def only_last(self, node: object) -> bool:
        """Whether a node's value exists only with channels last."""
        return isinstance(node, fx.Node) and self.has(node, "last") and not self.has(node, "plain")

    def get(
        self, node: object, dtype: Dtype | None = None, layout: Layout = "tile", form: Form = "plain"
    ) -> Value:
        """Return the value of a node, in the requested form, dtype and layout."""
        assert isinstance(node, fx.Node)
        if node.op == "get_attr":
            return self._constant(node, dtype or self.device_dtype(node), layout, form)
        forms = self._values[node]
        if form not in forms:
            forms[form] = self._reformed(node, form)
        return self.laid_out(self.cast(forms[form], dtype), layout)

    def _constant(self, node: fx.Node, dtype: Dtype, layout: Layout, form: Form) -> Value:
        if form == "plain":
            return self.weight(node, dtype=dtype, layout=layout)
        return self.weight(node, channels_last, "channels last", dtype=dtype, layout=layout)

    def _reformed(self, node: fx.Node, form: Form) -> Value:
        shape = tuple(torch_value(node).shape)
        spatial = shape[2:]
        if form == "last":
            value = self._values[node]["plain"]
            if shape[1] != 1 and math.prod(spatial) != 1:
                value = self.call("permute", value, (0, *range(2, len(shape)), 1))
            return self.reshaped(value, flat_shape(shape))
        value = self._values[node]["last"]
        if shape[1] == 1 or math.prod(spatial) == 1:
            return self.reshaped(value, shape)
        value = self.reshaped(value, (shape[0], *spatial, shape[1]))
        return self.call("permute", value, (0, len(shape) - 1, *range(1, len(shape) - 1)))

    # Weights

    def tensor_of(self, node: object) -> torch.Tensor | None:
        """Return a weight's tensor; None if the node is not a weight."""
        return self._weights(node) if isinstance(node, fx.Node) and node.op == "get_attr" else None

    def weight(
        self,
        node: fx.Node,
        transform: Transform | None = None,
        key: object = "",
        *,
        dtype: Dtype | None = None,
        layout: Layout = "tile",
        on_device: bool = True,
    ) -> Value:
        """Return a weight, transformed at compile time.

        Args:
            node: the weight's node.
            transform: a function of the weight's tensor; None leaves it unchanged.
            key: identifies the transform.
            dtype, layout, on_device: as in `Builder.weight`.
        """
        return self.computed(
            [node], transform or (lambda tensor: tensor), key,
            dtype=dtype or self.device_dtype(node), layout=layout, on_device=on_device,
        )  # fmt: skip

    def computed(
        self,
        nodes: Sequence[fx.Node],
        compute: Callable[..., torch.Tensor],
        key: object,
        *,
        dtype: Dtype,
        layout: Layout = "tile",
        on_device: bool = True,
    ) -> Value:
        """Return a constant computed from weights at compile time."""
        tensors = [self._weights(node) for node in nodes]
        shape = tuple(compute(*[tensor.detach().to("meta") for tensor in tensors]).shape)  # type: ignore[union-attr]  # weights
        names = tuple(str(node.target) for node in nodes)
        return self.builder.weight(
            names[0], shape, dtype, layout,
            lambda: compute(*[tensor.detach() for tensor in tensors]),  # type: ignore[union-attr]  # weights
            (names, key), on_device=on_device,
        )  # fmt: skip

    def constant(self, tensor: torch.Tensor, key: object, wish: str, dtype: Dtype) -> Value:
        """Return a constant that is stored with the program."""
        return self.builder.weight(wish, tuple(tensor.shape), dtype, "tile", tensor.detach, key)

    # Calls

    def call(self, function: str, *args: Any, **kwargs: Any) -> Value:
        """Add a call."""
        return self.builder.call(function, *args, **kwargs)

    def precise(self, function: str, *args: Any, **kwargs: Any) -> Value:
        """Add a call of a function that takes a compute kernel config, which sets its precision."""
        return self.builder.call(function, *args, compute_kernel_config=COMPUTE, **kwargs)

    def full(self, shape: Sequence[int], number: float, dtype: Dtype) -> Value:
        """Return a tensor filled with one number."""
        number = finite_in(number, dtype)
        return self.call("full", tuple(shape), number, dtype=Name(dtype), layout=TILE_LAYOUT, device=DEVICE)

    def cast(self, value: Value, dtype: Dtype | None) -> Value:
        """Return a value in another dtype."""
        if dtype is None or value.dtype == dtype:
            return value
        return self.call("typecast", value, Name(dtype), wish=f"{value.name}_{dtype}")

    def laid_out(self, value: Value, layout: Layout) -> Value:
        """Return a value in another layout."""
        if value.layout == layout:
            return value
        return self.call("to_layout", value, _LAYOUTS[layout])

    def unshaped(self, value: Value) -> Value:
        """Return the value that this one was reshaped from, or the value itself."""
        return self._unshaped.get(value.name, value)

    def reshaped(self, value: Value, shape: Sequence[int]) -> Value:
        """Return a value in another shape."""
        origin = self.unshaped(value)
        if origin.shape == tuple(shape):
            return origin
        result = self.call("reshape", origin, tuple(shape))
        self._unshaped[result.name] = origin
        return result

    def permuted(self, value: Value, order: Sequence[int]) -> Value:
        """Return a value with its dimensions permuted; if only dimensions of size 1 move, by a reshape."""
        if list(order) == list(range(len(order))):
            return value
        moving = [place for place in order if value.shape[place] != 1]
        if moving == sorted(moving):
            return self.reshaped(value, [value.shape[place] for place in order])
        result = tuple(value.shape[place] for place in order)
        if is_wasteful(value.shape) or is_wasteful(result):
            ranks = {place: rank for rank, place in enumerate(sorted(moving))}
            thin = self.reshaped(value, [size for size in value.shape if size != 1])
            return self.reshaped(self.call("permute", thin, tuple(ranks[place] for place in moving)), result)
        return self.call("permute", value, tuple(order))

    # Dtypes

    def device_dtype(self, node: fx.Node) -> Dtype:
        """Return the device dtype for a node's dtype."""
        return self.dtype_for(torch_value(node).dtype)

    def dtype_for(self, dtype: torch.dtype) -> Dtype:
        """Return the device dtype for a torch dtype: booleans are zeros and ones in bfloat16."""
        if dtype is torch.float32:
            return self.compute_dtype
        if dtype in (torch.bfloat16, torch.bool):
            return "bfloat16"
        if dtype in (torch.int64, torch.int32):
            return "int32"
        return refuse("dtype", f"no dtype of ttnn holds {str(dtype).removeprefix('torch.')} exactly")

    def held_dtype(self, node: fx.Node) -> Dtype:
        """Return the dtype in which a node's value is stored on the device."""
        forms = self._values.get(node)
        return next(iter(forms.values())).dtype if forms else self.device_dtype(node)

    def held_layout(self, node: fx.Node, form: Form) -> Layout:
        """Return the layout of a node's value in a form; tiles if it does not exist in that form yet."""
        value = self._values.get(node, {}).get(form)
        return value.layout if value is not None else "tile"

    def exact_float(self, node: fx.Node) -> Dtype:
        """Return the float dtype for a node's values: float32 for integers that bfloat16 may not hold."""
        is_wide = torch_value(node).dtype in (torch.int64, torch.int32)
        if node.meta.get(IN_FLOAT32) or (is_wide and not fits(bounds_of(node), _BFLOAT16_EXACT)):
            return "float32"
        return self.compute_dtype


def torch_value(node: object) -> torch.Tensor:
    """Return the fake tensor of a node."""
    assert isinstance(node, fx.Node)
    value = node.meta["val"]
    assert isinstance(value, torch.Tensor)
    return value


def is_wasteful(shape: Sequence[int]) -> bool:
    """Whether one of the last two dimensions is 1 and would be padded to 32: it is better removed."""
    return len(shape) > 2 and 1 in shape[-2:]


def flat_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """Return a tensor's shape on the device in the form with channels last."""
    return (1, 1, shape[0] * math.prod(shape[2:]), shape[1])


def channels_last(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in the form with channels last, flattened."""
    return tensor.movedim(1, -1).reshape(1, 1, -1, tensor.shape[1])


def arguments(node: fx.Node) -> dict[str, Any]:
    """Return all arguments of a node by name, with defaults filled in."""
    assert isinstance(node.target, OpOverload)
    found: dict[str, Any] = {}
    for place, argument in enumerate(node.target._schema.arguments):
        if place < len(node.args):
            found[argument.name] = node.args[place]
        elif argument.name in node.kwargs:
            found[argument.name] = node.kwargs[argument.name]
        else:
            found[argument.name] = argument.default_value if argument.has_default_value() else None
    return found


def packet(node: fx.Node) -> str:
    """Return the name of a node's op, without namespace and overload."""
    return str(node.target).split(".")[1]


def positive(dim: int, rank: int) -> int:
    """Return a dimension index normalized to be non-negative."""
    return dim % rank if rank else 0


def size_pair(value: object, default: Sequence[int] = ()) -> tuple[int, int]:
    """Return one or two numbers as a pair."""
    numbers = [value] if isinstance(value, int) else list(value or default)  # type: ignore[call-overload]  # numbers
    return (numbers[0], numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[1])


def finite_in(number: float, dtype: Dtype) -> float:
    """Clamp a number to a dtype's range: float32's lowest number, used in masks, would become -inf."""
    if dtype != "bfloat16" or not math.isfinite(number):
        return number
    return max(-_BFLOAT16_MOST, min(_BFLOAT16_MOST, number))
