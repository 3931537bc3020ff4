"""Python expressions as trees of text that can be broken into lines as ruff breaks them."""

from __future__ import annotations

import itertools
import keyword
import re
import unicodedata
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

WIDTH = 88  # ruff's own default


@dataclass(frozen=True, slots=True)
class Literal:
    """A number or text of the code that may differ between two instances of a class.

    Args:
        text: how it is written.
        hint: what it is: the name of the argument that it is given for.
    """

    text: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """What stands between brackets: where lines may be broken."""

    opening: str
    items: tuple[Code, ...]
    closing: str
    comma: bool = False  # a tuple of one has a comma
    modules: bool = False  # modules that are called one after another: alike ones may be counted
    literal: bool = False  # a list, tuple or dict: broken, it has an item on each line
    loop: str = ""  # what a comprehension goes over


Part: TypeAlias = str | Literal | Group
Code: TypeAlias = tuple[Part, ...]


def flat(code: Code) -> str:
    """Return code on one line."""
    return "".join(_flat_part(part) for part in code)


def _flat_part(part: Part) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, Literal):
        return part.text
    inside = ", ".join(flat(item) for item in part.items)
    loop = f" {part.loop}" if part.loop else ""
    return f"{part.opening}{inside}{',' if part.comma else ''}{loop}{part.closing}"


def literals(code: Code) -> Iterator[Literal]:
    """Yield the literals of code, in order."""
    for part in code:
        if isinstance(part, Literal):
            yield part
        elif isinstance(part, Group):
            for item in part.items:
                yield from literals(item)


def fill(code: Code, values: Iterator[str]) -> Code:
    """Return code with other texts in place of its literals, in order."""
    filled: list[Part] = []
    for part in code:
        if isinstance(part, Literal):
            filled.append(next(values))
        elif isinstance(part, Group):
            items = tuple(fill(item, values) for item in part.items)
            filled.append(replace(part, items=items))
        else:
            filled.append(part)
    return tuple(filled)


def counted(code: Code) -> Code:
    """Return code with `[Block() for _ in range(3)]` in place of modules that are made alike."""
    found: list[Part] = []
    for part in code:
        if isinstance(part, Group):
            items = tuple(counted(item) for item in part.items)
            part = replace(part, items=items)
            if part.modules:
                part = _counted_group(part)
        found.append(part)
    return tuple(found)


def _counted_group(group: Group) -> Group:
    runs: list[tuple[Code, int]] = []
    for item in group.items:
        if runs and runs[-1][0] == item:
            runs[-1] = (item, runs[-1][1] + 1)
        else:
            runs.append((item, 1))
    if group.opening == "[" and len(runs) == 1 and runs[0][1] > 1:
        return Group("[", (runs[0][0],), "]", loop=f"for _ in range({runs[0][1]})")
    items: list[Code] = []
    for item, count in runs:
        many = count > 2 or (count == 2 and len(flat(item)) > 40)
        repeated = Group("*[", (item,), "]", loop=f"for _ in range({count})")
        items += [(repeated,)] if many else [item] * count
    return replace(group, items=tuple(items), modules=False)


def shape(code: Code) -> str:
    """Return code without its literals' values: equal for code that differs in nothing else."""
    return flat(fill(code, iter(lambda: "□", None)))


def call(function: Code, args: Sequence[Code], opening: str = "(", closing: str = ")") -> Code:
    """Return a call."""
    return (*function, Group(opening, tuple(args), closing))


def lines(code: Code, indent: int, tail: str = "", head: str = "") -> list[str]:
    """Return code in lines of at most `WIDTH` characters, where brackets allow it.

    Args:
        code: the code.
        indent: how far it is indented.
        tail: what follows on its last line.
        head: what precedes on its first line.
    """
    pad = " " * indent
    whole = head + flat(code) + tail
    if indent + len(whole) <= WIDTH:
        return [pad + whole]
    # The last bracket behind a first line that fits; the rest goes behind its closing.
    for index in range(len(code) - 1, -1, -1):
        group = code[index]
        if isinstance(group, Group) and group.items:
            first = head + flat(code[:index]) + (group.opening or "(")
            if indent + len(first) <= WIDTH:
                last = (group.closing or ")") + flat(code[index + 1 :]) + tail
                return [pad + first, *_inside(group, indent + 4), pad + last]
    if head.endswith("= ") and indent + 4 + len(flat(code)) <= WIDTH:
        return [pad + head + "(", f"{pad}    {flat(code)}", pad + ")" + tail]
    return [pad + whole]


def _inside(group: Group, indent: int) -> list[str]:
    if group.loop:
        return [*lines(group.items[0], indent), " " * indent + group.loop]
    inside = ", ".join(flat(item) for item in group.items)
    if indent + len(inside) <= WIDTH and not group.literal:
        return [" " * indent + inside]
    comma = "" if len(group.items) == 1 and not group.literal else ","
    return [line for item in group.items for line in lines(item, indent, comma)]


def text(value: str) -> str:
    """Return a string as ruff quotes it."""
    quoted = str.__repr__(value)  # a class of the user's may write itself differently
    if quoted.startswith("'") and '"' not in value:
        return '"' + quoted[1:-1].replace("\\'", "'") + '"'
    return quoted


def docstring(value: str) -> str:
    """Return a string as a docstring, which it does not end."""
    inside = value.replace("\\", "\\\\").replace('"', '\\"')
    return '"""' + "".join(sign if sign.isprintable() else _escape(sign) for sign in inside) + '"""'


def _escape(sign: str) -> str:
    return sign.encode("unicode_escape").decode("ascii")


def is_name(value: str) -> bool:
    """Whether a text can stand in code as a name."""
    return value.isidentifier() and not keyword.iskeyword(value) and _normal(value) == value


def _normal(name: str) -> str:
    """Return a name as Python reads it: signs that mean the same become one."""
    return unicodedata.normalize("NFKC", name)


def identifier(value: str) -> str:
    """Return a text as a name of Python's.

    Example:
        >>> identifier("layer1.0.conv")
        'layer1_0_conv'
    """
    signs = [sign if f"a{sign}".isidentifier() else "_" for sign in _normal(value)]
    name = re.sub("_+", "_", "".join(signs)) if "_" in signs and not is_name(value) else "".join(signs)
    name = name.strip("_") or "value"
    if not name[0].isidentifier():
        name = f"layer{name}"
    return f"{name}_" if keyword.iskeyword(name) else name


def free_name(wanted: str, taken: Container[str]) -> str:
    """Return a name, with a number if it is taken."""
    names = itertools.chain([wanted], (f"{wanted}{number}" for number in itertools.count(2)))
    return next(name for name in names if name not in taken)


def attribute(owner: Code, name: str) -> Code:
    """Return the code for an attribute of something."""
    return (*owner, f".{name}") if is_name(name) else call(("getattr",), [owner, (text(name),)])


def keywords(arguments: Mapping[str, Code]) -> list[Code]:
    """Return the arguments of a call that are given by name; any text may be one."""
    found: list[Code] = [(f"{name}=", *code) for name, code in arguments.items() if is_name(name)]
    others = [(text(name), ": ", *code) for name, code in arguments.items() if not is_name(name)]
    return found + ([("**", Group("{", tuple(others), "}", literal=True))] if others else [])
