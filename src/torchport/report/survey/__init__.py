"""A survey's raw files and rows → the ops that its models use: counts, distributions, plots, SQL queries."""

from torchport.report.survey.answer import render_answer
from torchport.report.survey.database import DEFAULT_LIMITS, Limits
from torchport.report.survey.query import QueryResult, query_survey
from torchport.report.survey.reading import read_survey
from torchport.report.survey.records import ArgumentCount, OpCount, SizeCount, Survey, SurveyModel
from torchport.report.survey.writing import write_survey_report

__all__ = [
    "ArgumentCount",
    "DEFAULT_LIMITS",
    "Limits",
    "OpCount",
    "QueryResult",
    "SizeCount",
    "Survey",
    "SurveyModel",
    "query_survey",
    "read_survey",
    "render_answer",
    "write_survey_report",
]
