"""Assembles a generated file: imports, classes, a loader, and a main section that runs the model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from torchport.capture import Argument
from torchport.codegen.body import Body, Statement
from torchport.codegen.classes import ClassDefinition
from torchport.codegen.code import WIDTH, Code, call, docstring, flat, keywords, lines, text
from torchport.codegen.constants import constant
from torchport.codegen.generate import Generated
from torchport.codegen.loops import roll_loops
from torchport.structure import flatten

_ASSEMBLE = (
    "def assemble(kind, **state):",
    "    made = object.__new__(kind)",
    "    made.__dict__.update(state)",
    "    return made",
)
_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class Loading:
    """How a generated file loads and runs its model.

    Args:
        weights: the name of the weights file; empty if there is none.
        mode: `.eval()`, or empty for a model in training mode.
        assign: whether to load with `assign=True`, which keeps the weights' dtypes.
        arguments: the example inputs.
    """

    weights: str
    mode: str
    assign: bool
    arguments: tuple[Argument, ...]


def write_script(generated: Generated, loading: Loading, title: str) -> str:
    """Return the text of a generated file."""
    body: list[str] = ["", "", *_ASSEMBLE] if generated.imports.assembles else []
    for definition in generated.classes:
        ties = generated.ties if definition is generated.classes[-1] else []
        body += ["", "", *_class(definition, generated.lengths.get(definition.name, {}), ties)]
    body += ["", "", *_loader(generated, loading)]
    body += ["", "", *_main(generated, loading)]
    head = [docstring(title), "", *_import_lines(generated, loading, body)]
    return "\n".join(head + body) + "\n"


def _import_lines(generated: Generated, loading: Loading, body: list[str]) -> list[str]:
    imports = generated.imports
    words = {word for line in body for word in _WORD.findall(line)}
    imports.uses_functional = "F" in words
    standard = []
    if "OrderedDict" in words:
        standard.append("from collections import OrderedDict")
    if "math" in words:
        standard.insert(0, "import math")
    if "Path" in words:
        standard.append("from pathlib import Path")
    third_party = imports.third_party(words, safetensors=loading.weights.endswith(".safetensors"))
    return [*standard, *([""] if standard else []), *third_party]


def _class(
    definition: ClassDefinition,
    lengths: dict[str, int],
    ties: list[tuple[str, str]],
) -> list[str]:
    written = [f"class {definition.name}(nn.Module):"]
    if definition.members or definition.parameters:
        parameters = tuple((name,) for name in ("self", *definition.parameters))
        written += lines(call(("def __init__",), parameters), 4, ":")
        written.append("        super().__init__()")
        for name in definition.kept:
            written.append(f"        self.{name} = {name}")
        for member in definition.members:
            head = "" if member.statement else f"self.{member.name} = "
            written += lines(member.code, 8, head=head)
        for tied, source in ties:
            written += lines((f"self{source}",), 8, head=f"self{tied} = ")
        written.append("")
    for name, body in definition.methods.items():
        written += _method(name, body, lengths)
        written.append("")
    while written[-1] == "":
        written.pop()
    return written


def _method(name: str, body: Body, lengths: dict[str, int]) -> list[str]:
    parameters = tuple((parameter,) for parameter in ("self", *body.parameters))
    written = lines(call((f"def {name}",), parameters), 4, ":")
    if not body.statements:
        return [*written, "        return None"]
    return written + list(_statements(body, lengths))


def _statements(body: Body, lengths: dict[str, int]) -> Iterator[str]:
    flats = [_one_line(statement) for statement in body.statements]
    names = {word for line in flats for word in re.findall(r"(?<![.\w])[A-Za-z_]\w*", line)} | set(
        body.parameters
    )
    rolled = roll_loops(flats, lengths, names)
    by_text = dict(zip(flats, body.statements, strict=True))
    for head, inside in rolled:
        if head:
            yield f"        {head}"
        for line in inside:
            statement = by_text.get(line)
            depth = (len(line) - len(line.lstrip())) // 4 + bool(head)
            if statement is None or head:
                yield from _wrapped(line.strip(), 8 + 4 * depth)
            else:
                yield from _lines_of(statement)


def _one_line(statement: Statement) -> str:
    return "    " * statement.depth + statement.head + flat(statement.code) + statement.tail


def _wrapped(line: str, indent: int) -> list[str]:
    """Return a line of a loop's body, broken at its last bracket if it is too long."""
    quotes = '"' in line or "'" in line  # brackets and commas in strings are not break points
    if indent + len(line) <= WIDTH or "(" not in line or not line.endswith(")") or quotes:
        return [" " * indent + line]
    depth = 0
    for position in range(len(line) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(line[position], 0)
        if depth == 0:
            break
    head, inside = line[: position + 1], line[position + 1 : -1]
    if indent + 4 + len(inside) <= WIDTH:
        return [" " * indent + head, " " * (indent + 4) + inside, " " * indent + ")"]
    parts = [" " * (indent + 4) + part + "," for part in _split(inside)]
    return [" " * indent + head, *parts, " " * indent + ")"]


def _split(inside: str) -> list[str]:
    parts, depth, current = [], 0, ""
    for character in inside:
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append(current.strip())
            current = ""
        else:
            current += character
    return [*parts, current.strip()]


def _lines_of(statement: Statement) -> list[str]:
    indent = 8 + 4 * statement.depth
    targets = statement.head.removesuffix(" = ")
    if indent + len(statement.head) >= WIDTH and ", " in targets and not statement.tail:
        pad = " " * indent
        names = [f"{pad}    {name}," for name in targets.split(", ")]
        return [f"{pad}(", *names, *lines(statement.code, indent, head=") = ")]
    written = lines(statement.code, indent, statement.tail, statement.head)
    if statement.comment:
        written[-1] += f"  # {statement.comment}"
    return written


def _loader(generated: Generated, loading: Loading) -> list[str]:
    name = generated.classes[-1].name
    if not loading.weights:
        return ["def load_model():", f"    return {name}(){loading.mode}"]
    written = [
        f"def load_model(weights=Path(__file__).with_name({text(loading.weights)})):",
        f"    model = {name}()",
    ]
    assign = ", assign=True" if loading.assign else ""
    if loading.weights.endswith(".safetensors"):
        written.append(f"    model.load_state_dict(load_file(weights){assign})")
    else:
        written.append(f"    model.load_state_dict(torch.load(weights){assign})")
    if loading.assign:
        for tied, source in generated.ties:
            written += lines((f"model{source}",), 4, head=f"model{tied} = ")
    return [*written, f"    return model{loading.mode}"]


def _main(generated: Generated, loading: Loading) -> list[str]:
    written = ['if __name__ == "__main__":', "    model = load_model()"]
    args: list[Code] = []
    named: dict[str, Code] = {}
    for argument in loading.arguments:
        code = _example(argument.value, generated)
        if code is None:
            return []
        if argument.keyword:
            named[argument.name] = code
        else:
            args.append(code)
    args += keywords(named)
    written += ["    with torch.no_grad():", *lines(call(("model",), args), 8, head="result = ")]
    return [*written, "    print(result)"]


def _example(value: object, generated: Generated) -> Code | None:
    """Return the code of an input like the example, with random values; None if it cannot be written."""
    if isinstance(value, torch.Tensor):
        given: list[Code] = [(str(size),) for size in value.shape] or [("()",)]
        if value.dtype != torch.float32:
            given.append((f"dtype={value.dtype}",))
        continuous = value.is_floating_point() or value.is_complex()
        return call(("torch.rand" if continuous else "torch.ones",), given)
    if flatten(value).leaves and not isinstance(value, (list, tuple, dict)):
        return None
    if isinstance(value, (list, tuple)):
        items = [_example(item, generated) for item in value]
        if any(item is None for item in items) or hasattr(value, "_fields"):
            return None
        opening, closing = ("[", "]") if isinstance(value, list) else ("(", ",)" if len(items) == 1 else ")")
        return call((), [item for item in items if item is not None], opening, closing)
    if isinstance(value, dict):
        parts = []
        for key, item in value.items():
            code = _example(item, generated)
            if code is None:
                return None
            parts.append((*constant(key, generated.imports), ": ", *code))
        return call((), parts, "{", "}")
    return constant(value, generated.imports)
