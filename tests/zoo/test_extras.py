"""Importing the optional libraries."""

import importlib.util
import logging
import threading
from types import SimpleNamespace

from torchport.zoo import extras


def test_threads_that_import_a_library_at_once_leave_the_loggers_levels(monkeypatch):
    loggers = [logging.getLogger(name) for name in extras._NOISY_LOGGERS]
    before = [logger.level for logger in loggers]
    is_second_inside, is_first_done = threading.Event(), threading.Event()
    second = threading.Thread(target=extras.import_library, args=["transformers"])

    def import_module(name):
        if name == "transformers":
            return
        assert {logger.level for logger in loggers} == {logging.ERROR}
        if threading.current_thread() is second:
            is_second_inside.set()
            is_first_done.wait(1)
        else:
            second.start()
            is_second_inside.wait(0.1)

    fake = SimpleNamespace(import_module=import_module, util=importlib.util)
    monkeypatch.setattr(extras, "importlib", fake)
    try:
        extras.import_library("transformers")
        is_first_done.set()
        second.join()
        assert is_second_inside.is_set()
        assert [logger.level for logger in loggers] == before
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
