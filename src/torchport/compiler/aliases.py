"""Finds the results that share memory with an input, a weight or another result.

Such a view is made on the host: from a device it would come back as a copy, and who writes to it, or
to what it is a view of, would see another result than with eager torch.
"""

from __future__ import annotations

import operator

from torch import fx

from torchport.compiler.normalise import NormalGraph
from torchport.compiler.views import base_of


def aliasing_nodes(graph: NormalGraph) -> dict[fx.Node, str]:
    """Return the nodes that must run on the host, with what each shares memory with."""
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
