"""A target that leaves to the host what a function says."""

from __future__ import annotations

import copy
from collections.abc import Callable

from torch import fx

from torchport.capture import module_path
from torchport.records import Verdict
from torchport.targets import Options, Target

Keep = Callable[[str, str], bool]


def leaving(target: Target, keep: Keep) -> Target:
    """Return the same target, but for the ops that it does not take.

    Args:
        target: the target.
        keep: is given an op's name, as `aten.relu.default`, and the path of the module that calls it, as
            `encoder.layer.0`; says whether it stays on the host.
    """
    made = copy.copy(target)

    def verdict(node: fx.Node, options: Options) -> Verdict:
        if keep(str(node.target), module_path(node)):
            return Verdict(False, "kept_by_option", "kept by the function keep")
        return target.verdict(node, options)

    made.verdict = verdict  # type: ignore[method-assign]  # of a copy that is ours
    return made
