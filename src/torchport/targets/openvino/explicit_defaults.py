"""Makes torch's default arguments explicit: the dimension of a split, and the eps of an RMS norm.

OpenVINO requires the dimension, and has another default for eps: that of the tensor's dtype.
"""

from __future__ import annotations

import torch
from torch import fx

from torchport.verification import HALVES

# The position of the dimension among the arguments.
_PLACES = {"aten.split.Tensor": 2, "aten.split_with_sizes.default": 2, "aten.unbind.int": 1}


def write_default_dims(graph_module: fx.GraphModule) -> None:
    """Add the dimension 0 where none is given, and float32's eps to half-precision RMS norms, in place."""
    for node in graph_module.graph.nodes:
        place = _PLACES.get(str(node.target))
        if place is not None and len(node.args) == place and "dim" not in node.kwargs:
            node.args = (*node.args, 0)
        elif str(node.target) == "aten.rms_norm.default" and node.meta["val"].dtype in HALVES:
            source, sizes, weight, eps = (*node.args, None, None)[:4]
            eps = node.kwargs.get("eps", eps)
            # torch computes in float32.
            eps = torch.finfo(torch.float32).eps if eps is None else eps
            node.args, node.kwargs = (source, sizes, node.kwargs.get("weight", weight), eps), {}
    graph_module.recompile()
