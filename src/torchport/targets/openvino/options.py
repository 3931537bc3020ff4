"""The options of the OpenVINO target, and which of them a file may set."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from torchport.errors import TargetError
from torchport.targets.target import Options, choice, number

Precision = Literal["float32", "bfloat16", "float16"]
MOST_THREADS = 1024
PRECISIONS: dict[str, str] = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}


@dataclass(frozen=True)
class OpenVinoOptions(Options):
    """How OpenVINO builds and runs.

    Args:
        device: `CPU`, `GPU`, `GPU.1`, `NPU`, or any other device that `torchport targets` lists.
        precision: the precision of floating-point ops. OpenVINO's own default is lower than float32 on many
            CPUs; ours is float32. With float16 on a CPU, large matrix products with weights are computed in
            float16 and everything else in float32, and overflows of float16 are detected.
        threads: the number of threads per inference; 0 leaves it to OpenVINO.
        config: further properties for OpenVINO's compiler, under OpenVINO's names.
    """

    device: str = "CPU"
    precision: str = choice("float32", PRECISIONS)
    threads: int = number(0, least=0, most=MOST_THREADS)
    config: dict[str, object] = field(default_factory=dict)


# OpenVINO's physical devices. The virtual ones (AUTO, HETERO, MULTI, BATCH, PROXY) choose others at will.
_DEVICE = re.compile(r"(CPU|GPU|NPU)(\.[0-9]{1,3})?")

Permit = Callable[[object], bool]


def _one_of(*texts: str) -> Permit:
    return lambda value: isinstance(value, str) and value in texts


def _number(least: int, most: int) -> Permit:
    def permits(value: object) -> bool:
        if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value):
            value = int(value)
        return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most

    return permits


def _switch(value: object) -> bool:
    return isinstance(value, bool) or (isinstance(value, str) and value in ("YES", "NO", "TRUE", "FALSE"))


# The OpenVINO properties that a file may set: they affect only speed and precision. Others name files or
# directories (CACHE_DIR, WEIGHTS_PATH), load libraries, or write logs.
HARMLESS: dict[str, Permit] = {
    "CPU_DENORMALS_OPTIMIZATION": _switch,
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": _number(0, 2**20),
    "ENABLE_CPU_PINNING": _switch,
    "ENABLE_CPU_RESERVATION": _switch,
    "ENABLE_HYPER_THREADING": _switch,
    "EXECUTION_MODE_HINT": _one_of("ACCURACY", "PERFORMANCE"),
    "INFERENCE_NUM_THREADS": _number(0, MOST_THREADS),
    "INFERENCE_PRECISION_HINT": _one_of("f32", "bf16", "f16"),
    "KV_CACHE_PRECISION": _one_of("f32", "bf16", "f16", "u8", "i8"),
    "NUM_STREAMS": lambda value: value in ("AUTO", "NUMA") or _number(0, MOST_THREADS)(value),
    "PERFORMANCE_HINT": _one_of("LATENCY", "THROUGHPUT", "CUMULATIVE_THROUGHPUT"),
    "PERFORMANCE_HINT_NUM_REQUESTS": _number(0, MOST_THREADS),
    "SCHEDULING_CORE_TYPE": _one_of("ANY_CORE", "PCORE_ONLY", "ECORE_ONLY"),
}


def check_file_options(given: Mapping[str, object]) -> None:
    """Refuse options that a file may not set.

    Raises:
        TargetError: an option is not permitted; the message names it.
    """
    device, config = given.get("device", "CPU"), given.get("config", {})
    if not isinstance(device, str) or not _DEVICE.fullmatch(device):
        raise _not_permitted("device", device)
    if not isinstance(config, Mapping):
        raise _not_permitted("config", config)
    for key, value in config.items():
        if key not in HARMLESS or not HARMLESS[key](value):
            raise _not_permitted("config", {key: value})


def _not_permitted(option: str, value: object) -> TargetError:
    return TargetError(
        f"a file may not set the option {option} to {value!r:.100}",
        where="openvino",
        remedy="compile the model without it before saving, and pass it only where you compile the model",
    )
