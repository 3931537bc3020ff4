"""The options of the OpenVINO target."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from torchport.targets.target import Options

Precision = Literal["float32", "bfloat16", "float16"]
PRECISIONS: dict[str, str] = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}


@dataclass(frozen=True)
class OpenVinoOptions(Options):
    """How OpenVINO builds and runs.

    Args:
        device: `CPU`, `GPU`, `GPU.1`, `NPU`, or what else `torchport targets` lists.
        precision: what floating-point ops compute in; OpenVINO's own default is lower than float32
            on many CPUs, ours is float32.
        threads: how many threads an inference takes; 0 leaves it to OpenVINO.
        config: further properties for OpenVINO's compiler, by their own names.
    """

    device: str = "CPU"
    precision: str = "float32"
    threads: int = 0
    config: dict[str, object] = field(default_factory=dict)
