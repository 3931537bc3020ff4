"""The environment of peers that cannot be installed beside torchport: made with pip when it is asked for."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

# optimum-intel 2.2 wants transformers below 5.6, and runs without torchvision, whose ops may not load.
WANTED = ("optimum-intel[openvino]==2.2.*", "transformers==5.5.4", "openvino-genai")
UNWANTED = ("torchvision",)
# What is the same here and there: the engine, and what torch needs. torch comes first and by exact version:
# another package's open range would take a CUDA build.
SHARED = ("torch", "openvino", "openvino-telemetry", "numpy", "sympy", "networkx", "setuptools")


def peers_python(folder: Path = Path("out/peers"), constraints: Path = Path("constraints.txt")) -> str:
    """Return the Python of an environment with the peers; it is made if it is not there.

    Args:
        folder: where it is.
        constraints: the versions of torchport's own environment, of which some are taken.
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
