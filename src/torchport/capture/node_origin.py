"""Where a node of a graph comes from: the module that called it, and the user's source line."""

from __future__ import annotations

import re

from torch import fx

# The attribute under which the wrapper that `export` captures holds the user's module.
WRAPPED = "model"

_PREFIX = re.compile(rf"^({WRAPPED}|L\['\w+'\])(\.|$)")
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')


def module_path(node: fx.Node) -> str:
    """Return the path of the module that called the node, such as `layer1.0.conv1`.

    For an op in a backward graph, this is the module that called the forward op.
    """
    modules = modules_around(node)
    return modules[-1][0] if modules else ""


def modules_around(node: fx.Node) -> list[tuple[str, str]]:
    """Return the path and class of every module whose call encloses the node, outermost first."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
    found = {}  # the wrapper and the user's module have the same path here; the later one, the module, wins
    for path, kind in stack.values():
        class_name = kind if isinstance(kind, str) else getattr(kind, "__name__", "")
        found[user_name(path.split("@")[0])] = class_name.rpartition(".")[2]
    return list(found.items())


def user_name(name: str) -> str:
    """Return the name of a parameter or module without the prefix that the wrapper or Dynamo adds."""
    return _PREFIX.sub("", name)


def source_line(node: fx.Node) -> str:
    """Return the user's source line that called the node, as `file.py:12 in forward`."""
    trace = node.meta.get("stack_trace")
    frames = _FRAME.findall(trace) if isinstance(trace, str) else []
    if not frames:
        return ""
    file, line, function = frames[-1]
    return f"{file}:{line} in {function}"
