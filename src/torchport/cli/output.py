"""Where commands write: results to one console, everything else to another."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO, cast

from rich.console import Console
from rich.text import Text

from torchport.cli.stream import TolerantStream
from torchport.cli.terminal import guard, json_text, printable
from torchport.records import JSON

# Used without a terminal: wide enough for a module path next to a sentence.
_WIDTH_WITHOUT_TERMINAL = 140


class Output:
    """A command's two consoles, and the output format it was asked for.

    Args:
        out: where results go.
        err: where messages and progress go.
        json: whether to write the result as one JSON document.
        debug: whether to show tracebacks, warnings and logs.
        owns_process: whether the process runs only this command, which may then redirect stdout and
            configure logging.
    """

    def __init__(
        self,
        out: Console,
        err: Console,
        *,
        json: bool = False,
        debug: bool = False,
        owns_process: bool = False,
    ) -> None:
        self.out = guard(out)
        self.err = guard(err)
        self.json = json
        self.debug = debug
        self._owns_process = owns_process

    @classmethod
    def of_process(cls, *, json: bool, debug: bool) -> Output:
        """Return the output for this process; errors writing to its streams no longer raise."""
        sys.stdout, sys.stderr = _tolerant(sys.stdout), _tolerant(sys.stderr)
        width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _WIDTH_WITHOUT_TERMINAL
        out = Console(highlight=False, width=width)
        err = Console(stderr=True, highlight=False)
        return cls(out, err, json=json, debug=debug, owns_process=True)

    def take_process(self) -> None:
        """Reserve stdout for the command's results, and silence logs and warnings on stderr.

        Redirects the file descriptor of stdout, so that what C++ libraries and child processes write,
        bypassing `sys.stdout`, goes to stderr too. It is never restored: what those libraries have
        buffered is only written when the process ends.
        """
        if not self._owns_process:
            return
        self._owns_process = False
        sys.stdout.flush()
        results = os.dup(1)
        os.dup2(2, 1)
        self.out.file = _tolerant(os.fdopen(results, "w", encoding="utf-8", newline=""))
        if self.debug:
            _show_logs()
        else:
            warnings.simplefilter("ignore")
            logging.getLogger("torch").setLevel(logging.ERROR)
            os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

    def result(self, data: JSON, render: Callable[[Console], None]) -> None:
        """Write a command's result, as JSON or as `render` prints it."""
        if self.json:
            self.json_text(data, indent=2)
        else:
            render(self.out)

    def text(self, text: str) -> None:
        """Write text without wrapping or markup; terminal control characters are made visible."""
        self._write(printable(text))

    def json_text(self, data: JSON, *, indent: int | None = None) -> None:
        """Write a JSON document, by default on one line."""
        self._write(json_text(data, indent=indent))

    def _write(self, text: str) -> None:
        self.out.file.write(text + "\n")
        self.out.file.flush()

    @property
    def failure(self) -> str:
        """Why results could not be written; empty if they were, or if the reader closed the pipe."""
        self.out.file.flush()
        error = getattr(self.out.file, "failure", None)
        return f"standard output cannot be written: {error.strerror or error}" if error else ""

    def message(self, text: str) -> None:
        """Write a line to stderr."""
        self.err.print(text, markup=False, soft_wrap=True)

    @contextmanager
    def working(self, text: str) -> Iterator[Callable[[str], None]]:
        """Show a spinner on a terminal; yields a function that changes its text."""
        if not self.err.is_terminal:
            yield lambda text: None
            return
        with self.err.status(Text(text)) as status:
            yield lambda text: status.update(Text(text))


def _tolerant(stream: TextIO | None) -> TextIO:
    """Wrap a stream so that write errors do not raise; None if the process was started without one."""
    file = open(os.devnull, "w", encoding="utf-8") if stream is None else stream  # noqa: SIM115  # until the end
    return cast("TextIO", TolerantStream(file))


def _show_logs() -> None:
    """Show logs and warnings, sanitized, since they too quote names of files and models."""

    class Printable(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return printable(super().format(record))

    handler = logging.StreamHandler()
    handler.setFormatter(Printable(logging.BASIC_FORMAT))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.captureWarnings(True)
    logging.getLogger("torchport").setLevel(logging.DEBUG)
