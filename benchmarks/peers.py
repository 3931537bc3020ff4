"""The environment of peers that cannot be installed alongside torchport: created with pip on request."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

# optimum-intel 2.2 needs transformers below 5.6, and runs without torchvision, whose ops may not load.
WANTED = ("optimum-intel[openvino]==2.2.*", "transformers==5.5.4", "openvino-genai")
UNWANTED = ("torchvision",)
# The same versions in both environments: the engine, and torch's dependencies. torch comes first, pinned to
# an exact version: another package's open range would pull in a CUDA build.
SHARED = ("torch", "openvino", "openvino-telemetry", "numpy", "sympy", "networkx", "setuptools")


def peers_python(folder: Path = Path("out/peers"), constraints: Path = Path("constraints.txt")) -> str:
    """Return the Python of an environment with the peers, creating it if necessary.

    Args:
        folder: where it is.
        constraints: the versions in torchport's own environment, some of which are used.
    """
    lines = [line for line in constraints.read_text().splitlines() if line.partition("==")[0] in SHARED]
    wanted = "\n".join([*lines, *WANTED])
    python, stamp = folder / "bin" / "python", folder / f"{hashlib.sha256(wanted.encode()).hexdigest()[:16]}"
    if stamp.exists():
        return str(python)
    print(f"making {folder}: pip install {' '.join(WANTED)}", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(lines) + "\n")
        file.flush()
        install = [str(python), "-m", "pip", "install", "--quiet", "-c", file.name]
        subprocess.run([*install, "torch", "setuptools"], check=True)
        subprocess.run([*install, *WANTED], check=True)
    subprocess.run([str(python), "-m", "pip", "uninstall", "--quiet", "-y", *UNWANTED], check=True)
    stamp.touch()
    return str(python)
