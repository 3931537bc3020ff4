"""Engines for the trials of `auto`, found by entry point, also in child processes: one for each behavior."""

import os
import signal
import subprocess
import sys
import time

import torch

from torchport.targets.host import HostTarget


class Engine(HostTarget):
    """Computes as the host does, and counts as an engine."""

    is_timed = True

    def load(self, artifact, inputs, outputs, options):
        run = super().load(artifact, inputs, outputs, options)
        return lambda arguments: self.call(run, arguments)

    def call(self, run, arguments):
        return run(arguments)


class Quick(Engine):
    """Knows all results beforehand, so that eager torch, which sleeps, is slower."""

    name = "quick"

    def load(self, artifact, inputs, outputs, options):
        run = HostTarget.load(self, artifact, inputs, outputs, options)
        known = []

        def call(arguments):
            if not known:
                known.append(run(arguments))
            return [result.clone() for result in known[0]]

        return call


class Slower(Engine):
    """Is slow."""

    name = "slower"

    def call(self, run, arguments):
        time.sleep(0.05)
        return run(arguments)


class Mistaken(Engine):
    """Computes wrong results."""

    name = "mistaken"

    def call(self, run, arguments):
        return [result + 1 for result in run(arguments)]


class Segfaults(Engine):
    """Crashes its process, as a bad pointer would."""

    name = "segfaults"

    def call(self, run, arguments):
        print("loading a bad pointer", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGSEGV)
        time.sleep(60)


class Stuck(Engine):
    """Hangs, as does the process that it started."""

    name = "stuck"

    def build(self, island, options):
        started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        with open(os.environ["STUCK_PROCESS"], "w") as file:
            file.write(str(started.pid))
        time.sleep(600)


class Hungry(Engine):
    """Allocates all the memory that it can get."""

    name = "hungry"

    def call(self, run, arguments):
        held = []
        while True:
            held.append(torch.ones(2**22))
            time.sleep(0.001)


class Raises(Engine):
    """Raises an error that a target should not raise."""

    name = "raises"

    def prepare(self, graph_module):
        raise ZeroDivisionError("in the scheduler")


class Absent(Engine):
    """Is not installed."""

    name = "absent"

    def availability(self):
        found = super().availability()
        return type(found)(False, "its library is not installed", "install it")


ENGINES = (Quick, Slower, Mistaken, Segfaults, Stuck, Hungry, Raises, Absent)
