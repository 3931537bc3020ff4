"""The OpenVINO library: imported on first use, with one core per process."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Iterator, Mapping
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
        TargetError: OpenVINO is not installed, or cannot be imported.
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
    """Hide the telemetry package while OpenVINO is imported, so that it falls back to its no-op stub.

    Otherwise the import alone sends an event to a host on the internet and writes to the home directory. The
    package is hidden only during the import, and only in this process.
    """
    absent = object()
    before = sys.modules.get(_TELEMETRY, absent)
    sys.modules[_TELEMETRY] = None  # type: ignore[assignment]  # makes Python raise ImportError for it
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


def element_types() -> dict[str, Any]:
    """Return OpenVINO's element types by the names of torch's dtypes."""
    types = openvino().Type
    return {
        "float32": types.f32,
        "float16": types.f16,
        "bfloat16": types.bf16,
        "int64": types.i64,
        "int32": types.i32,
        "bool": types.boolean,
    }


def check_device(device: str, precision: str) -> None:
    """Refuse a device that is not available, or a precision that it does not support.

    Raises:
        TargetError: the message lists the available devices, or the device's capabilities.
    """
    if not _is_present(device):
        present = ", ".join(core().available_devices) or "none"
        raise TargetError(
            f"OpenVINO finds no device {device!r} here",
            where="openvino",
            remedy=f"choose one of {present}, or install the device's driver",
        )
    if precision in ("bfloat16", "float16"):
        wanted = {"bfloat16": "BF16", "float16": "FP16"}[precision]
        able = core().get_property(device, "OPTIMIZATION_CAPABILITIES")
        if wanted not in able:
            raise TargetError(
                f"{device} does not compute in {precision} (its capabilities: {', '.join(sorted(able))})",
                where="openvino",
                remedy="use precision=float32, or a device that supports it",
            )


def _is_present(device: str) -> bool:
    present = core().available_devices
    # `GPU` is the first of several GPUs; a single one may be called `GPU.0`, too. A processor has no number.
    numbered = "GPU" if device == "GPU.0" else device
    return device in present or numbered in [name.split(".")[0] for name in present]


def check_config(device: str, config: Mapping[str, object]) -> None:
    """Refuse properties that OpenVINO rejects, by compiling a minimal model with them.

    Otherwise no island would compile with them, and the whole model would stay on the host.

    Raises:
        TargetError: OpenVINO rejects the properties; the message quotes its error.
    """
    if not _is_present(device):
        return  # `check_device` reports that
    try:
        _try_config(device, tuple(sorted(config.items())))
    except TypeError:  # unhashable values cannot be cached
        _try_config.__wrapped__(device, tuple(config.items()))


@functools.lru_cache(maxsize=64)
def _try_config(device: str, config: tuple[tuple[str, object], ...]) -> None:
    library = openvino()
    parameter = library.opset1.parameter([1], library.Type.f32)
    model = library.Model([library.opset1.relu(parameter)], [parameter], "smallest")
    try:
        core().compile_model(model, device, dict(config))
    except Exception as error:  # OpenVINO raises many exception types
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise TargetError(
            f"OpenVINO rejects the config {dict(config)!r:.200}: {(lines or [''])[-1][:200]}",
            where=f"openvino, {device}",
            remedy="see OpenVINO's documentation for the properties of each device",
        ) from error


def in_float32(value: Any) -> Any:
    """Return a value cast to float32; itself if it is that already."""
    single = openvino().Type.f32
    return value if value.get_element_type() == single else openvino().opset13.convert(value, single)
