"""Where a node of a graph comes from: the module that called it, and the user's line."""

from __future__ import annotations

import re

from torch import fx

# The wrapper that `export` captures holds the user's module under this name.
WRAPPED = "model"

_PREFIX = re.compile(rf"^({WRAPPED}|L\['\w+'\])(\.|$)")
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')


def module_path(node: fx.Node) -> str:
    """Return the path of the module that called the node, such as `layer1.0.conv1`.

    For an op of a backward graph it is the module that called the forward op.
    """
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
    if not stack:
        return ""
    path = next(reversed(stack.values()))[0]
    return user_name(path.split("@")[0])


def user_name(name: str) -> str:
    """Return a parameter's or module's name without the wrapper's, or Dynamo's name of the model."""
    return _PREFIX.sub("", name)


def source_line(node: fx.Node) -> str:
    """Return the user's line that called the node, as `file.py:12 in forward`."""
    trace = node.meta.get("stack_trace")
    frames = _FRAME.findall(trace) if isinstance(trace, str) else []
    if not frames:
        return ""
    file, line, function = frames[-1]
    return f"{file}:{line} in {function}"
