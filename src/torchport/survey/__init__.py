"""Models × (ops, or targets) → records: surveys, benchmarks, and what works on this machine.

Everything here is imported when it is first used: a survey that records ops waits for no compiler.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchport.survey.bench import BenchSettings, run_bench
    from torchport.survey.benches import run_benches
    from torchport.survey.installation import describe_installation, describe_targets
    from torchport.survey.survey_models import SurveyProgress, run_survey
    from torchport.survey.trial import bring_up

_WHERE = {
    "BenchSettings": "bench",
    "SurveyProgress": "survey_models",
    "bring_up": "trial",
    "describe_installation": "installation",
    "describe_targets": "installation",
    "run_bench": "bench",
    "run_benches": "benches",
    "run_survey": "survey_models",
}

__all__ = [
    "BenchSettings",
    "SurveyProgress",
    "bring_up",
    "describe_installation",
    "describe_targets",
    "run_bench",
    "run_benches",
    "run_survey",
]


def __getattr__(name: str) -> object:
    if name in _WHERE:
        return getattr(import_module(f"torchport.survey.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'torchport.survey' has no attribute {name!r}")
