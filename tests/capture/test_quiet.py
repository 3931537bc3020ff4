"""Tracing is quiet: errors are raised, not printed."""

import contextlib
import io
import logging
import os
import sys
import threading
import warnings

import pytest
import torch

import torchport
from capture.models import Branches
from torchport.capture import export, quiet_torch
from torchport.capture.quiet import quiet_streams
from torchport.capture.suppressed_output import STDOUT
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


def in_another_thread(work):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_what_another_thread_prints_and_warns_of_is_shown(capsys):
    def speak():
        print("heard", file=sys.stderr)
        sys.stderr.writelines(["and ", "this"])
        warnings.warn("seen", stacklevel=1)

    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        with quiet_torch():
            print("not heard", file=sys.stderr)
            warnings.warn("not seen", stacklevel=1)
            in_another_thread(speak)
    assert capsys.readouterr().err == "heard\nand this"
    assert [str(warning.message) for warning in shown] == ["seen"]


@contextlib.contextmanager
def held_back_elsewhere():
    """Another thread suppresses its output until told to stop."""
    entered, leave = threading.Event(), threading.Event()

    def hold():
        with quiet_streams(), STDOUT.held_back():
            entered.set()
            leave.wait(60)

    def end():
        leave.set()
        thread.join()

    thread = threading.Thread(target=hold)
    thread.start()
    assert entered.wait(60)
    try:
        yield end
    finally:
        end()


def test_threads_that_overlap_leave_streams_and_warnings_as_they_were(capsys):
    """Each restores what it found, and the second one finds what the first one installed."""
    before = (sys.stdout, sys.stderr, list(warnings.filters))
    with contextlib.ExitStack() as other, quiet_streams(), STDOUT.held_back():
        other.enter_context(held_back_elsewhere())
    assert (sys.stdout, sys.stderr, list(warnings.filters)) == before


def test_streams_and_filters_that_the_caller_puts_there_meanwhile_stay_in_use(capsys):
    before, kept = list(warnings.filters), io.StringIO()
    with (
        held_back_elsewhere() as end,
        contextlib.redirect_stdout(kept),
        contextlib.redirect_stderr(kept),
        warnings.catch_warnings(),
    ):
        end()
        print("kept")
        print("this too", file=sys.stderr)
    print("printed")
    print("as well", file=sys.stderr)
    assert kept.getvalue() == "kept\nthis too\n"
    assert capsys.readouterr() == ("printed\n", "as well\n")
    assert list(warnings.filters) == before


def test_two_threads_quantize_and_the_process_speaks_as_before(capsys):
    before = (sys.stdout, sys.stderr, logging.root.manager.disable, os.environ.get("NNCF_CI"))
    data = [(torch.randn(2, 4),) for _ in range(4)]

    def quantize():
        torchport.quantize(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval(), data)

    threads = [threading.Thread(target=quantize) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (sys.stdout, sys.stderr, logging.root.manager.disable, os.environ.get("NNCF_CI")) == before
    assert "Statistics" not in capsys.readouterr().out
