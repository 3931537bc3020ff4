"""Models × (ops, or targets) → records: what many models are made of, or how they do on targets.

Everything here is imported when it is first used: a survey that records ops waits for no compiler.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchport.survey.survey_models import SurveyProgress, run_survey
    from torchport.survey.work_item import SurveySettings

__all__ = ["SurveyProgress", "SurveySettings", "run_survey"]


def __getattr__(name: str) -> object:
    if name in __all__:
        return getattr(import_module("torchport.survey.survey_models"), name)
    raise AttributeError(f"module 'torchport.survey' has no attribute {name!r}")
