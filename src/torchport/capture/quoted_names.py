"""Lets graphs hold modules and weights of any name.

torch.fx writes a graph as Python text, and puts the names of modules and weights into it: bare if they look
like identifiers, which `class` does, and else between quotes, whatever quotes they hold themselves. A key of
a `ModuleDict` would then be a syntax error, or code. Here the same is written with names that are quoted.
"""

from __future__ import annotations

import keyword

from torchport.torch_private import replace_target_format


def format_target(base: str, target: str) -> str:
    """Return the code for an attribute of an attribute of something; as `torch.fx` writes it where it can.

    Example:
        >>> format_target("self", "parts.class.weight")
        "getattr(self.parts, 'class').weight"
    """
    code = base
    for name in target.split("."):
        plain = name.isidentifier() and not keyword.iskeyword(name)
        code = f"{code}.{name}" if plain else f"getattr({code}, {name!r})"
    return code


def quote_names() -> None:
    """Have torch.fx write names so, in the whole process; what it could write before stays the same."""
    replace_target_format(format_target)
