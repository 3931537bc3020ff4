"""Python's collection of cycles while graphs are made."""

import gc
import threading

import pytest
import torch

import torchport
from torchport.capture.rare_collections import collecting_rarely
from torchport.errors import CaptureError


@pytest.fixture(autouse=True)
def _as_it_was():
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


def test_it_is_rare_until_the_last_has_left():
    with collecting_rarely():
        with collecting_rarely():
            pass
        assert gc.get_threshold()[0] > 700
    assert gc.get_threshold() == (700, 10, 10)


def test_threads_that_overlap_leave_it_as_it_was():
    entered, may_leave = threading.Event(), threading.Event()

    def stay():
        with collecting_rarely():
            entered.set()
            may_leave.wait()

    with collecting_rarely():
        other = threading.Thread(target=stay)
        other.start()
        entered.wait()
    assert gc.get_threshold()[0] > 700
    may_leave.set()
    other.join()
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("own", [(0, 10, 10), (1_000_000, 5, 5)])
def test_who_collects_never_or_more_rarely_keeps_it(own):
    gc.set_threshold(*own)
    with collecting_rarely():
        assert gc.get_threshold() == own
    assert gc.get_threshold() == own


def test_what_a_model_sets_meanwhile_stays():
    with collecting_rarely():
        gc.set_threshold(5, 5, 5)
    assert gc.get_threshold() == (5, 5, 5)


def test_a_model_is_captured_so_and_an_error_ends_it():
    class Model(torch.nn.Module):
        def forward(self, x):
            raise ValueError(f"every {gc.get_threshold()[0]} objects")

    with pytest.raises(CaptureError, match=r"every \d+ objects") as raised:
        torchport.compile(Model(), (torch.ones(2),), target="host")
    assert "every 700 objects" not in str(raised.value)
    assert gc.get_threshold() == (700, 10, 10)
