"""The policy for calls that the compiled program cannot handle."""

import threading

import pytest

from torchport.errors import RuntimeRefusal
from torchport.records import Fallbacks
from torchport.runtime import eager_fallback
from torchport.runtime.eager_fallback import EagerFallback, NotCompiled
from torchport.targets.target import GaveNaN, OutOfRange


def raising(error):
    def call():
        raise error

    return call


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OutOfRange("too large"), "too large"),
        (GaveNaN([]), "an output holds NaN"),
        (NotCompiled("too many shapes"), "too many shapes"),
        (RuntimeError("the device\nis gone"), "RuntimeError: the device"),
        (RuntimeRefusal("no", where="island_0", remedy="compile again"), "island_0: no: compile again"),
        (MemoryError(), "MemoryError"),
    ],
)
def test_any_error_of_a_program_falls_back_to_eager_torch(error, reason, caplog):
    fallback = EagerFallback("model")
    for _ in range(3):
        assert fallback.run(raising(error), lambda: "eager") == "eager"
    assert fallback.run(lambda: "compiled", lambda: "eager") == "compiled"
    assert fallback.record == Fallbacks(4, 3, reason)
    said = [record for record in caplog.records if record.levelname == "WARNING"]
    assert [record.getMessage() for record in said] == [f"model: this call runs with eager torch: {reason}"]


def test_a_call_without_a_compiled_program():
    fallback = EagerFallback("model")
    assert fallback.run_eagerly("no such graph", lambda: "eager") == "eager"
    assert fallback.record == Fallbacks(1, 1, "no such graph")


def test_each_new_reason_is_logged_up_to_a_limit(caplog):
    fallback = EagerFallback("model")
    for number in range(2 * eager_fallback._MOST_REASONS):
        fallback.run(raising(OutOfRange(f"{number}")), lambda: None)
    said = [record for record in caplog.records if record.levelname == "WARNING"]
    assert len(said) == eager_fallback._MOST_REASONS
    assert fallback.record.fallbacks == 2 * eager_fallback._MOST_REASONS


def test_passed_exceptions_are_neither_caught_nor_counted():
    fallback = EagerFallback("model")
    with pytest.raises(KeyError):
        fallback.run(raising(KeyError()), lambda: None, passing=(KeyError,))
    with pytest.raises(KeyboardInterrupt):
        fallback.run(raising(KeyboardInterrupt()), lambda: None)
    assert fallback.record == Fallbacks(0, 0, "")


def test_an_error_of_eager_torch_is_raised_without_context():
    with pytest.raises(ValueError, match="the model's own") as caught:
        EagerFallback("model").run(raising(OutOfRange("no")), raising(ValueError("the model's own")))
    assert caught.value.__context__ is None


def test_calls_of_several_threads_are_all_counted():
    fallback = EagerFallback("model")

    def work():
        for number in range(500):
            fallback.run(raising(OutOfRange("odd")) if number % 2 else lambda: None, lambda: None)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert fallback.record == Fallbacks(2000, 1000, "odd")


def test_the_record_as_json_and_as_text():
    record = Fallbacks(4, 1, "too large")
    assert Fallbacks.from_json(record.to_json()) == record
    assert str(record) == "1 of 4 calls ran with eager torch: too large"
