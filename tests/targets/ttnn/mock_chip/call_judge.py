"""Calls the interpreter with the mock chip to judge programs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torchport
from torchport.targets.ttnn.simulator import FUNCTIONS

from . import environment

_SOURCE = Path(torchport.__file__).parents[1]


class NotJudged(Exception):
    """The interpreter ended before it had judged every program; the message says how."""


def verdicts(folders: Sequence[Path], *, timeout: float) -> list[dict[str, Any]]:
    """Return the real library's verdicts on the programs in folders, in the same order.

    Args:
        folders: each holds `program.json`, and `program.py` with its weights.
        timeout: the limit for all programs together, in seconds.

    Raises:
        Unavailable: the library cannot be installed here.
        NotJudged: the interpreter did not answer for every program.
        TimeoutExpired: judging took too long.
    """
    command = environment.command()
    keywords = json.dumps({name: " ".join(each.keywords) for name, each in FUNCTIONS.items()})
    judge = Path(__file__).with_name("judge.py")
    done = subprocess.run(
        [*command, str(judge), str(_SOURCE), keywords, *map(str, folders)],
        env=environment.variables(), capture_output=True, text=True, timeout=timeout, cwd=folders[0],
    )  # fmt: skip
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"folder"')]
    if len(lines) != len(folders):
        raise NotJudged(f"it ended with {done.returncode}: {done.stderr.strip()[-2000:]}")
    return lines
