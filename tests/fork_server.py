"""The process that `forked_python` forks: it imports torch, and waits for requests that say what to run."""

import gc
import importlib
import importlib.machinery
import json
import os
import runpy
import socket
import sys
import types
from pathlib import Path

_SOURCES = Path(__file__).parents[1] / "src"

# What torchport imports of torch before it compiles or captures anything: nothing here starts a thread.
_MODULES = (
    "torch",
    "torch._dynamo",
    "torch.export",
    "torch._functorch.aot_autograd",
    "torch._inductor.config",
    "torch.export._trace",
    "torch._functorch.compilers",
)


READY = b"r"


def main() -> None:
    """Import torch, serve requests, and run each request in a fork."""
    line = socket.socket(fileno=int(sys.argv[1]))
    del sys.path[0]  # this file's folder
    folders = list(sys.path)
    for name in _MODULES:
        importlib.import_module(name)
    with open("/proc/self/status") as status:
        if "Threads:\t1\n" not in status.read():
            return  # a fork would not have these threads
    _compile_sources()
    line.sendall(READY)
    gc.collect()
    gc.freeze()  # a collection in a fork would touch, and so copy, every object's page
    request = _serve(line)
    if request is not None:
        _run(request, folders)


def _compile_sources() -> None:
    """Compile torchport's files, which forks import, once for all: there may be no bytecode on disk."""
    compiled = {}
    for path in map(str, _SOURCES.rglob("*.py")):
        compiled[path] = compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)
    usual = importlib.machinery.SourceFileLoader.get_code

    def get_code(loader: importlib.machinery.SourceFileLoader, name: str) -> types.CodeType | None:
        code = compiled.get(loader.path)
        return usual(loader, name) if code is None else code

    importlib.machinery.SourceFileLoader.get_code = get_code


def _serve(line: socket.socket) -> dict[str, object] | None:
    """Fork for every request, and return it in the fork; return None when the connection is closed."""
    while True:
        data, files, _, _ = socket.recv_fds(line, 8, 3)
        if not data:
            return None
        size = int.from_bytes(data, "big")
        text = b""
        while len(text) < size:
            text += line.recv(size - len(text))
        request: dict[str, object] = json.loads(text)
        told, tells = os.pipe()
        go, goes = os.pipe()
        # The fork's parent exits at once, so that the fork is reparented to the requesting process.
        between = os.fork()
        if between == 0:
            if os.fork():
                os._exit(0)
            if request["new_session"]:
                os.setsid()
            os.write(tells, os.getpid().to_bytes(8, "big"))
            os.read(go, 1)  # wait until it has been reparented
            for number, file in enumerate(files):
                os.dup2(file, number)
            for file in (*files, told, tells, go, goes):
                os.close(file)
            line.close()
            return request
        os.waitpid(between, 0)
        line.sendall(os.read(told, 8))
        os.write(goes, b"g")
        for file in (*files, told, tells, go, goes):
            os.close(file)


def _run(request: dict[str, object], folders: list[str]) -> None:
    """Behave as `python ARGUMENTS`."""
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    given = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    sys.path[:] = [*given, *folders]
    _finish_torch()
    kind, *rest = request["arguments"]
    if kind == "-m":
        name, *words = rest
        sys.path.insert(0, os.getcwd())
        sys.argv = [name, *words]
        runpy.run_module(name, run_name="__main__", alter_sys=True)
        return
    if kind == "-c":
        text, *words = rest
        sys.path.insert(0, "")
        sys.argv = ["-c", *words]
        _run_text(text, "<string>")
        return
    sys.path.insert(0, str(Path(kind).resolve().parent))
    sys.argv = [kind, *rest]
    _run_text(Path(kind).read_text(encoding="utf-8"), kind)


def _finish_torch() -> None:
    """Repeat those parts of torch's import that depend on the environment, which is only set now."""
    import torch

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or len(os.sched_getaffinity(0))))
    torch._import_device_backends()


def _run_text(text: str, file: str) -> None:
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    if file != "<string>":
        main.__file__ = file
    sys.modules["__main__"] = main
    exec(compile(text, file, "exec"), main.__dict__)


if __name__ == "__main__":
    main()
