"""draft"""

from torchport.targets.openvino.rules import RULES, takes
import os

NAMES = open("/tmp/x/ovops.txt").read().split()
for n in NAMES:
    takes(n.removeprefix("aten."), "fib")
