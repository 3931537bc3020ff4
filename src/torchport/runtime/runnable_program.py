"""Runs a compiled program: the host graph with its islands, and the structure of its result."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import fx, nn

from torchport.errors import RuntimeRefusal
from torchport.records import IslandMeta, ProgramRecord
from torchport.runtime.autocast import is_casting, without_autocast
from torchport.runtime.forward_mode import refuse_tangents
from torchport.runtime.hook import register
from torchport.runtime.input_kind import InputKind, LeafKey
from torchport.runtime.island import LoadedIsland, check_inputs, load_island
from torchport.structure import Structure
from torchport.targets.graph_call import graph_call
from torchport.targets.node_checks import is_random
from torchport.targets.target import Meanwhile, OutOfRange
from torchport.torch_private import HigherOrderOperator


class RunnableProgram:
    """A compiled program for one kind of inputs.

    Args:
        record: the program's record.
        graph_module: the host graph; each island is one call of `torchport::island`.
        result: the structure of its result.
        kind: the kind of inputs, for a program from a file: the tensors passed to islands are then checked.
            None for a freshly compiled program, which is trusted.
        weights: the model's own tensors that the program reads: it must not mutate memory that they share.
    """

    def __init__(
        self,
        record: ProgramRecord,
        graph_module: fx.GraphModule,
        result: Structure,
        kind: InputKind | None = None,
        weights: Sequence[torch.Tensor] = (),
    ) -> None:
        register()  # if torch's entry point has not: torchport may only be on the import path
        self.record = record
        self.graph_module = graph_module
        self.result = result
        self.islands = _load_all(graph_module)
        self._whole = _whole_island(graph_module, self.islands)
        if self._whole is not None and kind is not None:
            places = self._whole.inputs if isinstance(self._whole, _Selection) else range(len(kind.keys))
            # A graph from a file may have more inputs than it declares.
            _check_kind(self._whole.meta, [kind.keys[index] for index in places if index < len(kind.keys)])
        self._call = self._whole or _direct(
            graph_module, self.islands, record.model, checked=kind is not None
        )
        self._draws = any(_draws(node) for node in graph_module.graph.nodes)
        self._written_inputs, self._written_buffers = _written(graph_module)
        self._weights = weights if self._written_inputs or self._written_buffers else ()

    def run(
        self,
        leaves: Sequence[torch.Tensor],
        objects: Sequence[object] = (),
        check: Meanwhile | None = None,
    ) -> object:
        """Run the program and return its result.

        Args:
            leaves: the inputs' tensors.
            objects: the inputs' mutable objects, which are updated as the model would update them.
            check: raises if the program must not be used; runs concurrently with the device if the program
                is a single island, which mutates nothing, else before it.

        Raises:
            OutOfRange: the program was not built for these values, or for forward-mode differentiation;
                nothing was mutated, and no random numbers were drawn.
        """
        refuse_tangents(leaves)
        if is_casting():
            with without_autocast():
                return self.run(leaves, objects, check)
        if self._whole is not None and check is not None:
            if torch.is_grad_enabled():
                with torch.no_grad():
                    outputs: Sequence[torch.Tensor] = self._whole.run_overlapped(leaves, check)
            else:  # checking grad mode is cheaper than disabling it again
                outputs = self._whole.run_overlapped(leaves, check)
            return self.result.rebuild(outputs, leaves, objects)
        if check is not None:
            check()
        if self._written_inputs or self._written_buffers:
            self._refuse_shared_memory(leaves)
        state = torch.get_rng_state() if self._draws else None
        try:
            with torch.no_grad():
                outputs = self._call(leaves)
        except Exception:
            if state is not None:  # a fallback must draw the same random numbers
                torch.set_rng_state(state)
            raise
        return self.result.rebuild(outputs, leaves, objects)

    def _refuse_shared_memory(self, leaves: Sequence[torch.Tensor]) -> None:
        """Refuse inputs and weights that alias what the graph mutates, which it does not account for.

        An input whose own elements overlap cannot be written to; this must be found out before any is.
        """
        if any(0 in _wide_strides(leaves[index]) for index in self._written_inputs):
            raise OutOfRange("an input that is mutated has elements that share memory")
        storages = [_storage(leaf) for leaf in leaves]
        inputs = [storages[index] for index in self._written_inputs if storages[index]]
        written = inputs + [storage for storage in map(_storage, self._written_buffers) if storage]
        readers = sum(storage in written for storage in storages)
        if readers > len(inputs) or len(set(written)) < len(written):
            raise OutOfRange("an input that is mutated shares its memory with another one")
        if any(_storage(weight) in written for weight in self._weights):
            raise OutOfRange("an input or a buffer that is mutated shares its memory with a weight")


def _storage(tensor: torch.Tensor) -> int:
    """Return the address of a tensor's storage, or 0 if it has none."""
    return tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided else 0


def _wide_strides(tensor: torch.Tensor) -> list[int]:
    """Return the strides of the dimensions larger than one."""
    if tensor.layout is not torch.strided:
        return []
    return [step for size, step in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]


def _draws(node: fx.Node) -> bool:
    """Whether a node may draw random numbers; a higher-order op may, since ops within it may."""
    return isinstance(node.target, HigherOrderOperator) or is_random(node)


def _written(graph_module: fx.GraphModule) -> tuple[list[int], list[torch.Tensor]]:
    """Return the indices of the inputs that a host graph mutates, and the buffers that it mutates."""
    placeholders = [node for node in graph_module.graph.nodes if node.op == "placeholder"]
    inputs, buffers = [], []
    for node in graph_module.graph.nodes:
        if node.target is torch.ops.aten.copy_.default:
            if node.args[0].op == "placeholder":
                inputs.append(placeholders.index(node.args[0]))
            else:
                buffers.append(getattr(graph_module, node.args[0].target))
    return inputs, buffers


def _load_all(graph_module: fx.GraphModule) -> dict[str, LoadedIsland]:
    """Load every island of a host graph, keyed by the name of the node that calls it."""
    return {
        node.name: load_island(getattr(graph_module, node.args[0].target), node.args[1])
        for node in graph_module.graph.nodes
        if node.target is torch.ops.torchport.island.default
    }


def _direct(
    graph_module: fx.GraphModule, islands: Mapping[str, LoadedIsland], where: str, *, checked: bool
) -> Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]]:
    """Return a function that runs the graph, calling islands directly rather than through the dispatcher."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    root = nn.Module()
    for node in graph_module.graph.nodes:
        if node.target is torch.ops.torchport.island.default:
            arguments = fx.map_arg(node.args[2], copies.__getitem__)
            copies[node] = graph.create_node("call_module", f"call_{node.name}", (arguments,))
            root.add_module(f"call_{node.name}", _IslandCall(islands[node.name], checked))
        elif node.op == "get_attr" and all(
            user.target is torch.ops.torchport.island.default and user.args[0] is node for user in node.users
        ):
            continue
        else:
            copies[node] = graph.node_copy(node, copies.__getitem__)
            if node.op == "get_attr":
                setattr(root, node.target, getattr(graph_module, node.target))
    module = fx.GraphModule(root, graph)
    forward = graph_call(module, where) if checked else module.forward
    return lambda leaves: forward(*leaves)


class _IslandCall(nn.Module):
    """An island as a module, which fx can call."""

    def __init__(self, island: LoadedIsland, checked: bool) -> None:
        super().__init__()
        self._island = island
        self.forward = self._check_and_call if checked else island  # called directly

    def _check_and_call(self, arguments: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        check_inputs(self._island.meta, arguments)
        return self._island(arguments)


class _Selection:
    """An island that is the whole program, but takes a subset of its inputs or reorders its results.

    Args:
        island: the island.
        inputs: the indices of the program's inputs that it takes, in the island's order.
        results: the indices of its results that the program returns, in the program's order.
    """

    def __init__(self, island: LoadedIsland, inputs: list[int], results: list[int]) -> None:
        self.meta = island.meta
        self.inputs = inputs
        self._island = island
        self._results = results

    def __call__(self, leaves: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run the program."""
        results = self._island([leaves[index] for index in self.inputs])
        return [results[index] for index in self._results]

    def run_overlapped(self, leaves: Sequence[torch.Tensor], meanwhile: Meanwhile) -> list[torch.Tensor]:
        """Run the program, and `meanwhile` concurrently if the device can, else before it."""
        results = self._island.run_overlapped([leaves[index] for index in self.inputs], meanwhile)
        return [results[index] for index in self._results]


def _check_kind(meta: IslandMeta, keys: Sequence[LeafKey]) -> None:
    """Refuse a single-island program whose inputs do not match the island's."""
    wanted = [(spec.shape, spec.dtype) for spec in meta.inputs]
    given = [(tuple(shape), str(dtype).removeprefix("torch.")) for shape, dtype, _, _ in keys]
    device = meta.properties.get("device", "cpu")
    if wanted != given or any(found.type != device for _, _, found, _ in keys):
        raise RuntimeRefusal(
            "the program takes other inputs than the island that it consists of",
            where=meta.name,
            remedy="get the file again",
        )


def _whole_island(
    graph_module: fx.GraphModule, islands: Mapping[str, LoadedIsland]
) -> LoadedIsland | _Selection | None:
    """Return the island that makes up the whole program, if one does: nothing else needs to be called."""
    calls = [node for node in graph_module.graph.nodes if node.op == "call_function"]
    places = {
        node: index
        for index, node in enumerate(node for node in graph_module.graph.nodes if node.op == "placeholder")
    }
    if not calls or calls[0].name not in islands:
        return None
    call, getitems = calls[0], calls[1:]
    if any(each.target is not operator.getitem or each.args[:1] != (call,) for each in getitems):
        return None
    returned = list(graph_module.graph.output_node().args[0])  # type: ignore[arg-type]  # a tuple
    if any(source not in places for source in call.args[2]) or any(node not in getitems for node in returned):
        return None
    island = islands[call.name]
    results = [node.args[-1] for node in returned]
    if any(index not in range(len(island.meta.outputs)) for index in results):
        return None
    inputs = [places[source] for source in call.args[2]]
    if inputs == list(range(len(places))) and results == list(range(len(island.meta.outputs))):
        return island
    return _Selection(island, inputs, results)
