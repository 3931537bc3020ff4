"""Imports the libraries when first needed: onnxruntime and onnx to run, onnxscript to build."""

from __future__ import annotations

import functools
import importlib
import os
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from torchport.errors import TargetError, nearest

REMEDY = 'pip install "torchport[onnxruntime]"'
_ENDING = "ExecutionProvider"


def installed_version(name: str = "onnxruntime") -> str:
    """Return a library's installed version; empty if it is not installed."""
    for distribution in (name, f"{name}-gpu") if name == "onnxruntime" else (name,):
        try:
            return version(distribution)
        except PackageNotFoundError:
            continue
    return ""


@functools.cache
def library(name: str) -> Any:
    """Return the module `onnxruntime`, `onnx` or `onnxscript`.

    Raises:
        TargetError: it is not installed, or cannot be imported.
    """
    if name == "onnxruntime":  # since 1.29 it sends telemetry about each model, unless opted out beforehand
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    try:
        found = importlib.import_module(name)
    except ImportError as error:
        raise TargetError(
            f"{name} cannot be imported ({error})", where="onnxruntime", remedy=REMEDY
        ) from error
    if name == "onnxruntime":
        found.set_default_logger_severity(4)  # fatal only: errors are raised as exceptions anyway
    return found


def providers() -> tuple[str, ...]:
    """Return the execution providers of this build, without their common suffix: `CPU`, `CUDA`."""
    return tuple(name.removesuffix(_ENDING) for name in library("onnxruntime").get_available_providers())


def provider_list(chosen: str) -> list[str]:
    """Return a provider in onnxruntime's form, followed by the CPU for ops that it does not support."""
    return [f"{name}{_ENDING}" for name in dict.fromkeys((chosen, "CPU"))]


def check_provider(chosen: str) -> None:
    """Refuse an execution provider that this build of onnxruntime lacks.

    Raises:
        TargetError: the provider is missing; the error lists the nearest ones.
    """
    if chosen not in providers():
        raise TargetError(
            f"this build of onnxruntime has no execution provider {chosen!r}",
            where="onnxruntime",
            remedy=nearest(chosen, providers()),
        )
