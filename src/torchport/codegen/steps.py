"""Plans a scope as a sequence of steps, each of which becomes a statement or part of one."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from torch import fx

from torchport.capture import hold
from torchport.codegen.expressions import AUGMENTED
from torchport.codegen.scopes import Scope

_READS = frozenset("size numel nelement dim stride".split())
_UNPACKED_AT_MOST = 8


@dataclass(eq=False, slots=True)
class Step:
    """One step.

    Args:
        item: the node, or the call of a module.
        operands: the nodes that it uses, in Python's evaluation order.
        results: the nodes that it produces; None for an unused part of an unpacked result.
        modes: the torch modes in which it runs.
        unpacked: whether `results` are the parts of one result.
        inlined: whether it is part of the statement of the step that uses it.
    """

    item: fx.Node | Scope
    operands: list[fx.Node]
    results: list[fx.Node | None]
    modes: object
    unpacked: bool = False
    inlined: bool = False


@dataclass(slots=True)
class Plan:
    """The steps of a scope.

    Args:
        scope: the scope.
        steps: its steps in order, including inlined ones.
        reads: nodes that are written at each use: sizes, dtypes, parts of results.
        returned: the nodes that it returns.
        inputs: its input nodes.
    """

    scope: Scope
    steps: list[Step] = field(default_factory=list)
    reads: set[fx.Node] = field(default_factory=set)
    returned: list[fx.Node] = field(default_factory=list)
    inputs: frozenset[fx.Node] = frozenset()

    def roots(self, nodes: Iterable[fx.Node]) -> Iterator[fx.Node]:
        """Yield the nodes that the given nodes depend on, looking through reads."""
        for node in nodes:
            if node in self.reads:
                yield from self.roots(node.all_input_nodes)
            elif node.op != "get_attr" or node in self.inputs:
                yield node

    def step_of(self) -> dict[fx.Node, Step]:
        """Map each node to the step that produces it."""
        return {node: step for step in self.steps for node in step.results if node is not None}


def plan_scope(scope: Scope, returned: list[fx.Node], separate: set[fx.Node]) -> Plan:
    """Decide which steps of a scope become statements, and which are inlined into others.

    Args:
        scope: the scope.
        returned: the nodes that it returns.
        separate: nodes that need their own statement, since their users' lines would be too long.
    """
    plan = Plan(scope, returned=returned, inputs=frozenset(scope.inputs))
    unpacked = _find_unpacked(scope, returned)
    plan.reads = {
        item
        for item in scope.items
        if isinstance(item, fx.Node)
        and item not in unpacked
        and _is_read(item, scope)
        and item not in separate
    }
    for item in scope.items:
        if isinstance(item, Scope):
            results: list[fx.Node | None] = list(item.outputs)
            plan.steps.append(Step(item, list(item.inputs), results, item.call.modes, len(results) > 1))
        elif item not in plan.reads and item not in unpacked:
            plan.steps.append(_node_step(item, unpacked))
    _inline(plan, separate)
    return plan


def _node_step(node: fx.Node, unpacked: dict[fx.Node, fx.Node]) -> Step:
    operands = list(node.all_input_nodes)
    if node.target is operator.setitem:
        operands = [arg for arg in (node.args[2], node.args[0]) if isinstance(arg, fx.Node)]
        operands += [arg for arg in node.all_input_nodes if arg not in operands]
    modes = node.meta.get("modes")
    parts = [part for part, source in unpacked.items() if source is node]
    if not parts:
        return Step(node, operands, [node], modes)
    length = len(node.meta["val"])
    by_index = {part.args[1]: part for part in parts}
    return Step(node, operands, [by_index.get(i) for i in range(length)], modes, unpacked=True)


def _find_unpacked(scope: Scope, returned: list[fx.Node]) -> dict[fx.Node, fx.Node]:
    """Return the parts of results that are unpacked where the result is produced: `a, b = f(x)`."""
    found: dict[fx.Node, fx.Node] = {}
    inside = {item for item in scope.items if isinstance(item, fx.Node)}
    for node in inside:
        parts = [
            user for user in node.users if user in inside and "item" in user.meta and user.args[0] is node
        ]
        if not parts or len(parts) != len(node.users) or node in returned:
            continue
        value = node.meta.get("val")
        if not isinstance(value, (tuple, list)) or len(value) > _UNPACKED_AT_MOST:
            continue
        if len(parts) > 1 or len(parts[0].users) > 1 or parts[0] in scope.names:
            found.update((part, node) for part in parts)
    return found


def _is_read(node: fx.Node, scope: Scope) -> bool:
    """Whether a node is a cheap query that is written at each use."""
    if "item" in node.meta:
        return True
    if node in scope.names or len(node.users) == 0:
        return False
    if node.op == "call_method":
        return node.target in _READS
    if node.target is getattr:
        return True
    return isinstance(node.meta.get("val"), (int, float)) and node.target is not hold


def _inline(plan: Plan, separate: set[fx.Node]) -> None:
    """Inline steps into the next statement where Python evaluates them in the same order."""
    uses: dict[fx.Node, int] = {}
    for operands in [*[step.operands for step in plan.steps], plan.returned]:
        for node in plan.roots(operands):
            uses[node] = uses.get(node, 0) + 1
    pending: list[Step] = []
    for step in plan.steps:
        if pending and pending[-1].modes != step.modes:
            pending = []
        _take(plan, step.operands, pending, step)
        if _can_be_inlined(step, uses, plan.scope, separate):
            pending.append(step)
        else:
            pending = []
    if pending and pending[-1].modes == plan.scope.call.modes:
        _take(plan, plan.returned, pending, None)


def _take(plan: Plan, operands: list[fx.Node], pending: list[Step], user: Step | None) -> None:
    """Inline the longest suffix of the pending steps that is used in the same order."""
    wanted = [node for node in plan.roots(operands) if any(node in step.results for step in pending)]
    if user is not None and isinstance(user.item, fx.Node) and user.item.target in AUGMENTED:
        wanted = [node for node in wanted if node is not user.item.args[0]]
    count = min(len(wanted), len(pending))
    while count and [step.results[0] for step in pending[-count:]] != wanted[-count:]:
        count -= 1
    first = len(pending) - count
    for step in pending[first:]:
        step.inlined = True
    # A step used in another order becomes a statement before this one, as do all steps before it.
    flushed = max((i + 1 for i in range(first) if pending[i].results[0] in wanted), default=0)
    pending[:] = pending[flushed:first]


def _can_be_inlined(step: Step, uses: dict[fx.Node, int], scope: Scope, separate: set[fx.Node]) -> bool:
    if step.unpacked or len(step.results) != 1:
        return False
    node = step.results[0]
    assert node is not None
    if node in separate or node in scope.names or uses.get(node, 0) != 1:
        return False
    if isinstance(step.item, fx.Node):
        target = step.item.target
        return target is not operator.setitem and target is not setattr and target not in AUGMENTED
    return True
