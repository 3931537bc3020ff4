"""Determines what is installed and which targets work here, for `doctor` and `targets`."""

from __future__ import annotations

import dataclasses
import platform
from importlib.metadata import entry_points
from pathlib import Path

import torch

from torchport import targets
from torchport.bringup.machine import describe_machine, package_version
from torchport.records import Check, Installation, TargetStatus
from torchport.targets.user_directory import cache_directory

_PACKAGES = (
    "torchport", "torch", "numpy", "openvino", "torchvision", "timm", "transformers", "safetensors",
    "onnxruntime",
)  # fmt: skip
_REINSTALL = "install torchport again: pip install --force-reinstall --no-deps torchport"


def describe_installation() -> Installation:
    """Describe what is installed, which targets work here, and whether torch finds torchport.

    Example:
        >>> describe_installation().versions["torch"] == torch.__version__
        True
    """
    directory = cache_directory()
    return Installation(
        versions={"python": platform.python_version()} | {name: package_version(name) for name in _PACKAGES},
        machine=describe_machine(),
        checks=(
            _entry_point("torch_dynamo_backends", 'torch.compile(model, backend="torchport")'),
            _entry_point("torch.backends", "the hook in `import torch`"),
            _island_op(),
        ),
        targets=describe_targets(),
        cache_path=str(directory),
        cache_bytes=_size(directory),
    )


def describe_targets() -> tuple[TargetStatus, ...]:
    """Describe for each target whether it works here, and if not, why.

    Example:
        >>> "host" in [target.name for target in describe_targets() if target.ok]
        True
    """
    return tuple(_status(targets.find(name)) for name in targets.names())


def _status(target: targets.Target) -> TargetStatus:
    found = target.availability()
    return TargetStatus(
        name=target.name,
        description=target.description,
        ok=found.ok,
        detail=found.detail,
        remedy=found.remedy,
        version=found.version,
        devices=found.devices,
        options={field.name: _default(field) for field in dataclasses.fields(target.options_type)},
    )


def _default(field: dataclasses.Field[object]) -> str:
    if field.default_factory is not dataclasses.MISSING:
        return str(field.default_factory())
    return ",".join(map(str, field.default)) if isinstance(field.default, tuple) else str(field.default)


def _entry_point(group: str, purpose: str) -> Check:
    for entry in entry_points(group=group):
        if entry.name == "torchport":
            return Check(purpose, True, f"{entry.value} in {group}")
    return Check(purpose, False, f"no entry point 'torchport' in {group}", _REINSTALL)


def _island_op() -> Check:
    purpose = "the op torchport::island"
    if hasattr(torch.ops.torchport, "island"):
        return Check(purpose, True, "registered")
    return Check(purpose, False, "not registered, so saved models do not load", _REINSTALL)


def _size(directory: Path) -> int:
    """Return the total size in bytes of a directory's files; files that vanish meanwhile are skipped."""
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:
            continue
    return total
