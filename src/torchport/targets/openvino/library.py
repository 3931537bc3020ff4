"""The OpenVINO library itself: imported when first needed, with one core for the process."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from torchport.errors import TargetError

REMEDY = 'pip install "torchport[openvino]"'
_TELEMETRY = "openvino_telemetry"


def installed_version() -> str:
    """Return OpenVINO's version; empty if it is not installed."""
    try:
        return version("openvino")
    except PackageNotFoundError:
        return ""


@functools.cache
def openvino() -> Any:
    """Return the module `openvino`.

    Raises:
        TargetError: it is not installed, or does not load.
    """
    try:
        with _without_telemetry():
            return importlib.import_module("openvino")
    except ImportError as error:
        raise TargetError(
            f"OpenVINO cannot be imported ({error})", where="openvino", remedy=REMEDY
        ) from error


@contextmanager
def _without_telemetry() -> Iterator[None]:
    """Let OpenVINO find no telemetry package while it is imported: its stub takes over, which does nothing.

    Otherwise the import alone sends an event to a host on the internet and writes to the home directory. The
    package is hidden for the time of the import, and in this process alone.
    """
    absent = object()
    before = sys.modules.get(_TELEMETRY, absent)
    sys.modules[_TELEMETRY] = None  # type: ignore[assignment]  # Python's own mark of what cannot be imported
    try:
        yield
    finally:
        if before is absent:
            del sys.modules[_TELEMETRY]
        else:
            sys.modules[_TELEMETRY] = before  # type: ignore[assignment]


@functools.cache
def core() -> Any:
    """Return the process's OpenVINO core."""
    return openvino().Core()


def check_device(device: str, precision: str) -> None:
    """Refuse a device that is not there, or a precision that it cannot compute in.

    Raises:
        TargetError: names the devices that are there, or what the device can do.
    """
    present = core().available_devices
    # Of several GPUs, `GPU` is the first; a single one is `GPU.0` as well.
    names = {*present, *[name.split(".")[0] for name in present], *[f"{name}.0" for name in present]}
    if device not in names:
        raise TargetError(
            f"OpenVINO sees no device {device!r} here",
            where="openvino",
            remedy=f"choose out of {', '.join(present) or 'none'}, or install the device's driver",
        )
    if precision in ("bfloat16", "float16"):
        wanted = {"bfloat16": "BF16", "float16": "FP16"}[precision]
        able = core().get_property(device, "OPTIMIZATION_CAPABILITIES")
        if wanted not in able:
            raise TargetError(
                f"{device} does not compute in {precision} (it can do {', '.join(sorted(able))})",
                where="openvino",
                remedy="use precision=float32, or a device that can",
            )
