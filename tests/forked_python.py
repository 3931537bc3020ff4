"""Starts Python processes as forks of one that has already imported torch, which takes seconds.

Each is a real child process of this one, and has not imported any part of torchport, whose files are compiled
once for all of them. It runs the script, the
`-c` code or the `-m` module that was passed to `subprocess.Popen`, in the requested directory, with the
requested environment and files, and exits as any interpreter does.

A test uses the fixture `forked_python` if it is about what its processes *do*. Tests of how a process starts,
what it imports, how it is installed or what remains after it is killed use ordinary processes.
"""

import ctypes
import inspect
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

from fork_server import READY

_PR_SET_CHILD_SUBREAPER = 36
_SERVER = Path(__file__).with_name("fork_server.py")
# Variables that the interpreter or torch reads once, at startup: other values need an ordinary process.
_READ_AT_START = ("LD_", "MKL_", "OMP_", "OPENBLAS_", "PYTHON", "TORCH_", "TORCHDYNAMO_", "TORCHINDUCTOR_")
_GIVEN = ("PYTHONPATH", "OMP_NUM_THREADS", "TORCHINDUCTOR_CACHE_DIR")  # except these, which a fork applies
# No threads, since a fork would lose them. The part of torchport that torch loads is loaded by the fork.
_SERVER_SETTINGS = {
    "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
}  # fmt: skip
_PIPES = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
_Popen = subprocess.Popen  # the original, even while the fixture has replaced it


class _Server:
    """The process to fork, and this process's end of the connection to it.

    It never becomes ready if importing torch starts threads.
    """

    def __init__(self) -> None:
        self._line, other = socket.socketpair()
        self.settings = _settings(os.environ)
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        with other:
            self._process = _Popen(
                [sys.executable, str(_SERVER), str(other.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[other.fileno()],
                env=environment | _SERVER_SETTINGS,
                cwd="/",
            )
        self.is_ready = self._line.recv(1) == READY

    def end(self) -> None:
        """Close the connection, which ends the process, and wait for it."""
        self._line.close()
        self._process.wait()

    def fork(self, request: dict[str, object], files: list[int]) -> int:
        """Return the pid of a new process, which is a child of this one."""
        data = json.dumps(request).encode()
        _adopt_orphans(True)
        try:
            socket.send_fds(self._line, [len(data).to_bytes(8, "big")], files)
            self._line.sendall(data)
            answer = self._line.recv(8)
        finally:
            _adopt_orphans(False)
        assert len(answer) == 8, "the process that is forked has ended"
        pid = int.from_bytes(answer, "big")
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # raises unless it is our child
        return pid


def can_fork() -> bool:
    """Whether processes can be forked here; valid once one has been requested."""
    return _server is not None and _server.is_ready


_server: _Server | None = None
_lock = threading.Lock()  # guards the server, and whether this process adopts orphans


def _adopt_orphans(wanted: bool) -> None:
    """Set whether a descendant whose parent exits becomes a child of this process, to be waited for here."""
    assert ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0) == 0


def _settings(environment: dict[str, str] | os._Environ[str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(_READ_AT_START) and name not in _GIVEN
    }


def _is_python(args: object) -> bool:
    """Whether a command runs Python with a script, a module or code, and without interpreter options."""
    if not isinstance(args, list) or len(args) < 2 or str(args[0]) != sys.executable:
        return False
    return args[1] in ("-c", "-m") or not str(args[1]).startswith("-")


class ForkedPopen(_Popen):
    """A `Popen` that forks Python processes, and starts any other process as usual."""

    def _execute_child(self, *arguments: object) -> None:
        global _server
        asked = inspect.signature(_Popen._execute_child).bind(self, *arguments).arguments
        environment = os.environ if asked["env"] is None else asked["env"]
        plain = not any(asked[name] for name in ("executable", "preexec_fn", "pass_fds", "shell"))
        plain = plain and sys.platform == "linux" and _is_python(asked["args"])
        with _lock:
            if plain and _server is not None and _server.settings != _settings(os.environ):
                _server.end()  # the environment of this process has changed
                _server = None
            if plain and _server is None:
                _server = _Server()
        if not plain or not _server.is_ready or _settings(environment) != _server.settings:
            _Popen._execute_child(self, *arguments)
            return
        request = {
            "arguments": [str(word) for word in asked["args"][1:]],
            "folder": os.path.abspath(asked["cwd"] or "."),
            "environment": dict(environment),
            "new_session": asked["start_new_session"],
        }
        ends = [asked[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        files = [number if end == -1 else end for number, end in enumerate(ends)]
        with _lock:
            self.pid = _server.fork(request, files)
        self._child_created = True
        self._close_pipe_fds(*(asked[name] for name in _PIPES))
