"""A target that leaves ops on the host as a function decides."""

from __future__ import annotations

import copy
from collections.abc import Callable

from torch import fx

from torchport.capture import module_path
from torchport.records import Verdict
from torchport.targets import Options, Target

Keep = Callable[[str, str], bool]


def keeping_on_host(target: Target, keep: Keep) -> Target:
    """Return a copy of a target that rejects the ops that `keep` selects.

    Args:
        target: the target.
        keep: takes an op's name, such as `aten.relu.default`, and the path of the module that calls it, such
            as `encoder.layer.0`; returns whether the op stays on the host.
    """
    made = copy.copy(target)

    def verdict(node: fx.Node, options: Options) -> Verdict:
        if keep(str(node.target), module_path(node)):
            return Verdict(False, "kept_by_option", "kept by the function keep")
        return target.verdict(node, options)

    made.verdict = verdict  # type: ignore[method-assign]  # on our own copy
    return made
