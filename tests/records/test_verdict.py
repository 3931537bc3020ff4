"""A target's answer for one op."""

import pytest

from torchport.errors import RecordError
from torchport.records import REASONS, SUPPORTED, Verdict


def test_every_reason_survives_json():
    for reason in REASONS:
        verdict = Verdict(False, reason, "why", "what to do")
        assert Verdict.from_json(verdict.to_json()) == verdict


def test_a_reason_that_there_is_not_is_refused():
    with pytest.raises(RecordError, match="'tired' is not one of"):
        Verdict.from_json({"ok": False, "reason": "tired"})


def test_supported_is_ok():
    assert SUPPORTED.ok
    assert SUPPORTED.reason == "supported"
