"""Models × (ops, or targets) → records: surveys, benchmarks, and what works on this machine."""

from torchport.survey.bench import BenchSettings, run_bench
from torchport.survey.benches import run_benches
from torchport.survey.installation import describe_installation, describe_targets
from torchport.survey.survey_models import SurveyProgress, run_survey
from torchport.survey.trial import bring_up

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
