"""Model names → records of the models' ops, or of their benchmarks on a target.

Everything here is imported when it is first used, so that a survey of ops does not wait for a compiler.
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
