"""What a survey does: its settings, and one work item for each model."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import torch

from torchport.bringup.machine import package_version
from torchport.records import JSON, Record
from torchport.version import __version__

STAT = "stat"  # the backend that records ops; others are targets' names
LIBRARIES = {"torchvision": "torchvision", "timm": "timm", "hf": "transformers", "hf-small": "transformers"}


@dataclass(frozen=True, slots=True)
class SurveySettings(Record):
    """What is done with each model. Surveys with the same settings record the same.

    Args:
        backend: `stat` to record the ops of the model's graphs, or a target's name to run its benchmark.
        backward: whether the backward graph is recorded too.
        train: whether the model is traced in training mode rather than in evaluation mode.
        profile: whether to profile a run on real values too.
        weights: whether runs on real values use the pretrained weights.
        batch: the batch size of a library model's inputs.
        inputs: `FILE.py::FUNCTION` that returns the inputs to use instead of the model's own.
        options: the target's options.
    """

    backend: str = STAT
    backward: bool = False
    train: bool = False
    profile: bool = False
    weights: bool = True
    batch: int | None = None
    inputs: str | None = None
    options: dict[str, object] = field(default_factory=dict)

    def as_texts(self) -> dict[str, str]:
        """Return the settings as they are stored in a row: each as JSON."""
        return {name: json.dumps(value, sort_keys=True) for name, value in self.to_json().items()}


@dataclass(frozen=True, slots=True)
class WorkItem(Record):
    """One model and what to do with it.

    Args:
        model: its name.
        settings: what to do with it.
    """

    schema: ClassVar[str] = "torchport.work_item/1"

    model: str
    settings: SurveySettings

    @property
    def is_file(self) -> bool:
        """Whether the model comes from a Python file of the user's."""
        return "::" in self.model or self.model.endswith(".py")


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one model; its process is killed if it exceeds them.

    Args:
        seconds: the most time.
        memory: the most memory, in bytes.
    """

    seconds: float
    memory: int


@dataclass(frozen=True, slots=True)
class ItemOutcome:
    """The outcome of an item.

    Args:
        item: the item.
        row: its row, as JSON.
        files: the contents of the files that it wrote, by path in the survey's directory.
    """

    item: WorkItem
    row: Mapping[str, JSON]
    files: Mapping[str, bytes]


def installed_versions() -> dict[str, str]:
    """Return the versions that every record depends on."""
    return {"python": platform.python_version(), "torch": torch.__version__, "torchport": __version__}


def versions_of(item: WorkItem) -> dict[str, str]:
    """Return the versions that an item's records depend on, with its library's or its files' digests."""
    found = installed_versions()
    for name in (item.model, item.settings.inputs or ""):
        file, is_file, _ = name.rpartition("::")
        library = LIBRARIES.get(name.partition(":")[0])
        if is_file and os.path.isfile(file):
            found[file] = hashlib.sha256(Path(file).read_bytes()).hexdigest()[:12]
        elif library is not None:
            found[library] = package_version(library)
    return found
