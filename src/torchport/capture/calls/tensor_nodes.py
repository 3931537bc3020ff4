"""Maps every tensor of a run to the node it comes from: a result, a part of one, a weight, or a constant."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn

from torchport.capture.calls.traced_calls import TracedCall
from torchport.capture.user_frames import attribute_name
from torchport.torch_private import FakeTensor, is_functorch_wrapped_tensor


class LostTensor(Exception):
    """A tensor comes from code that a function mode does not see."""


@dataclass(slots=True)
class _Value:
    """A tensor of the run, with the node that returned it and its path in that node's result."""

    tensor: torch.Tensor
    node: fx.Node
    path: tuple[object, ...] = ()


class TensorNodes:
    """The nodes of the tensors of one run.

    Args:
        graph: the graph that contains them.
        model: the model, for the paths of its weights.
    """

    def __init__(self, graph: fx.Graph, model: nn.Module) -> None:
        self.constants: dict[str, torch.Tensor] = {}
        self.devices: dict[int, tuple[torch.device, torch.Tensor]] = {}
        self._graph = graph
        self._values: dict[int, _Value] = {}
        self._weights = weight_paths(model)
        self._paths = set(self._weights.values())
        self._attributes: dict[tuple[TracedCall, str], fx.Node] = {}
        self._tails: dict[fx.Node, fx.Node] = {}

    def register(self, value: object, node: fx.Node, path: tuple[object, ...] = ()) -> None:
        """Register the tensors in a node's result."""
        if isinstance(value, torch.Tensor):
            self._values[id(value)] = _Value(value, node, path)
            if isinstance(value, FakeTensor):
                # Reads of its device bypass every mode: a unique device object identifies the tensor.
                device = value.fake_device = torch.device(str(value.fake_device))
                self.devices[id(device)] = (device, value)
        elif isinstance(value, (list, tuple)):
            for index, item in enumerate(value):
                self.register(item, node, (*path, index))
        elif isinstance(value, dict):
            for key, item in value.items():
                self.register(item, node, (*path, key))

    def replace(self, old: fx.Node, new: fx.Node) -> None:
        """Map the tensors of one node to another node."""
        for value in self._values.values():
            if value.node is old:
                value.node = new

    def is_known(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is an input or a result of the run, rather than a weight or a constant."""
        return id(tensor) in self._values

    def node_of(self, tensor: torch.Tensor, call: TracedCall) -> fx.Node:
        """Return the node that a tensor comes from.

        Args:
            tensor: a tensor that the model uses.
            call: the module call in progress.

        Raises:
            LostTensor: the tensor's origin was not recorded.
        """
        known = self._values.get(id(tensor))
        if known is None:
            return self._attribute(tensor, call)
        for key in known.path:
            known.node = self._item(known.node, key)
        if known.path:
            known.node.meta["val"] = tensor
            known.path = ()
        return known.node

    def _item(self, node: fx.Node, key: Any) -> fx.Node:
        for user in node.users:
            if user.meta.get("item") == key and user.args[0] is node:
                return user
        with self._graph.inserting_after(self._tails.get(node, node)):
            item = self._graph.call_function(operator.getitem, (node, key))
        self._tails[node] = item
        item.meta.update({name: value for name, value in node.meta.items() if name != "val"}, item=key)
        return item

    def _attribute(self, tensor: torch.Tensor, call: TracedCall) -> fx.Node:
        if isinstance(tensor, FakeTensor):
            if tensor.constant is None:
                raise LostTensor
            tensor = tensor.constant
        if is_functorch_wrapped_tensor(tensor):
            raise LostTensor
        path = self._weights.get(id(tensor)) or self._add_constant(tensor, call)
        owner = next(c for c in call.ancestors() if not c.path or path.startswith(c.path + "."))
        if (owner, path) not in self._attributes:
            node = self._graph.create_node("get_attr", path)
            node.meta.update(module_call=owner, nn_module_stack=owner.stack, val=tensor)
            self._attributes[owner, path] = node
        return self._attributes[owner, path]

    def _add_constant(self, tensor: torch.Tensor, call: TracedCall) -> str:
        """Store a tensor that is not one of the model's weights, in the module that uses it first."""
        prefix = f"{call.path}." if call.path else ""
        base = prefix + (attribute_name(tensor) or "constant")
        path = base
        number = 2
        while path in self._paths:
            path = f"{base}{number}"
            number += 1
        self.constants[path] = tensor
        self._paths.add(path)
        self._weights[id(tensor)] = path
        return path


def weight_paths(model: nn.Module) -> dict[int, str]:
    """Return the paths of a model's parameters and buffers, by id; of a shared one, the first path."""
    paths: dict[int, str] = {}
    for path, tensor in (*model.named_parameters(), *model.named_buffers()):
        paths.setdefault(id(tensor), path)
    return paths
