"""Builds a Python environment with ttnn and a mock chip, once; later runs reuse it.

    python tests/targets/ttnn/mock_chip/environment.py     # builds it, and prints its location

It is in `out/ttnn-mock` of the checkout, or at the path in TORCHPORT_TTNN_MOCK. ttnn has wheels for CPython
3.10 and 3.12 only, so it uses a separate interpreter. It needs the package index and the RISC-V linker
(`binutils-riscv64-unknown-elf`). This script installs the linker with apt-get; tests never do.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
LIBRARY = "ttnn==0.81.1"
PACKAGES = ("binutils-riscv64-unknown-elf", "libnuma1", "libhwloc15")


class Unavailable(Exception):
    """The environment cannot be built here; the message says why."""


def folder() -> Path:
    """Return the folder of the environment, whether it exists yet or not."""
    given = os.environ.get("TORCHPORT_TTNN_MOCK")
    return Path(given) if given else HERE.parents[3] / "out" / "ttnn-mock"


def command(install: bool = False) -> list[str]:
    """Return the command that starts the interpreter; build the environment if necessary.

    Args:
        install: whether missing system packages may be installed.

    Raises:
        Unavailable: the environment cannot be built here.
    """
    base = folder()
    base.mkdir(parents=True, exist_ok=True)
    with (base / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests may run in several processes
        if not (base / "ready").exists():
            _build(base, install)
            (base / "ready").write_text(LIBRARY)
    return [str(base / "venv" / "bin" / "python")]


def variables() -> dict[str, str]:
    """Return the environment variables with which the library finds the mock chip."""
    base = folder()
    (base / "logs").mkdir(exist_ok=True)
    return {
        **os.environ,
        "TT_METAL_MOCK_CLUSTER_DESC_PATH": str(HERE / "board.yaml"),
        "TT_METAL_CACHE": str(base / "cache"),
        "TT_METAL_LOGS_PATH": str(base / "logs"),
        "TT_LOGGER_LEVEL": "fatal",
        "LOGURU_LEVEL": "ERROR",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _build(base: Path, install: bool) -> None:
    python = _interpreter()
    _need_linker(install)
    shutil.rmtree(base / "venv", ignore_errors=True)
    _run(python, "-m", "venv", str(base / "venv"))
    _run(str(base / "venv" / "bin" / "pip"), "install", "-q", LIBRARY, "safetensors")
    [site] = (base / "venv" / "lib").glob("python3.*/site-packages")
    kernel = base / "kernel.o"
    _run("riscv64-unknown-elf-as", "-march=rv32i", "-mabi=ilp32", str(HERE / "kernel.S"), "-o", str(kernel))
    compiler = site / "ttnn" / "runtime" / "sfpi" / "compiler" / "bin" / "riscv-tt-elf-g++"
    compiler.parent.mkdir(parents=True, exist_ok=True)
    text = (HERE / "stand_in_compiler.sh").read_text()
    text = text.replace("<kernel>", str(kernel))
    text = text.replace("<firmware>", str(site / "ttnn" / "tt_metal" / "pre-compiled"))
    compiler.write_text(text)
    compiler.chmod(0o755)


def _interpreter() -> str:
    """Return a CPython that ttnn has a wheel for."""
    own = Path.home() / ".pyenv" / "versions"
    candidates = ["python3.12", *map(str, own.glob("3.12*/bin/python"))]
    candidates += ["python3.10", *map(str, own.glob("3.10*/bin/python"))]
    for candidate in candidates:
        found = shutil.which(candidate)
        if found and not subprocess.run([found, "-c", "import venv"], capture_output=True).returncode:
            return found
    raise Unavailable("ttnn has wheels for CPython 3.12 and 3.10, and neither is here")


def _need_linker(install: bool) -> None:
    if shutil.which("riscv64-unknown-elf-ld"):
        return
    if not install:
        raise Unavailable("no linker for RISC-V: run `make ttnn-mock`, which installs it with apt-get")
    _run("apt-get", "update", "-qq")
    _run("apt-get", "install", "-y", "-qq", *PACKAGES)


def _run(*words: str) -> None:
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=900)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{words[0]} does not run: {error}") from error
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise Unavailable(f"{' '.join(words[:4])} fails: {last}")


if __name__ == "__main__":
    sys.stdout.write(f"{command(install=True)[0]}\n")
