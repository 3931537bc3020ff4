"""The engines that run a survey's items: items → outcomes, in the order of completion."""

from __future__ import annotations

import os

from torchport.errors import SurveyError, nearest
from torchport.survey.engines.engine import Engine
from torchport.survey.engines.local import LocalEngine
from torchport.survey.engines.ray import RayEngine

ENGINES = ("local", "ray")

__all__ = ["ENGINES", "Engine", "LocalEngine", "RayEngine", "make_engine"]


def make_engine(name: str, *, workers: int | None = None, address: str | None = None) -> Engine:
    """Return an engine by its name.

    Args:
        name: `local` or `ray`.
        workers: how many models run at a time; by default as many as there are processors.
        address: the address of a Ray cluster; without it, one is started on this machine.

    Raises:
        SurveyError: there is no such engine, or it does not take an address.
    """
    if name == "ray":
        return RayEngine(workers, address)
    if name != "local":
        raise SurveyError(f"unknown engine {name!r}", remedy=nearest(name, ENGINES))
    if address is not None:
        raise SurveyError("the local engine has no address", remedy="choose the engine ray (--engine ray)")
    return LocalEngine(workers or os.cpu_count() or 1)
