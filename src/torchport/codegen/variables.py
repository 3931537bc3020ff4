"""Names for the values of a scope: the user's own where possible, never numbered node names."""

from __future__ import annotations

import builtins
import keyword
from collections.abc import Collection, Iterator

from torch import fx

from torchport.codegen.code import identifier
from torchport.codegen.expressions import AUGMENTED
from torchport.codegen.scopes import Scope
from torchport.codegen.steps import Plan, Step

_RESERVED = frozenset({*keyword.kwlist, *dir(builtins), "torch", "nn", "self", "F"}) - {
    "input",
    "id",
    "hash",
    "filter",
}
# Names for the results of functions whose own name would not make a good one.
_NOUNS = {
    "add": "total", "iadd": "total", "sub": "difference", "mul": "product", "imul": "product",
    "truediv": "ratio", "matmul": "product", "getitem": "part", "cat": "joined", "concat": "joined",
    "stack": "stacked", "view": "reshaped", "reshape": "reshaped", "permute": "permuted",
    "transpose": "transposed", "to": "converted", "type_as": "converted", "float": "converted",
    "unsqueeze": "expanded", "expand": "expanded", "neg": "negated", "linear": "projected",
    "getattr": "value", "contiguous": "contiguous", "size": "size", "pow": "power", "eq": "mask",
    "ne": "mask", "gt": "mask", "lt": "mask", "ge": "mask", "le": "mask", "and_": "mask", "or_": "mask",
    "scaled_dot_product_attention": "attention", "floordiv": "quotient", "mod": "remainder",
    "flatten": "flattened", "chunk": "chunks", "split": "parts", "unbind": "parts",
}  # fmt: skip


class Variables:
    """The names of one scope's values.

    Args:
        plan: the scope's steps.
        taken: names with another meaning in the file.
    """

    def __init__(self, plan: Plan, taken: Collection[str]) -> None:
        self.names: dict[fx.Node, str] = {}
        self._plan = plan
        self._taken = frozenset(taken)
        self._last_use = _last_uses(plan)
        self._busy: dict[str, int] = {}
        self.parameters = self._name_parameters()
        position = {id(step): index for index, step in enumerate(plan.steps)}
        for step in plan.steps:
            if not step.inlined:
                self._name_results(step, position[id(step)])

    def _name_parameters(self) -> list[str]:
        scope = self._plan.scope
        given = {node: name for name, node in reversed(scope.call.inputs)}
        names = []
        for node in scope.inputs:
            base = given.get(node) or scope.names.get(node) or self._outer_name(node, scope)
            name = self._free([identifier(base)], -1)
            self._assign(node, name)
            names.append(name)
        return names

    def _outer_name(self, node: fx.Node, scope: Scope) -> str:
        for call in scope.call.ancestors():
            if node in call.names:
                return call.names[node]
        if node.op == "get_attr":
            return str(node.target).rsplit(".", 1)[-1]
        return _noun(node)

    def _name_results(self, step: Step, position: int) -> None:
        if isinstance(step.item, fx.Node) and step.item.target in AUGMENTED:
            changed = step.item.args[0]
            if isinstance(changed, fx.Node) and changed in self.names:
                self._assign(step.item, self.names[changed])
                return
        if len(step.results) == 1 and not step.unpacked and not self._is_used(step.results[0]):
            return
        for node in step.results:
            if node is not None:
                self._assign(node, self._free(list(self._candidates(node, step, position)), position))

    def keeps_variable(self, node: fx.Node) -> bool:
        """Whether an in-place update keeps the variable of the value that it changes: `x += y`.

        A weight has no variable: its update, `self.count.add_(1)`, is an expression.
        """
        changed = node.args[0]
        return isinstance(changed, fx.Node) and node in self.names and changed in self.names

    def _is_used(self, node: fx.Node | None) -> bool:
        return node is not None and node in self._last_use

    def _candidates(self, node: fx.Node, step: Step, position: int) -> Iterator[str]:
        own = self._plan.scope.names.get(node)
        if own:
            yield identifier(own)
        elif not step.unpacked:
            for operand in step.operands:
                name = self.names.get(operand)
                if name and self._last_use.get(operand, -1) <= position and not _is_number(operand):
                    yield name
        if isinstance(step.item, fx.Node):
            yield _noun(node)
            return
        inner = node.meta["module_call"].names.get(node)
        if step.unpacked and inner:  # the callee's variable name says more than the module's name
            yield identifier(inner)
        yield _attribute(step.item.path)

    def _free(self, candidates: list[str], position: int) -> str:
        for name in candidates:
            if name not in _RESERVED and name not in self._taken and self._busy.get(name, -2) <= position:
                return name
        base = candidates[-1].rstrip("0123456789") or "value"
        number = 2
        while True:
            name = f"{base}{number}"
            if name not in self._taken and self._busy.get(name, -2) <= position:
                return name
            number += 1

    def _assign(self, node: fx.Node, name: str) -> None:
        self.names[node] = name
        self._busy[name] = max(self._busy.get(name, -2), self._last_use.get(node, -1))


def _last_uses(plan: Plan) -> dict[fx.Node, int]:
    """Return each node's last use as a statement position; inlined steps count where they are inlined."""
    last: dict[fx.Node, int] = {}
    end = len(plan.steps)
    for node in plan.roots(plan.returned):
        last[node] = end
    givers = plan.step_of()
    statement: dict[int, int] = {}
    for index in range(end - 1, -1, -1):
        step = plan.steps[index]
        where = index
        if step.inlined:
            result = step.results[0]
            assert result is not None
            where = statement.get(id(step), last.get(result, index))
        for node in plan.roots(step.operands):
            last[node] = max(last.get(node, -1), where)
            giver = givers.get(node)
            if giver is not None and giver.inlined:
                statement[id(giver)] = where
    for step in plan.steps:  # `x += y` keeps the same variable alive
        if isinstance(step.item, fx.Node) and step.item.target in AUGMENTED:
            changed = step.item.args[0]
            if isinstance(changed, fx.Node):
                last[changed] = max(last.get(changed, -1), last.get(step.item, -1))
    return last


def _is_number(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), (int, float))


def _attribute(path: str) -> str:
    parts = [part for part in path.split(".") if not part.isdigit()]
    return identifier(parts[-1] if parts else path)


def _noun(node: fx.Node) -> str:
    if node.op == "call_module":
        return _attribute(str(node.target))
    if "item" in node.meta and isinstance(node.args[0], fx.Node):
        fields = getattr(type(node.args[0].meta.get("val")), "__match_args__", ())
        if fields:  # such as `values` and `indices`
            return identifier(str(fields[node.meta["item"]]))
        return _noun(node.args[0]).rstrip("s")
    name = getattr(node.target, "__name__", str(node.target)).strip("_")
    return identifier(_NOUNS.get(name, name))
