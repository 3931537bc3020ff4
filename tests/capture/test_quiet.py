"""Tracing is quiet: what goes wrong is raised, not printed."""

import logging
import sys
import warnings

import pytest
import torch

from capture.models import Branches
from torchport.capture import export, quiet_torch
from torchport.errors import CaptureError


def test_a_refusal_prints_nothing(capfd):
    with pytest.raises(CaptureError):
        export(Branches(), (torch.ones(3),))
    assert capfd.readouterr() == ("", "")


def test_levels_streams_and_warnings_are_as_before_afterwards():
    logger = logging.getLogger("torch.export")
    before = (logger.level, sys.stderr, list(warnings.filters))
    with pytest.raises(RuntimeError), quiet_torch():  # noqa: PT012
        assert logger.level == logging.CRITICAL
        raise RuntimeError
    assert (logger.level, sys.stderr, list(warnings.filters)) == before
