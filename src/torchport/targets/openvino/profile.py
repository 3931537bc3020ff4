"""Measures how long each op of an island takes, with OpenVINO's performance counters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch

from torchport.records import OpTime
from torchport.targets.openvino.build import build
from torchport.targets.openvino.load import load
from torchport.targets.openvino.options import OpenVinoOptions
from torchport.targets.target import Island

_RUNS = 3
_FUSED = "undef"
# The frontend names a layer by its node, op and type: `relu_1/aten.relu.default/Relu`.
_NODE = re.compile(r"(\w+)/(?:aten|prims)\.")


def op_times(island: Island, options: OpenVinoOptions, arguments: Sequence[torch.Tensor]) -> list[OpTime]:
    """Build the island with counters, run it, and return the op times of its fastest run."""
    counting = replace(options, config={**options.config, "PERF_COUNT": True})
    runner: Any = load(build(island), island.inputs, island.outputs, counting)
    runs = []
    for _ in range(_RUNS):
        runner(arguments)
        runs.append(times_of(runner.counters()))
    return min(runs, key=lambda times: sum(time.seconds for time in times))


def times_of(entries: Iterable[Any]) -> list[OpTime]:
    """Return the times of the kernels that ran, from OpenVINO's counters in their order.

    A fused op follows the kernel that it was fused into, with no time of its own. A kernel that lost its
    node's name in a fusion gets that of the first op that follows.
    """
    found: list[OpTime] = []
    for entry in entries:
        time = _time_of(entry)
        if time.seconds:
            found.append(time)
        elif found and not found[-1].node and str(entry.exec_type).startswith(_FUSED):
            found[-1] = replace(found[-1], node=time.node)
    return found


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
