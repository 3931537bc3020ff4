"""One model on one target → a record: run, compared, timed; and what works on this machine.

Names are imported lazily, so that asking about the machine does not import the compiler.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchport.bringup.bench import BenchSettings, run_bench
    from torchport.bringup.benches import run_benches
    from torchport.bringup.generation_run import run_generation
    from torchport.bringup.installation import describe_installation, describe_targets
    from torchport.bringup.model_trial import bring_up
    from torchport.bringup.profile_model import RooflineLimits, profile

_WHERE = {
    "BenchSettings": "bench",
    "bring_up": "model_trial",
    "describe_installation": "installation",
    "describe_targets": "installation",
    "profile": "profile_model",
    "RooflineLimits": "profile_model",
    "run_bench": "bench",
    "run_benches": "benches",
    "run_generation": "generation_run",
}

__all__ = [
    "BenchSettings", "bring_up", "describe_installation", "describe_targets", "profile", "RooflineLimits",
    "run_bench", "run_benches", "run_generation",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name in _WHERE:
        return getattr(import_module(f"torchport.bringup.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'torchport.bringup' has no attribute {name!r}")
