"""How long each op of an island takes, by OpenVINO's own counters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from torchport.records import OpTime
from torchport.targets.openvino.build import build
from torchport.targets.openvino.load import load
from torchport.targets.openvino.options import OpenVinoOptions
from torchport.targets.target import Island

_RUNS = 3
# The frontend names a layer by its node, op and type: `relu_1/aten.relu.default/Relu`.
_NODE = re.compile(r"(\w+)/(?:aten|prims)\.")


def op_times(island: Island, options: OpenVinoOptions, arguments: Sequence[torch.Tensor]) -> list[OpTime]:
    """Build the island with counters, run it, and return what they say of its fastest run."""
    counting = replace(options, config={**options.config, "PERF_COUNT": True})
    runner: Any = load(build(island), island.inputs, island.outputs, counting)
    runs = []
    for _ in range(_RUNS):
        runner(arguments)
        runs.append([_time_of(entry) for entry in runner.counters()])
    return min(runs, key=lambda times: sum(time.seconds for time in times))


def _time_of(entry: Any) -> OpTime:
    found = _NODE.findall(str(entry.node_name))
    kernel = str(entry.exec_type)
    return OpTime(
        node=found[-1] if found else "",
        seconds=entry.real_time.total_seconds(),
        kernel=f"{entry.node_type} {kernel}",
        precision=kernel.rpartition("_")[2],
        is_reference=bool(re.match(r"(\w+_)?ref(_|$)", kernel)),
    )
