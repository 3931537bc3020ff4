"""Measures loading: ResNet-50 from a file, against OpenVINO's own import and against compiling.

    python benchmarks/package.py
    python benchmarks/package.py --rounds 5

Each is a fresh process that imports its libraries and is then timed, interleaved: until the model is ready,
and until its first result. `openvino` reads the blob written by OpenVINO's `export_model`, and its
settings; `portable` is the file without the compiled form, so that loading compiles; `compile` is
`torchport.compile` with an empty cache.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import openvino
import torch
from common import median, render_table, write_results

import torchport
from torchport.targets import Artifact
from torchport.targets.openvino.load import parts_of

IMPORT_LIMIT = 1.5  # relative to OpenVINO's own import
COMPILE_LIMIT = 5.0  # how many times faster than compiling again
SIZE_LIMIT = 1.2  # relative to the weights

_HEAD = "import json, sys, time; folder = sys.argv[1]\n"
_TAIL = 'print(json.dumps({"load": loaded - begin, "total": time.perf_counter() - begin}))\n'
WAYS = {
    "torchport, .pt2": """
import torch, torchport, openvino
from torchport.packaging.load_model import load
x = torch.load(folder + "/x.pt")
begin = time.perf_counter()
model = load(folder + "/m.pt2")
loaded = time.perf_counter()
model(x)
""",
    "torchport, portable .pt2": """
import torch, torchport, openvino
from torchport.packaging.load_model import load
x = torch.load(folder + "/x.pt")
begin = time.perf_counter()
model = load(folder + "/portable.pt2")
loaded = time.perf_counter()
model(x)
""",
    "torchport, .pt": """
import torch, torchport.runtime.island, openvino
x = torch.load(folder + "/x.pt")
begin = time.perf_counter()
model = torch.jit.load(folder + "/m.pt")
loaded = time.perf_counter()
model(x)
""",
    "openvino": """
import torch, openvino
x = torch.load(folder + "/x.pt").numpy()
begin = time.perf_counter()
with open(folder + "/m.blob", "rb") as file:
    model = openvino.Core().import_model(file.read(), "CPU", json.load(open(folder + "/config.json")))
loaded = time.perf_counter()
model(x)
""",
    "compile": """
import torch, torchport, openvino
from torchport.compiler import compile
model = torchport.zoo.load("torchvision:resnet50", weights=False)
begin = time.perf_counter()
compiled = compile(model.module, model.args, options={"cache": False})
loaded = time.perf_counter()
compiled(*model.args)
""",
}


def write_files(folder: Path) -> dict[str, float]:
    """Write the model in each form; return the sizes in bytes."""
    from torchport.packaging.write_file import write_model

    model = torchport.zoo.load("torchvision:resnet50", weights=False)
    compiled = torchport.compile(model.module, model.args)
    for name in ("m.pt2", "m.pt"):
        write_model(compiled, model.args, model.kwargs, folder / name)
    torch.save(model.args[0], folder / "x.pt")
    torchport.save(compiled, folder / "portable.pt2", compiled_form=False)
    _write_blob(compiled, folder)
    weights = sum(tensor.nbytes for tensor in model.module.state_dict().values())
    sizes = {name: (folder / name).stat().st_size for name in ("m.pt2", "m.pt", "portable.pt2", "m.blob")}
    return {"weights": weights, **sizes}


def _write_blob(compiled: torchport.compiler.CompiledModel, folder: Path) -> None:
    """Write OpenVINO's own export of the model, and the settings with which it is imported."""
    program = compiled.current_programs[0].program
    [island] = program.islands.values()
    payload = getattr(program.graph_module, island.meta.name).numpy()
    xml, weights = parts_of(Artifact(payload, island.meta.properties))
    core = openvino.Core()
    model = core.read_model(xml.tobytes(), openvino.Tensor(weights, shared_memory=True))
    config = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    (folder / "m.blob").write_bytes(core.compile_model(model, "CPU", config).export_model().getvalue())
    (folder / "config.json").write_text(json.dumps(config))


def measure(way: str, folder: Path) -> dict[str, float]:
    """Run one way in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-c", _HEAD + WAYS[way] + _TAIL, str(folder)],
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> int:
    """Measure, print the table, write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sizes = write_files(folder)
        times: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
        for _ in range(rounds):
            for way in WAYS:
                times[way].append(measure(way, folder))
    load = {way: median([run["load"] for run in runs]) for way, runs in times.items()}
    total = {way: median([run["total"] for run in runs]) for way, runs in times.items()}
    rows = [[way, f"{1000 * load[way]:.0f}", f"{1000 * total[way]:.0f}"] for way in WAYS]
    print(render_table(["way", "load, ms", "load and first result, ms"], rows))
    checks = {
        "of OpenVINO's import": (total["torchport, .pt2"] / total["openvino"], IMPORT_LIMIT),
        "of compiling": (total["torchport, .pt2"] / total["compile"], 1 / COMPILE_LIMIT),
        ".pt2, of its weights": (sizes["m.pt2"] / sizes["weights"], SIZE_LIMIT),
    }
    for what, (ratio, limit) in checks.items():
        print(f"{'✅' if ratio <= limit else '❌'} {ratio:.2f} {what} (at most {limit:.2f})")
    print(write_results("package", {"times": times, "sizes": sizes}))
    return 0 if all(ratio <= limit for ratio, limit in checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
