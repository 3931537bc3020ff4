"""Digests of the machine properties that determine how fast something runs."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
from pathlib import Path

import torch


@functools.cache
def processor() -> str:
    """Return a digest of the processor's features."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
        flags = sorted({line for line in lines if line.startswith(("flags", "Features"))})
    except OSError:  # another system
        flags = [platform.processor()]
    return _digest([platform.machine(), *flags])


def machine() -> str:
    """Return a digest of what timings depend on: processor, cores, threads, and torch's GPU."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    return _digest([processor(), _model(), str(os.cpu_count()), str(torch.get_num_threads()), gpu])


@functools.cache
def _model() -> str:
    """Return the processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith("model name")), "")


def _digest(facts: list[str]) -> str:
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
