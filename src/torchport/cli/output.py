"""Where commands write: results to one console, everything else to another."""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

from torchport.records import JSON

# Wide enough for a module path beside a sentence, when there is no terminal to ask.
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
        self.out = out
        self.err = err
        self.json = json
        self.debug = debug
        self._owns_process = owns_process

    @classmethod
    def of_process(cls, *, json: bool, debug: bool) -> Output:
        """Return the output of a real command."""
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
        self.out.file = os.fdopen(results, "w", encoding="utf-8", newline="")
        if self.debug:
            logging.basicConfig(level=logging.INFO)
            logging.getLogger("torchport").setLevel(logging.DEBUG)
        else:
            warnings.simplefilter("ignore")
            logging.getLogger("torch").setLevel(logging.ERROR)
            os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

    def result(self, data: JSON, render: Callable[[Console], None]) -> None:
        """Write a command's result: as JSON if that was asked for, else as it is rendered."""
        if self.json:
            self.text(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False))
        else:
            render(self.out)

    def text(self, text: str) -> None:
        """Write a text as it is: no wrapping, no markup."""
        self.out.file.write(text + "\n")
        self.out.file.flush()

    def message(self, text: str) -> None:
        """Write a line to stderr."""
        self.err.print(text, markup=False, soft_wrap=True)

    @contextmanager
    def working(self, text: str) -> Iterator[None]:
        """Show on a terminal that something takes its time."""
        if not self.err.is_terminal:
            yield
            return
        with self.err.status(text):
            yield
