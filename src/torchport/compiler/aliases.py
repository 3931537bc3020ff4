"""Finds the results that alias an input, a weight or another result.

Such views are made on the host: from a device they would come back as copies, and writes to a view or to its
base would then have other effects than with eager torch.
"""

from __future__ import annotations

import operator

from torch import fx

from torchport.compiler.normalise import NormalGraph
from torchport.compiler.views import base_of


def aliasing_nodes(graph: NormalGraph) -> dict[fx.Node, str]:
    """Return the nodes that must run on the host, each with a description of what it shares memory with."""
    returned = [value for value in graph.returned if isinstance(value, fx.Node)]
    results = set(returned)
    found: dict[fx.Node, str] = {}
    for value in returned:
        chain = [value]
        while (base := base_of(chain[-1])) is not None:
            if base.op in ("placeholder", "get_attr"):
                what = "an input" if base.op == "placeholder" else "a weight"
            elif base in results:
                what = "another result"
            else:
                chain.append(base)
                continue
            found.update(dict.fromkeys(chain, what))
            found.update({node.args[0]: what for node in chain if node.target is operator.getitem})  # type: ignore[misc]  # its first argument is a node
            break
    return found
