"""What a measurement depends on: the versions and the machine."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from torchport import targets
from torchport.version import __version__


def versions_for(target: str) -> dict[str, str]:
    """Return the versions that a measurement on a target depends on."""
    found = {"python": platform.python_version(), "torch": torch.__version__, "torchport": __version__}
    library = targets.find(target).version()
    if library and library != torch.__version__:  # a target based on torch has torch's version
        found[target] = library
    return found


def package_version(name: str) -> str:
    """Return the version of an installed distribution without importing it; empty if not installed."""
    if name == "torch":
        return torch.__version__  # includes the local build tag, which the distribution may omit
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def describe_machine() -> dict[str, str]:
    """Return the processor, its cores and the threads that torch uses."""
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count() or 0),
        "threads": str(torch.get_num_threads()),
        "system": f"{platform.system()} {platform.machine()}",
    }


def _processor() -> str:
    try:
        facts = Path("/proc/cpuinfo").read_text()
        if "model name" not in facts:  # on ARM, the kernel gives only numbers; lscpu knows the names
            facts = subprocess.run(["lscpu"], capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.SubprocessError):
        facts = ""  # not Linux
    for line in facts.splitlines():
        if line.lower().startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
