"""Lets graphs contain modules and weights of any name.

torch.fx prints a graph as Python code that contains the names of modules and weights: bare if they look like
identifiers, as `class` does, and otherwise in quotes, without escaping quotes within the name. A `ModuleDict`
key could then be a syntax error, or inject code. Here, such names are printed as properly quoted strings.
"""

from __future__ import annotations

import keyword

from torchport.torch_private import replace_target_format


def format_target(base: str, target: str) -> str:
    """Return the code for a nested attribute access; for plain identifiers, the same as torch.fx's.

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
    """Make torch.fx quote names in this way, process-wide; code that was valid before means the same."""
    replace_target_format(format_target)
