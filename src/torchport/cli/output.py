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

from torchport.cli.stream import ToleratingStream
from torchport.cli.terminal import guard, json_text, printable
from torchport.records import JSON

# Wide enough for a module path next to a sentence, if there is no terminal.
_WIDTH_WITHOUT_TERMINAL = 140


class Output:
    """The two consoles of a command, and how it was asked to write.

    Args:
        out: where results go.
        err: where messages and progress go.
        json: whether the result is to be one JSON document.
        debug: whether tracebacks, warnings and logs are wanted.
        owns_process: whether the process runs this command alone, so that its stdout and logs are ours.
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
        """Return the output of a real command; failures of its streams no longer raise."""
        sys.stdout, sys.stderr = _tolerating(sys.stdout), _tolerating(sys.stderr)
        width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _WIDTH_WITHOUT_TERMINAL
        out = Console(highlight=False, width=width)
        err = Console(stderr=True, highlight=False)
        return cls(out, err, json=json, debug=debug, owns_process=True)

    def take_process(self) -> None:
        """Make this process the command's: nothing but results on stdout, no chatter on stderr.

        It is the file descriptor of stdout that is taken, so that C++ libraries and child processes,
        which know nothing of `sys.stdout`, are kept out too; what they write goes to stderr. It is not
        given back: what they have buffered is written when the process ends.
        """
        if not self._owns_process:
            return
        self._owns_process = False
        sys.stdout.flush()
        results = os.dup(1)
        os.dup2(2, 1)
        self.out.file = _tolerating(os.fdopen(results, "w", encoding="utf-8", newline=""))
        if self.debug:
            _show_logs()
        else:
            warnings.simplefilter("ignore")
            logging.getLogger("torch").setLevel(logging.ERROR)
            os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

    def result(self, data: JSON, render: Callable[[Console], None]) -> None:
        """Write a command's result: as JSON if that was asked for, else as it is rendered."""
        if self.json:
            self.json_text(data, indent=2)
        else:
            render(self.out)

    def text(self, text: str) -> None:
        """Write a text as it is, but for signs that a terminal would act upon: no wrapping, no markup."""
        self._write(printable(text))

    def json_text(self, data: JSON, *, indent: int | None = None) -> None:
        """Write a JSON document, by default on a line."""
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
        """Show on a terminal that something takes its time; give what shows another text in its place."""
        if not self.err.is_terminal:
            yield lambda text: None
            return
        with self.err.status(Text(text)) as status:
            yield lambda text: status.update(Text(text))


def _tolerating(stream: TextIO | None) -> TextIO:
    """Return a stream that drops what cannot be delivered; a process may have been started without one."""
    file = open(os.devnull, "w", encoding="utf-8") if stream is None else stream  # noqa: SIM115  # until the end
    return cast("TextIO", ToleratingStream(file))


def _show_logs() -> None:
    """Show logs and warnings, which quote names of files and models too."""

    class Printable(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return printable(super().format(record))

    handler = logging.StreamHandler()
    handler.setFormatter(Printable(logging.BASIC_FORMAT))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.captureWarnings(True)
    logging.getLogger("torchport").setLevel(logging.DEBUG)
