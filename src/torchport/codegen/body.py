"""Writes the statements of a scope: the body of a `forward`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection
from dataclasses import dataclass

import torch
from torch import fx

from torchport.capture import Modes, hold
from torchport.codegen.code import WIDTH, Code, Group, call, flat, is_name, text
from torchport.codegen.constants import constant
from torchport.codegen.expressions import ATOM, AUGMENTED, Expression, Expressions
from torchport.codegen.imports import Imports
from torchport.codegen.scopes import Scope
from torchport.codegen.steps import Plan, Step, plan_scope
from torchport.codegen.variables import Variables
from torchport.torch_private import set_arguments

_INDENT = 8


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement.

    Args:
        head: the text before the expression: assignment targets, `return`.
        code: the expression.
        depth: how many enclosing blocks it is nested in.
        tail: the text after the expression: the colon of a block.
        comment: a comment for its line.
    """

    head: str
    code: Code
    depth: int = 0
    tail: str = ""
    comment: str = ""


@dataclass(frozen=True, slots=True)
class Body:
    """A scope as code.

    Args:
        parameters: the names of its inputs.
        statements: its statements.
    """

    parameters: tuple[str, ...]
    statements: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class BodyContext:
    """What the statements of a scope depend on besides the scope.

    Args:
        imports: the file's imports.
        module_code: returns the code by which a scope refers to the module at a path.
        weight_code: returns the code by which a scope refers to the weight at a path.
        method_of: returns the name of the method that implements a call of a module.
        taken: names with another meaning in the file.
        shapes: whether to add the shapes of results as comments.
    """

    imports: Imports
    module_code: Callable[[Scope, str], Code]
    weight_code: Callable[[Scope, str], Code]
    method_of: Callable[[Scope], str]
    taken: Collection[str] = ()
    shapes: bool = False


def write_body(scope: Scope, returned: list[fx.Node], result: object, context: BodyContext) -> Body:
    """Write a scope's statements.

    Args:
        scope: the scope.
        returned: the nodes that it returns.
        result: the returned value, a structure that contains nodes; None to return the nodes themselves.
        context: what else the statements depend on.
    """
    separate: set[fx.Node] = set()
    while True:
        plan = plan_scope(scope, returned, separate)
        writer = _Writer(plan, context)
        statements = writer.statements(result)
        long = writer.inlined_in_long_lines - separate
        if not long:
            return Body(tuple(writer.variables.parameters), tuple(statements))
        separate |= long


class _Writer:
    def __init__(self, plan: Plan, context: BodyContext) -> None:
        self.variables = Variables(plan, context.taken)
        self.inlined_in_long_lines: set[fx.Node] = set()
        self._plan = plan
        self._context = context
        self._givers = plan.step_of()
        self._expressions = Expressions(context.imports, self._operand)
        self._inlined: list[fx.Node] = []

    def statements(self, result: object) -> list[Statement]:
        """Return the statements, with `with` blocks where torch's modes differ from the call's."""
        ambient = self._plan.scope.call.modes
        found: list[Statement] = []
        modes = ambient
        depth = 0
        for step in self._plan.steps:
            if step.inlined:
                continue
            if step.modes is not None and step.modes != modes:
                modes = step.modes
                opened = _blocks(ambient, modes)
                depth = len(opened)
                found += [Statement("with ", code, level, ":") for level, code in enumerate(opened)]
            found += self._step(step, depth)
        returned = self._return(result)
        return found + ([returned] if returned else [])

    def _step(self, step: Step, depth: int) -> list[Statement]:
        self._inlined = []
        item = step.item
        if isinstance(item, fx.Node):
            special = self._special(item, depth)
            if special is not None:
                return special
        code = self._code(step)
        head = self._targets(step)
        statement = Statement(head, code, depth, comment=self._shape_of(step))
        self._check_width(statement)
        return [statement]

    def _special(self, node: fx.Node, depth: int) -> list[Statement] | None:
        """Write a node that is a statement rather than an expression; None for any other node."""
        argument = self._expressions.argument
        if node.target is hold:
            return self._guard(node, depth)
        if node.target is setattr:
            owner, name, value = argument(node.args[0]), str(node.args[1]), argument(node.args[2])
            if not is_name(name):
                return [Statement("", call(("setattr",), [owner, (text(name),), value]), depth)]
            return [Statement(f"{flat(owner)}.{name} = ", value, depth)]
        if node.target is operator.setitem:
            place = self._expressions.of(_like(node, operator.getitem, node.args[:2]))[0]
            return [Statement(f"{flat(place)} = ", argument(node.args[2]), depth)]
        if node.target in AUGMENTED and self.variables.keeps_variable(node):
            sign = AUGMENTED[node.target]
            return [Statement(f"{self.variables.names[node]} {sign} ", argument(node.args[1]), depth)]
        return None

    def _guard(self, node: fx.Node, depth: int) -> list[Statement]:
        actual, expected, line = node.args
        line = str(line).split(" in ")[0]
        code = self._expressions.argument(actual)
        wanted = constant(expected, self._context.imports)
        if isinstance(expected, bool):
            condition: Code = code if not expected else self._negated(actual)
            message = f"this code is specialized to {flat(code)} being {expected} ({line})"
        else:
            sign = "is not" if expected is None else "!="
            condition = (*code, f" {sign} ", *wanted)
            message = f"this code is specialized to {flat(code)} = {flat(wanted)} ({line})"
        raised = call(("ValueError",), [(text(message),)])
        return [Statement("if ", condition, depth, ":"), Statement("raise ", raised, depth + 1)]

    def _negated(self, value: object) -> Code:
        """Return the code of a condition's negation."""
        if isinstance(value, fx.Node) and value.target in _OPPOSITES and value not in self.variables.names:
            opposite = _like(value, _OPPOSITES[value.target], value.args)
            return self._expressions.of(opposite)[0]
        return ("not ", *self._tight(value))

    def _tight(self, value: object) -> Code:
        code, strength = (
            self._operand(value) if isinstance(value, fx.Node) else (self._expressions.argument(value), ATOM)
        )
        return code if strength >= ATOM else ("(", *code, ")")

    def _targets(self, step: Step) -> str:
        names = [self.variables.names.get(node, "") if node is not None else "_" for node in step.results]
        if step.unpacked:
            return ", ".join(names) + ("," if len(names) == 1 else "") + " = "
        return f"{names[0]} = " if names and names[0] else ""

    def _code(self, step: Step) -> Code:
        item = step.item
        if isinstance(item, Scope):
            function = self._context.module_code(self._plan.scope, item.path)
            method = self._context.method_of(item)
            if method != "forward":
                function = (*function, f".{method}")
            return call(function, [self._operand(node)[0] for node in item.inputs])
        if item.op == "call_module":
            args = [self._expressions.argument(arg) for arg in item.args]
            args += self._expressions.keywords(item.kwargs)
            return call(self._context.module_code(self._plan.scope, str(item.target)), args)
        return self._expressions.of(item)[0]

    def _operand(self, node: fx.Node) -> Expression:
        name = self.variables.names.get(node)
        if name is not None:
            return (name,), ATOM
        if node.op == "get_attr":
            return self._context.weight_code(self._plan.scope, str(node.target)), ATOM
        giver = self._givers.get(node)
        if giver is not None:
            self._inlined.append(node)
            if isinstance(giver.item, Scope) or giver.item.op == "call_module":
                return self._code(giver), ATOM
        return self._expressions.of(node)

    def _check_width(self, statement: Statement) -> None:
        width = len(statement.head) + len(flat(statement.code)) + len(statement.tail)
        if _INDENT + 4 * statement.depth + width > WIDTH:
            self.inlined_in_long_lines.update(self._inlined)

    def _return(self, result: object) -> Statement | None:
        self._inlined = []
        if result is not None:
            code = self._expressions.argument(result)
            if isinstance(result, tuple) and len(result) > 1:
                code = _bare(code)
        elif not self._plan.returned:
            return None
        else:
            parts = [self._operand(node)[0] for node in self._plan.returned]
            code = parts[0] if len(parts) == 1 else _joined(parts)
        statement = Statement("return ", code)
        self._check_width(statement)
        return statement

    def _shape_of(self, step: Step) -> str:
        if not self._context.shapes:
            return ""
        shapes = []
        for node in step.results:
            value = None if node is None else node.meta.get("val")
            shapes.append(str(list(value.shape)) if isinstance(value, torch.Tensor) else "")
        return ", ".join(filter(None, shapes))


_OPPOSITES = {
    operator.eq: operator.ne, operator.ne: operator.eq, operator.lt: operator.ge, operator.ge: operator.lt,
    operator.gt: operator.le, operator.le: operator.gt,
}  # fmt: skip


def _like(node: fx.Node, target: Callable[..., object], args: tuple[fx.node.Argument, ...]) -> fx.Node:
    """Return a node for code generation only, which is not registered as a user of its arguments."""
    copy = fx.Node(fx.Graph(), node.name, "call_function", target, (), {})
    set_arguments(copy, args)
    return copy


def _joined(parts: list[Code]) -> Code:
    """Return a tuple that is written without parentheses if it fits on one line."""
    return (Group("", tuple(parts), "", literal=True),)


def _bare(code: Code) -> Code:
    """Return a tuple without its parentheses."""
    [group] = code
    assert isinstance(group, Group)
    return _joined(list(group.items))


def _blocks(ambient: object, modes: object) -> list[Code]:
    """Return the `with` blocks that switch from one state of torch's modes to another."""
    assert isinstance(ambient, Modes)
    assert isinstance(modes, Modes)
    found: list[Code] = []
    if modes.grad != ambient.grad:
        found.append(("torch.enable_grad()" if modes.grad else "torch.no_grad()",))
    before, after = dict(ambient.autocast), dict(modes.autocast)
    for device in before | after:
        if before.get(device) != after.get(device):
            setting = f"dtype={after[device]}" if device in after else "enabled=False"
            found.append((f'torch.autocast("{device}", {setting})',))
    return found
