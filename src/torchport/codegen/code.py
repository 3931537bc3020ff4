"""Python expressions as trees of text, which can be wrapped as ruff wraps lines."""

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
    """A number in the code that may differ between two instances of a class.

    Args:
        text: its source text.
        hint: the name of the parameter that it is passed for.
    """

    text: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """A bracketed group, inside which lines may be broken."""

    opening: str
    items: tuple[Code, ...]
    closing: str
    comma: bool = False  # a one-element tuple needs a trailing comma
    modules: bool = False  # modules in sequence: repeated ones may become a comprehension
    literal: bool = False  # a list, tuple or dict: when wrapped, it has one item per line
    loop: str = ""  # the `for` clause of a comprehension


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
    """Return code with its literals replaced by the given texts, in order."""
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


def collapse_repeats(code: Code) -> Code:
    """Return code with repeated identical modules replaced by `[Block() for _ in range(3)]`."""
    found: list[Part] = []
    for part in code:
        if isinstance(part, Group):
            items = tuple(collapse_repeats(item) for item in part.items)
            part = replace(part, items=items)
            if part.modules:
                part = _collapse_group(part)
        found.append(part)
    return tuple(found)


def _collapse_group(group: Group) -> Group:
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
    """Return code without its literals' values: equal for code that differs only in these."""
    return flat(fill(code, iter(lambda: "□", None)))


def call(function: Code, args: Sequence[Code], opening: str = "(", closing: str = ")") -> Code:
    """Return a call."""
    return (*function, Group(opening, tuple(args), closing))


def lines(code: Code, indent: int, tail: str = "", head: str = "") -> list[str]:
    """Wrap code into lines of at most `WIDTH` characters, where brackets allow it.

    Args:
        code: the code.
        indent: its indentation.
        tail: the text after it on its last line.
        head: the text before it on its first line.
    """
    pad = " " * indent
    whole = head + flat(code) + tail
    if indent + len(whole) <= WIDTH:
        return [pad + whole]
    # Break at the last bracket whose first line fits; the rest follows the closing bracket.
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
    quoted = str.__repr__(value)  # a user's subclass of str may override __repr__
    if quoted.startswith("'") and '"' not in value:
        return '"' + quoted[1:-1].replace("\\'", "'") + '"'
    return quoted


def docstring(value: str) -> str:
    """Return a string as a docstring, escaped so that it cannot end it."""
    inside = value.replace("\\", "\\\\").replace('"', '\\"')
    return '"""' + "".join(sign if sign.isprintable() else _escape(sign) for sign in inside) + '"""'


def _escape(sign: str) -> str:
    return sign.encode("unicode_escape").decode("ascii")


def is_name(value: str) -> bool:
    """Whether a text can be used as a name in code."""
    return value.isidentifier() and not keyword.iskeyword(value) and _normal(value) == value


def _normal(name: str) -> str:
    """Return a name as Python normalizes identifiers (NFKC)."""
    return unicodedata.normalize("NFKC", name)


def identifier(value: str) -> str:
    """Convert a text to a Python identifier.

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
    """Return a name, with a number appended if it is taken."""
    names = itertools.chain([wanted], (f"{wanted}{number}" for number in itertools.count(2)))
    return next(name for name in names if name not in taken)


def attribute(owner: Code, name: str) -> Code:
    """Return the code for an attribute access."""
    return (*owner, f".{name}") if is_name(name) else call(("getattr",), [owner, (text(name),)])


def keywords(arguments: Mapping[str, Code]) -> list[Code]:
    """Return the keyword arguments of a call; names that are not identifiers are passed with `**`."""
    found: list[Code] = [(f"{name}=", *code) for name, code in arguments.items() if is_name(name)]
    others = [(text(name), ": ", *code) for name, code in arguments.items() if not is_name(name)]
    return found + ([("**", Group("{", tuple(others), "}", literal=True))] if others else [])
