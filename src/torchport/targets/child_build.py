"""Runs a target's compiler in a child process, so that a crash or hang does not affect the caller."""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from torchport.errors import TargetError
from torchport.records import parse_object, temporary_folder
from torchport.targets.child_process import ChildEnd, run_child
from torchport.targets.island_files import BUILT, read_artifact, write_island
from torchport.targets.target import Artifact, Island, Options, Target

LOG, FAILURE, REQUEST = "compiler.log", "failure.json", "request.json"


def isolated(
    target: Target,
    timeout: float | None = None,
    workdir: str | os.PathLike[str] | None = None,
    *,
    run: bool = False,
) -> Target:
    """Return a copy of a target whose `build` runs in a child process.

    Args:
        target: the target.
        timeout: how many seconds a build may take.
        workdir: the folder for a subfolder per island, with its graph, the compiler's log and the artefact;
            without it, they are removed.
        run: whether the child also runs the built island, on zeros.
    """
    made = copy.copy(target)
    made.build = _ChildBuild(target, timeout, None if workdir is None else Path(workdir), run)  # type: ignore[method-assign]  # only of this copy
    return made


def is_isolated(target: Target) -> bool:
    """Whether a target builds in child processes already."""
    return isinstance(target.build, _ChildBuild)


class _ChildBuild:
    """Builds islands in child processes."""

    def __init__(self, target: Target, timeout: float | None, workdir: Path | None, run: bool) -> None:
        self._target = target
        self._timeout = timeout
        self._workdir = workdir
        self._run = run

    def __call__(self, island: Island, options: Options) -> Artifact:
        """Build the island in a child process.

        Raises:
            TargetError: the compiler rejects the island, or crashes; includes its log's last line.
            subprocess.TimeoutExpired: the build takes longer than the timeout.
        """
        with self._folder(island.name) as folder:
            write_island(island, folder)
            request = {
                "target": self._target.name,
                "options": self._target.options_json(options),
                "keep": self._workdir is not None,
                "run": self._run,
            }
            (folder / REQUEST).write_text(json.dumps(request, indent=1))
            end = self._run_child(folder)
            if not (folder / BUILT).is_file():
                raise _failure(folder, end, self._target.name, kept=self._workdir is not None)
            return read_artifact(folder)

    def _folder(self, island: str) -> AbstractContextManager[Path]:
        if self._workdir is None:
            return temporary_folder("build")
        self._workdir.mkdir(parents=True, exist_ok=True)
        taken = {path.name for path in self._workdir.iterdir()}
        plain = re.sub(r"\W", "_", island)
        names = [plain, *[f"{plain}.{number}" for number in range(2, len(taken) + 3)]]
        folder = self._workdir / next(name for name in names if name not in taken)
        folder.mkdir()
        return nullcontext(folder)

    def _run_child(self, folder: Path) -> ChildEnd:
        end = run_child("torchport.targets.child", folder, folder / LOG, timeout=self._timeout)
        if end.how == "timeout":
            assert self._timeout is not None
            raise subprocess.TimeoutExpired(
                f"the build of {folder.name}", self._timeout, stderr=(folder / LOG).read_bytes()
            )
        return end


def _failure(folder: Path, end: ChildEnd, target: str, *, kept: bool) -> TargetError:
    """Return the child's error, or an error with how it ended."""
    if (folder / FAILURE).is_file():
        data = parse_object((folder / FAILURE).read_bytes(), FAILURE)
        what, where, remedy = (str(data.get(key, "")) for key in ("what", "where", "remedy"))
        return TargetError(what, where=where, remedy=remedy)
    lines = (folder / LOG).read_text(errors="replace").strip().splitlines()
    said = f", and last said: {lines[-1][:200]}" if lines else ""
    remedy = f"its log is {folder / LOG}" if kept else "pass compiler_workdir to keep its log"
    return TargetError(f"the compiler {end}{said}", where=target, remedy=remedy)
