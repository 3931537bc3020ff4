"""Devices that each fail in one way, and otherwise compute as the host does."""

import time

from torchport.errors import TargetError
from torchport.records import OpTime
from torchport.targets.host import HostTarget
from torchport.targets.target import OutOfRange

FAULTY = "aten.tanh.default"


def has_fault(graph_module):
    return any(str(node.target) == FAULTY for node in graph_module.graph.nodes)


class Liar(HostTarget):
    """Gets one op wrong."""

    name = "liar"

    def load(self, artifact, inputs, outputs, options):
        run = super().load(artifact, inputs, outputs, options)
        if FAULTY.encode() not in artifact.payload.tobytes():
            return run
        return lambda arguments: [result + 1 for result in run(arguments)]


class Refuser(HostTarget):
    """Its compiler refuses one op."""

    name = "refuser"

    def build(self, island, options):
        if has_fault(island.graph_module):
            raise TargetError("tanh is beyond me", where=island.name)
        return super().build(island, options)


class Crasher(HostTarget):
    """Its compiler crashes on one op."""

    name = "crasher"

    def build(self, island, options):
        if has_fault(island.graph_module):
            raise ZeroDivisionError("in the scheduler\nat line 3")
        return super().build(island, options)


class Whole(HostTarget):
    """Refuses islands of several ops, though it takes each op on its own."""

    name = "whole"

    def build(self, island, options):
        if sum(node.op == "call_function" for node in island.graph_module.graph.nodes) > 1:
            raise TargetError("one at a time")
        return super().build(island, options)


class Picky(HostTarget):
    """Takes no negative numbers."""

    name = "picky"

    def load(self, artifact, inputs, outputs, options):
        run = super().load(artifact, inputs, outputs, options)

        def checked(arguments):
            if any((argument < 0).any() for argument in arguments):
                raise OutOfRange("a negative number")
            return run(arguments)

        return checked


class PickyLiar(Picky, Liar):
    """Takes no negative numbers, and gets one op wrong."""

    name = "picky_liar"


class Moody(HostTarget):
    """Fails on negative numbers."""

    name = "moody"

    def load(self, artifact, inputs, outputs, options):
        run = super().load(artifact, inputs, outputs, options)

        def broken(arguments):
            if any((argument < 0).any() for argument in arguments):
                raise RuntimeError("the device is gone")
            return run(arguments)

        return broken


class Slow(HostTarget):
    """Is slow on one op, and its profile shows that."""

    name = "slow"
    is_timed = True
    has_clock = True
    seconds = 0.02

    def load(self, artifact, inputs, outputs, options):
        run = super().load(artifact, inputs, outputs, options)
        if FAULTY.encode() not in artifact.payload.tobytes():
            return run
        return lambda arguments: (time.sleep(self.seconds), run(arguments))[1]

    def op_times(self, island, options, arguments):
        nodes = [node for node in island.graph_module.graph.nodes if node.op == "call_function"]
        slow = [node for node in nodes if str(node.target) == FAULTY]
        if not self.has_clock:
            return None
        return [OpTime(node.name, self.seconds if node in slow else 1e-6, "ref_any") for node in nodes]


class Clockless(Slow):
    """The same, without a profile."""

    name = "clockless"
    has_clock = False


DEVICES = {
    device.name: device()
    for device in (Liar, Refuser, Crasher, Whole, Picky, PickyLiar, Moody, Slow, Clockless)
}
