"""OpenVINO's decoder of FX graphs, with its linear node look-ups replaced by constant-time ones.

The decoder calls `list.index` with a node for every argument; on graphs of thousands of nodes that takes
longer than the conversion itself.
"""

from __future__ import annotations

import functools
from typing import Any

from torch import fx


class _IndexedNodes(list[fx.Node]):
    """A list of nodes with a constant-time `index`."""

    def __init__(self, nodes: list[fx.Node]) -> None:
        super().__init__(nodes)
        self._places = {node: place for place, node in enumerate(nodes)}

    def index(self, value: fx.Node, *bounds: Any) -> int:
        """Return the index of a node."""
        return self._places[value]


@functools.cache
def fast_decoder_type() -> type[Any]:
    """Return the decoder class; defined here because its base class needs OpenVINO."""
    from openvino.frontend.pytorch.fx_decoder import TorchFXPythonDecoder

    class FastDecoder(TorchFXPythonDecoder):
        """The decoder of a whole graph, which passes an indexed list to the decoders of its nodes."""

        def __init__(self, graph_module: fx.GraphModule) -> None:
            super().__init__(graph_module, dynamic_shapes=False)
            self._nodes: list[fx.Node] = _IndexedNodes(list(graph_module.graph.nodes))

    return FastDecoder
