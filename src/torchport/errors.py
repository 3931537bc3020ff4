"""torchport's exceptions: each says what failed, where, and what to do about it."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable


class TorchportError(Exception):
    """The base class of torchport's exceptions.

    Args:
        what: what failed, in one sentence.
        where: the model, stage, node or source line at which it failed.
        remedy: what the reader can do about it.

    Example:
        >>> print(TorchportError("no target named 'opnvino'", remedy="did you mean 'openvino'?"))
        no target named 'opnvino': did you mean 'openvino'?
    """

    def __init__(self, what: str, *, where: str = "", remedy: str = "") -> None:
        self.what = what
        self.where = where
        self.remedy = remedy
        super().__init__(what, where, remedy)

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text}: {self.remedy}" if self.remedy else text

    def __reduce__(self) -> tuple[object, ...]:
        """Make the error picklable although its constructor takes keyword-only arguments."""
        return functools.partial(type(self), where=self.where, remedy=self.remedy), (self.what,)

    def to_json(self) -> dict[str, str]:
        """Return the error as the JSON that commands print with `--json`."""
        return {
            "error": type(self).__name__,
            "what": self.what,
            "where": self.where,
            "remedy": self.remedy,
        }


class RecordError(TorchportError):
    """A record's JSON does not match its schema."""


class StructureError(TorchportError):
    """An input or output cannot be flattened into tensors and rebuilt."""


class VerificationError(TorchportError):
    """Two results differ by more than is allowed, or cannot be compared."""


class ZooError(TorchportError):
    """A model cannot be found, loaded or given inputs."""


class CaptureError(TorchportError):
    """A model cannot be captured as a graph."""


class AnalysisError(TorchportError):
    """A model cannot be analyzed, or the files of an analysis do not belong together."""


class CodegenError(TorchportError):
    """A captured model cannot be written as code, or the code does not reproduce the model's results."""


class TargetError(TorchportError):
    """A target is unknown, is not installed, does not have the given option, or failed to build or load."""


class CompileError(TorchportError):
    """A captured model cannot be compiled."""


class RuntimeRefusal(TorchportError):
    """A compiled model was called in a way that it was not built for."""


class QuantizationError(TorchportError):
    """A model cannot be quantized as requested: because of the data, the options or the accuracy budget."""


class PackageError(TorchportError):
    """A compiled model cannot be written to a file, or a file cannot be read as one."""


class SurveyError(TorchportError):
    """A benchmark or survey cannot run."""


class ReportError(TorchportError):
    """Records cannot be read or rendered."""


def one_line(error: BaseException) -> str:
    """Return an error as one line: a `TorchportError` in full, any other by its first line.

    Long errors are shortened, and the line can always be encoded as UTF-8.

    Example:
        >>> one_line(ValueError("no\\nsuch thing"))
        'ValueError: no'
    """
    name, text = type(error).__name__, message_of(error)
    if isinstance(error, TorchportError):
        return shortened(" ".join(shortened(text, 4 * _LONGEST).split()))
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return f"{name}: {shortened(first, 300)}" if first else name


def message_of(error: BaseException) -> str:
    """Return an error's message, which can always be encoded as UTF-8, also if its class raises instead."""
    try:
        text = str(error)
    except Exception as other:  # noqa: BLE001  # str() of a model's own exception may raise
        return f"its message cannot be read: {type(other).__name__}"
    return text.encode("utf-8", "backslashreplace").decode("utf-8")  # lone surrogates cannot be encoded


_LONGEST = 2000  # the most characters of an error in a row


def shortened(text: str, longest: int = _LONGEST) -> str:
    """Return a text, or if it is too long its head and tail with a note of how much is left out in between.

    Example:
        >>> shortened("one two three four", 8)
        'one  … (10 characters left out) … four'
    """
    left_out = len(text) - longest
    if left_out <= 0:
        return text
    half = longest // 2
    return f"{text[:half]} … ({left_out:,} characters left out) … {text[len(text) - half :]}"


def nearest(name: str, known: Iterable[str]) -> str:
    """Return advice that names the entries of `known` closest to `name`, or else lists the first few.

    Example:
        >>> nearest("opnvino", ["host", "openvino"])
        "did you mean 'openvino'?"
    """
    names = sorted(set(known))
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    if not close:
        close = [candidate for candidate in names if name.lower() in candidate.lower()][:3]
    if close:
        return "did you mean " + " or ".join(repr(candidate) for candidate in close) + "?"
    if not names:
        return "none are available"
    shown = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
    return f"choose from {shown}"
