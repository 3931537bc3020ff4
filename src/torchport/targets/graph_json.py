"""Encodes graphs of op calls as JSON and decodes them: the format of packages, host islands and child builds.

Values are numbered: first the graph's inputs, then its tensors, then the results of its calls. The file does
not name them, so none of its text can become code: torch.fx generates code from names made here.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Literal, cast

import torch
from torch import fx

from torchport.errors import TargetError
from torchport.targets.checked_ops import CHECKED, CheckedOp
from torchport.targets.graph_arguments import Reference, decode_argument, encode_argument
from torchport.targets.permitted_ops import find_permitted, item_type, why_refused
from torchport.targets.size_functions import NAMES_ON_SIZES, ON_SIZES
from torchport.torch_private import OpOverload

GETITEM, ISLAND, WRITE = "getitem", "torchport.island.default", "aten.copy_.default"
ValueKind = Literal["input", "tensor", "result", "sequence", "number"]


def encode_graph(graph: fx.Graph, *, of_host: bool = False) -> dict[str, object]:
    """Return a graph as JSON.

    Args:
        graph: the graph, with placeholders, attributes, calls of ops, and a tuple as its output.
        of_host: whether it is the host graph of a program, which calls islands and writes buffers.

    Raises:
        TargetError: an op or an argument cannot be stored; says which and why.
    """
    numbers: dict[fx.Node, int] = {}
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    attributes = [node for node in graph.nodes if node.op == "get_attr"]
    tensors = list(dict.fromkeys(str(node.target) for node in attributes))
    numbers.update({node: number for number, node in enumerate(inputs)})
    numbers.update({node: len(inputs) + tensors.index(str(node.target)) for node in attributes})
    calls: list[dict[str, object]] = []
    for node in graph.nodes:
        if node.op == "call_function":
            calls.append(_encode_call(node, numbers, of_host=of_host))
            numbers[node] = len(inputs) + len(tensors) + len(calls) - 1
    outputs = graph.output_node().args[0]
    encoded = [encode_argument(item, numbers) for item in cast("tuple[object, ...]", outputs)]
    return {"inputs": len(inputs), "tensors": tensors, "calls": calls, "outputs": encoded}


def value_numbers(graph: fx.Graph) -> dict[int, fx.Node]:
    """Return the nodes of a graph by the numbers that `encode_graph` gives them."""
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    tensors = {str(node.target): node for node in reversed(graph.nodes) if node.op == "get_attr"}
    names = dict.fromkeys(str(node.target) for node in graph.nodes if node.op == "get_attr")
    calls = [node for node in graph.nodes if node.op == "call_function"]
    return dict(enumerate([*inputs, *[tensors[name] for name in names], *calls]))


def why_not_encoded(node: fx.Node) -> str:
    """Return why a call cannot be stored; empty if it can."""
    try:
        _encode_call(node, dict.fromkeys(node.all_input_nodes, 0), of_host=False)
    except TargetError as error:
        return error.what
    return ""


def _encode_call(node: fx.Node, numbers: Mapping[fx.Node, int], *, of_host: bool) -> dict[str, object]:
    name = name_of_op(node.target)
    if (
        isinstance(node.target, OpOverload)
        and name not in CHECKED
        and not (of_host and name in (ISLAND, WRITE))
    ):
        reason = why_refused(node.target)
        if reason:
            raise TargetError(f"{name} {reason}", where=node.name)
    return {
        "op": name,
        "args": [encode_argument(argument, numbers) for argument in node.args],
        "kwargs": {key: encode_argument(argument, numbers) for key, argument in node.kwargs.items()},
    }


def name_of_op(target: object) -> str:
    """Return the name of a call's function in the format.

    Raises:
        TargetError: the format has no such function.
    """
    if target is operator.getitem:
        return GETITEM
    if isinstance(target, (OpOverload, CheckedOp)):
        return str(target)
    if callable(target) and target in NAMES_ON_SIZES:
        return NAMES_ON_SIZES[target]
    raise TargetError(f"{target} is not an ATen op")


def decode_graph(
    data: object, tensors: Mapping[str, torch.Tensor], *, of_host: bool = False
) -> fx.GraphModule:
    """Return a graph from its JSON; every op in it is permitted, and every node's name is generated.

    Args:
        data: the JSON, as `encode_graph` returns it.
        tensors: the graph's tensors, by their names in `data`.
        of_host: as for `encode_graph`.

    Raises:
        TargetError: the JSON is malformed, or calls an op that is not permitted.
    """
    fields = data if isinstance(data, Mapping) else {}
    count, names = fields.get("inputs"), fields.get("tensors")
    calls, outputs = fields.get("calls"), fields.get("outputs")
    if type(count) is not int or not 0 <= count <= _MOST_INPUTS:
        raise TargetError("the graph does not say how many inputs it has")
    if not (isinstance(names, list) and isinstance(calls, list) and isinstance(outputs, list)):
        raise TargetError("the graph has no list of tensors, calls or outputs")
    reader = _Reader(of_host)
    for number in range(count):
        reader.add(reader.graph.placeholder(f"x{number}"), "input")
    attributes: dict[str, torch.Tensor] = {}
    for number, name in enumerate(names):
        if not isinstance(name, str) or name not in tensors:
            raise TargetError(f"the tensor {str(name)[:80]!r} of the graph is missing")
        attributes[f"t{number}"] = tensors[name]
        reader.add(reader.graph.create_node("get_attr", f"t{number}", name=f"t{number}"), "tensor")
    for call in calls:
        reader.call(call)
    reader.graph.output(tuple(reader.value(item) for item in outputs))
    return fx.GraphModule(attributes, reader.graph, "Program")


_MOST_INPUTS = 1 << 16


class _Reader:
    """Creates the nodes of a graph, checking each.

    Args:
        of_host: as for `encode_graph`.
    """

    def __init__(self, of_host: bool) -> None:
        self.graph = fx.Graph()
        self._of_host = of_host
        self._nodes: list[fx.Node] = []
        self._kinds: list[ValueKind] = []

    def add(self, node: fx.Node, kind: ValueKind) -> None:
        """Assign the next number to a node."""
        self._nodes.append(node)
        self._kinds.append(kind)

    def value(self, data: object) -> fx.Node | None:
        """Return the node of an output: a tensor, or None where the result has none."""
        found = self._node(decode_argument(data)) if data is not None else None
        if found is not None and not isinstance(found, fx.Node):
            raise TargetError(f"an output is {str(data)[:80]!r}, which is not a value of the graph")
        return found

    def call(self, data: object) -> None:
        """Create the node of a call."""
        if not isinstance(data, Mapping) or not isinstance(name := data.get("op"), str):
            raise TargetError(f"a call is malformed: {str(data)[:80]!r}")
        args, kwargs = data.get("args"), data.get("kwargs")
        if not isinstance(args, list) or not isinstance(kwargs, Mapping):
            raise TargetError(f"a call of {name[:80]!r} has no arguments")
        given = [decode_argument(item) for item in args]
        named = {str(key): decode_argument(item) for key, item in kwargs.items()}
        function, kind = self._function(name, given, named)
        node = self.graph.create_node(
            "call_function",
            function,
            tuple(self._node(item) for item in given),  # type: ignore[misc]  # as `decode_argument` returns
            {key: self._node(item) for key, item in named.items()},  # type: ignore[misc]  # as above
            f"v{len(self._nodes)}",
        )
        self.add(node, kind)

    def _function(
        self, name: str, args: list[object], kwargs: Mapping[str, object]
    ) -> tuple[Callable[..., object], ValueKind]:
        """Return the function of a call, and the kind of its result."""
        if name == GETITEM:
            self._check_getitem(args, kwargs)
            return operator.getitem, "result"
        if name in ON_SIZES:
            self._check_numbers(name, args, kwargs)
            return ON_SIZES[name], "number"
        if self._of_host and name == ISLAND:
            self._check_island(args, kwargs)
            return torch.ops.torchport.island.default, "sequence"
        if self._of_host and name == WRITE:
            self._check_write(args, kwargs)
            return torch.ops.aten.copy_.default, "result"
        checked = CHECKED.get(name)
        op = find_permitted(name) if checked is None else checked.op
        _check_arguments(op, args, kwargs)
        return checked or op, _kind_of_result(op)

    def _node(self, argument: object) -> object:
        """Return an argument with references replaced by nodes."""
        if isinstance(argument, list):
            return [self._node(item) for item in argument]
        if not isinstance(argument, Reference):
            return argument
        if not 0 <= argument.number < len(self._nodes):
            raise TargetError(f"a call takes the value {argument.number}, which is not computed before it")
        return self._nodes[argument.number]

    def _kind(self, argument: object) -> ValueKind | None:
        if isinstance(argument, Reference) and 0 <= argument.number < len(self._kinds):
            return self._kinds[argument.number]
        return None

    def _check_getitem(self, args: list[object], kwargs: Mapping[str, object]) -> None:
        if kwargs or len(args) != 2 or self._kind(args[0]) != "sequence" or type(args[1]) is not int:
            raise TargetError("getitem takes a result of several tensors, and an index")

    def _check_numbers(self, name: str, args: list[object], kwargs: Mapping[str, object]) -> None:
        numbers = (type(item) in (bool, int, float) or self._kind(item) == "number" for item in args)
        if kwargs or not 1 <= len(args) <= 2 or not all(numbers):
            raise TargetError(f"{name} takes only sizes and numbers")

    def _check_island(self, args: list[object], kwargs: Mapping[str, object]) -> None:
        if kwargs or len(args) != 3 or self._kind(args[0]) != "tensor" or not isinstance(args[1], str):
            raise TargetError("an island takes its payload, its metadata and a list of tensors")
        tensors = args[2] if isinstance(args[2], list) else [None]
        if not all(self._kind(item) in ("input", "tensor", "result") for item in tensors):
            raise TargetError("an island takes its payload, its metadata and a list of tensors")

    def _check_write(self, args: list[object], kwargs: Mapping[str, object]) -> None:
        """Permit a host graph to write only its inputs and buffers, as models do."""
        source = self._kind(args[1]) if len(args) == 2 else None
        if kwargs or source is None or self._kind(args[0]) not in ("input", "tensor"):
            raise TargetError(f"{WRITE} may only write to an input or buffer of the graph")


# torch accepts a plain integer for any of these, unchecked.
_OWN_TYPES: dict[str, type | tuple[type, ...]] = {
    "ScalarType": torch.dtype,
    "Layout": torch.layout,
    "MemoryFormat": torch.memory_format,
    "Device": torch.device,
    "Generator": (),
}


def _check_arguments(op: OpOverload, args: list[object], kwargs: Mapping[str, object]) -> None:
    """Reject arguments that the op does not have; torch itself rejects most wrong types when called."""
    arguments = op._schema.arguments
    positional = [argument.name for argument in arguments if not argument.kwarg_only]
    given = dict(zip(positional, args, strict=False))
    known = {argument.name for argument in arguments} - set(given)
    if len(args) > len(positional) or not set(kwargs) <= known:
        raise TargetError(f"{op} does not take {len(args)} positional arguments and {sorted(kwargs)[:8]}")
    given.update(kwargs)
    for argument in arguments:
        if argument.name not in given:
            if not argument.has_default_value():
                raise TargetError(f"{op} is called without its argument {argument.name!r}")
            continue
        wanted = _OWN_TYPES.get(item_type(argument))
        value = given[argument.name]
        if wanted is not None and value is not None and not isinstance(value, wanted):
            raise TargetError(f"{op} is called with {value!r} for its argument {argument.name!r}")


def _kind_of_result(op: OpOverload) -> ValueKind:
    returns = [str(result.type) for result in op._schema.returns]
    if len(returns) != 1 or returns[0].startswith("List"):
        return "sequence"
    return "result" if returns[0] == "Tensor" else "number"
