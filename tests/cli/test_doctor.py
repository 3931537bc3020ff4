"""`torchport doctor`."""

import torch

from torchport.bringup import installation
from torchport.records import Installation


def test_it_shows_what_is_installed_and_works(command):
    ran = command("doctor")
    assert ran.code == 0
    text = " ".join(ran.out.split())
    assert f"torch {torch.__version__}" in text
    assert "✅ the hook in `import torch`" in text
    assert "cache" in text
    assert "host ✅" in text


def test_something_that_needs_a_fix_is_a_finding(command, monkeypatch):
    monkeypatch.setattr(installation, "entry_points", lambda group: [])
    ran = command("doctor")
    assert ran.code == 1
    assert '❌ torch.compile(model, backend="torchport")' in ran.out
    assert "→ install torchport again" in ran.out


def test_a_missing_extra_is_shown_but_not_a_finding(command, monkeypatch):
    monkeypatch.setattr(installation, "_PACKAGES", ("torch", "no-such-package"))
    ran = command("doctor")
    assert ran.code == 0
    assert "no-such-package  not installed" in ran.out


def test_json_is_the_record(command):
    assert Installation.from_json(command("doctor", "--json").json).ok
