"""Targets whose compilers crash or hang; found by entry point, also in a child process."""

import os
import sys
import time

from torchport.targets.host import HostTarget


def has_tanh(island):
    return any(str(node.target) == "aten.tanh.default" for node in island.graph_module.graph.nodes)


class Aborts(HostTarget):
    """A target whose compiler aborts on tanh."""

    name = "aborts"

    def build(self, island, options):
        if has_tanh(island):
            print("tanh: internal compiler error", file=sys.stderr, flush=True)
            os.abort()
        return super().build(island, options)


class Hangs(HostTarget):
    """A target whose compiler hangs on tanh."""

    name = "hangs"

    def build(self, island, options):
        if has_tanh(island):
            print("thinking about tanh", flush=True)
            time.sleep(600)
        return super().build(island, options)


class Wrong(HostTarget):
    """A target that computes wrong results once the compiler's own check is over."""

    name = "wrong"

    def load(self, artifact, inputs, outputs, options):
        run = super().load(artifact, inputs, outputs, options)
        return lambda arguments: [result + 0.01 for result in run(arguments)]
