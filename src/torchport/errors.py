"""The refusals of torchport: each says what failed, where, and what to do about it."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable


class TorchportError(Exception):
    """The base of every refusal.

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
        """Let the error cross to another process, though its arguments are keywords."""
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
    """A record's JSON is not what its schema says."""


class StructureError(TorchportError):
    """An input or output cannot be flattened into tensors and rebuilt."""


class VerificationError(TorchportError):
    """Two results differ by more than is allowed, or cannot be compared."""


class ZooError(TorchportError):
    """A model cannot be found, loaded or given inputs."""


class CaptureError(TorchportError):
    """A model cannot be captured as a graph."""


class AnalysisError(TorchportError):
    """A model cannot be analysed, or files of an analysis do not belong together."""


class CodegenError(TorchportError):
    """A captured model cannot be written as code, or the code does not do what the model does."""


class TargetError(TorchportError):
    """A target is unknown, not installed, has no such option, or failed to build or load."""


class CompileError(TorchportError):
    """A captured model cannot be compiled."""


class RuntimeRefusal(TorchportError):
    """A compiled model is called in a way that it was not built for."""


class QuantizationError(TorchportError):
    """A model cannot be quantized as asked: its data, its options, or the accuracy that it must keep."""


class PackageError(TorchportError):
    """A compiled model cannot be written to a file, or a file cannot be read as one."""


class SurveyError(TorchportError):
    """A benchmark or survey cannot run."""


class ReportError(TorchportError):
    """Records cannot be read or rendered."""


def one_line(error: BaseException) -> str:
    """Return an error as one line for a row or a message: a refusal whole, another by its first line.

    However long the error is, the line is not; it can be written to any file.

    Example:
        >>> one_line(ValueError("no\\nsuch thing"))
        'ValueError: no'
    """
    name = type(error).__name__
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  # a model's own error may fail even at that
        return f"{name}, whose text cannot be had"
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")  # half of a pair has no form in a file
    if isinstance(error, TorchportError):
        return shortened(" ".join(shortened(text, 4 * _LONGEST).split()))
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return f"{name}: {shortened(first, 300)}" if first else name


_LONGEST = 2000  # characters of an error in a row


def shortened(text: str, longest: int = _LONGEST) -> str:
    """Return a text, or its head and its tail with a note of how much is left out between.

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
    """Return advice that names the entries of `known` closest to `name`, or lists a few of them.

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
        return "none is known"
    shown = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
    return f"known are {shown}"
