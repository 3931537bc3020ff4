"""`pytest --resume FILE`: makes a long run resumable. Passed tests are recorded in FILE, and not run again.

Each line of FILE is a passed test with the digest of the sources at that time. If the sources have changed
since, the test still counts, and the run reports the number of these tests at the end: delete FILE to start
over.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[1] / "src"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption(
        "--resume", type=Path, metavar="FILE", help="resume the run whose passed tests are recorded in FILE"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin, if the option is given."""
    path = config.getoption("--resume")
    if path is not None:
        config.pluginmanager.register(_Resumed(path, is_worker=hasattr(config, "workerinput")), "resumed")


class _Resumed:
    """Deselects tests that passed before, and records tests that pass now."""

    def __init__(self, path: Path, *, is_worker: bool) -> None:
        self.path, self.is_worker = path, is_worker
        self.digest = _digest_of_sources()
        self.before = _read(path) if path.exists() else {}

    @pytest.hookimpl(trylast=True)  # after `-m` and `-k`
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        left_out = [item for item in items if item.nodeid in self.before]
        if left_out:
            items[:] = [item for item in items if item.nodeid not in self.before]
            config.hook.pytest_deselected(items=left_out)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # A strict xfail that fails as expected is reported as skipped; it is done as well.
        is_done = report.when == "call" and (report.passed or hasattr(report, "wasxfail"))
        if is_done and not self.is_worker:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            row = {"test": report.nodeid, "sources": self.digest, "seconds": round(report.duration, 2)}
            with self.path.open("a") as file:
                file.write("\n" + json.dumps(row))  # on a new line, even after a truncated one

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self.before:
            session.exitstatus = pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.before:
            older = sum(digest != self.digest for digest in self.before.values())
            said = f"{len(self.before)} tests passed before, according to {self.path}"
            terminalreporter.write_line(f"{said}; {older} of them with other sources" if older else said)


def _read(path: Path) -> dict[str, str]:
    """Return the tests that passed, with the digests of the sources; truncated lines are skipped."""
    found = {}
    for line in path.read_text().splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        found[row["test"]] = row["sources"]
    return found


def _digest_of_sources() -> str:
    digest = hashlib.sha256()
    for path in sorted(SOURCES.rglob("*.py")):
        digest.update(f"{path.relative_to(SOURCES)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]
