"""Groups the nodes of a graph by the module call that they belong to, as a tree of nested calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from torch import fx

from torchport.capture import TracedCall


@dataclass(eq=False, slots=True)
class Scope:
    """The contents of one call of a module.

    Args:
        call: the call.
        items: its nodes and nested calls, in order.
        inputs: the nodes from outside that it uses.
        outputs: its nodes that are used outside.
        names: the user's variable names for its nodes.
    """

    call: TracedCall
    items: list[fx.Node | Scope] = field(default_factory=list)
    inputs: list[fx.Node] = field(default_factory=list)
    outputs: list[fx.Node] = field(default_factory=list)
    names: Mapping[fx.Node, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """The module's path."""
        return self.call.path

    def nodes(self) -> Iterator[fx.Node]:
        """Yield the nodes of this call and of nested calls."""
        for item in self.items:
            if isinstance(item, Scope):
                yield from item.nodes()
            else:
                yield item

    def scopes(self) -> Iterator[Scope]:
        """Yield this scope and nested scopes."""
        yield self
        for item in self.items:
            if isinstance(item, Scope):
                yield from item.scopes()


def build_scopes(graph: fx.Graph, *, hierarchy: bool) -> Scope:
    """Return the tree of a graph's calls.

    Args:
        graph: a graph of calls; nodes that were added by hand belong to the preceding node's call.
        hierarchy: whether each module call gets its own scope; if not, there is a single scope.
    """
    root = _root_call(graph)
    top = Scope(root)
    open_scopes = [top]
    call = root
    for node in graph.nodes:
        if node.op in ("placeholder", "output", "get_attr"):
            continue
        call = node.meta.get("module_call", call)
        if hierarchy:
            _move_to(open_scopes, call)
        open_scopes[-1].items.append(node)
    for scope in top.scopes():
        scope.names = scope.call.names
        _find_borders(scope)
    if not hierarchy:
        top.names = _all_names(graph)
    return top


def _all_names(graph: fx.Graph) -> dict[fx.Node, str]:
    """Return the variable names of a graph's nodes in any module's code, preferably their own module's."""
    names: dict[fx.Node, str] = {}
    for node in graph.nodes:
        for part in (node, *node.users):
            call = part.meta.get("module_call")
            name = None if call is None else call.names.get(node)
            if name:
                names[node] = name
                break
    return names


def _root_call(graph: fx.Graph) -> TracedCall:
    for node in graph.nodes:
        call: TracedCall | None = node.meta.get("module_call")
        if call is not None:
            return list(call.ancestors())[-1]
    return TracedCall("", "Model", None)


def _move_to(open_scopes: list[Scope], call: TracedCall) -> None:
    wanted = list(call.ancestors())[::-1]
    common = 0
    while common < min(len(wanted), len(open_scopes)) and open_scopes[common].call is wanted[common]:
        common += 1
    del open_scopes[common:]
    for inner in wanted[common:]:
        scope = Scope(inner)
        open_scopes[-1].items.append(scope)
        open_scopes.append(scope)


def _find_borders(scope: Scope) -> None:
    inside = set(scope.nodes())
    given = {node: index for index, (_, node) in reversed(list(enumerate(scope.call.inputs)))}
    used: dict[fx.Node, None] = {}
    for node in scope.nodes():
        for source in node.all_input_nodes:
            if source in inside or _is_own_weight(source, scope):
                continue
            used.setdefault(source)
        if any(user not in inside for user in node.users):
            scope.outputs.append(node)
    order = {node: index for index, node in enumerate(used)}
    scope.inputs = sorted(used, key=lambda node: (given.get(node, len(given)), order[node]))


def _is_own_weight(node: fx.Node, scope: Scope) -> bool:
    """Whether a node is a weight held by the scope's module or a submodule."""
    if node.op != "get_attr":
        return False
    owner: TracedCall = node.meta["module_call"]
    return owner.path == scope.path or not scope.path or str(node.target).startswith(scope.path + ".")
