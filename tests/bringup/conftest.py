"""Lets a test change what a model compiles to."""

import time

import pytest

from torchport.bringup import model_trial as trial


@pytest.fixture
def change_compiled(monkeypatch):
    """Wraps a compiled model's forward with `change(forward) -> forward`; `delay` slows compiling down."""

    def install(change, *, delay=0.0):
        compile_for_real = trial.compile

        def compile(*args, **kwargs):
            time.sleep(delay)
            compiled = compile_for_real(*args, **kwargs)
            monkeypatch.setattr(compiled, "forward", change(compiled.forward))
            return compiled

        monkeypatch.setattr(trial, "compile", compile)

    return install
