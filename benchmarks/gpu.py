"""Times models on an NVIDIA GPU at batch 1: torchport's target inductor, eager torch and torch.compile.

    PYTHONPATH=src python3 benchmarks/gpu.py --out out/benchmarks/gpu.json

Needs only torch with CUDA and torchport's sources. Contenders of a model take turns in one process;
each model and dtype has its own process, and one that crashes loses only its row. The JSON names the machine.
In float32 it also measures a package's time to the first result in a fresh process, next to compiling.
`--device cpu --small` tries out the script without a GPU.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import torch
from gpu_models import MODELS, load

import torchport

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
ALLOWED = 1.05  # how much slower than reduce-overhead torchport may be
OPTIONS = {"speed_trial": False}  # the engine itself is timed


def sync(device: str) -> None:
    """Wait for the GPU."""
    if device == "cuda":
        torch.cuda.synchronize()


def prepare(contender: str, model: torch.nn.Module, args: tuple[torch.Tensor, ...]) -> Callable[[], object]:
    """Return a function that runs a model once."""
    if contender == "eager":
        return lambda: model(*args)
    if contender == "torchport":
        compiled = torchport.compile(model, args, target="inductor", options=OPTIONS)
        coverage = compiled.coverage
        stayed = [f"{row.op}: {row.reason}, {row.detail}" for row in coverage.stayed]
        print(f"  {coverage.ops_remain} of {coverage.ops_before} ops stay {stayed[:3]}", file=sys.stderr)
        prepare.compiled = compiled  # for the package
        return lambda: compiled(*args)
    torch._dynamo.reset()
    made = torch.compile(model, mode=contender)
    return lambda: made(*args)


def measure(name: str, dtype: str, device: str, small: bool, seconds: float) -> dict[str, object]:
    """Time one model; return for each contender its time, or its error."""
    model, args = load(name, device, DTYPES[dtype], small=small)
    rows: dict[str, dict[str, object]] = {}
    calls: dict[str, Callable[[], object]] = {}
    with torch.no_grad():
        expected = model(*args).float()
        for contender in ("eager", "reduce-overhead", "torchport"):
            print(f"  {name} {dtype}: preparing {contender}", file=sys.stderr, flush=True)
            began = time.perf_counter()
            try:
                call = prepare(contender, model, args)
                for _ in range(3):
                    result = call()
                sync(device)
                rows[contender] = {"first_runs_seconds": time.perf_counter() - began}
                rows[contender]["pcc"] = torchport.compare([result.float().cpu()], [expected.cpu()]).pcc
                calls[contender] = call
            except Exception as error:  # noqa: BLE001  # a failure shows in its row, and others go on
                rows[contender] = {"error": repr(error)[:500], "trace": traceback.format_exc()[-3000:]}
        taken: dict[str, list[float]] = {contender: [] for contender in calls}
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            for contender, call in calls.items():
                call()
                for _ in range(10):
                    sync(device)
                    began = time.perf_counter()
                    call()
                    sync(device)
                    taken[contender].append(time.perf_counter() - began)
    for contender, times in taken.items():
        rows[contender] |= {"seconds": statistics.median(times), "fastest": min(times), "runs": len(times)}
    found: dict[str, object] = {"contenders": rows, "ratio": ratio(rows)}
    if "torchport" in calls and dtype == "float32":
        found["package"] = time_package(name, dtype, device, small)
    return found


def ratio(rows: dict[str, dict[str, object]]) -> float | None:
    """Return torchport's time relative to `reduce-overhead`'s."""
    ours, theirs = (rows.get(name, {}).get("seconds") for name in ("torchport", "reduce-overhead"))
    return float(ours) / float(theirs) if ours and theirs else None


def time_package(name: str, dtype: str, device: str, small: bool) -> dict[str, object]:
    """Save the compiled model, and time its first result in a fresh process, and compiling in another."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "model.pt2"))
        try:
            torchport.save(prepare.compiled, path)
            loaded, compiled = (
                _child(way, name, dtype, device, small, path, folder) for way in ("load", "compile")
            )
        except Exception as error:  # noqa: BLE001  # only its own row is lost
            return {"error": repr(error)[:500], "trace": traceback.format_exc()[-2000:]}
    return {
        "load_seconds": loaded["seconds"],
        "compile_seconds": compiled["seconds"],
        "ratio": loaded["seconds"] / compiled["seconds"],
        "load_imports_inductor": loaded["imports_inductor"],
    }


def _child(way: str, name: str, dtype: str, device: str, small: bool, path: str, folder: str) -> dict:
    command = [sys.executable, __file__, "--child", way, name, dtype, path, "--device", device]
    # Neither finds inductor's caches: a package comes to a machine that has nothing else.
    environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(Path(folder, way))}
    done = subprocess.run(
        command + ["--small"] * small,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-1500:])
    return json.loads(done.stdout.splitlines()[-1])


def first_result(way: str, name: str, dtype: str, path: str, device: str, small: bool) -> dict:
    """Return the time to a first result, from a package or by compiling, and whether inductor is imported."""
    model, args = load(name, device, DTYPES[dtype], small=small)
    sync(device)
    began = time.perf_counter()
    with torch.no_grad():
        if way == "load":
            torchport.load(path)(*args)
        else:
            torchport.compile(model, args, target="inductor", options={**OPTIONS, "cache": False})(*args)
    sync(device)
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "imports_inductor": "torch._inductor" in sys.modules}


def measure_apart(name: str, dtype: str, device: str, small: bool, seconds: float) -> dict[str, object]:
    """Time one model in a process of its own."""
    command = [sys.executable, __file__, "--one", name, dtype, "--device", device, "--seconds", str(seconds)]
    try:
        done = subprocess.run(
            command + ["--small"] * small, stdout=subprocess.PIPE, text=True, check=False, timeout=400
        )
    except subprocess.TimeoutExpired:
        return {"error": "it took longer than 400 seconds"}
    if done.returncode:
        return {"error": f"the process ended with {done.returncode}"}
    return json.loads(done.stdout.splitlines()[-1])


def machine(device: str) -> dict[str, object]:
    """Return the machine and versions of a measurement."""
    gpu = torch.cuda.get_device_name() if device == "cuda" else None
    return {"gpu": gpu, "cuda": torch.version.cuda, "torch": torch.__version__, "system": platform.platform()}


def main() -> int:
    """Measure, print a line for each model, and write the JSON after each; 1 if torchport is too slow."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks/gpu.json"))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=list(DTYPES))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long to time a model for")
    parser.add_argument("--small", action="store_true", help="small models, to try the script")
    parser.add_argument("--one", nargs=2, metavar=("MODEL", "DTYPE"), help=argparse.SUPPRESS)
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(first_result(*given.child, given.device, given.small)))
        return 0
    if given.one:
        logging.basicConfig(stream=sys.stderr)
        logging.getLogger("torchport.targets.inductor").setLevel(logging.INFO)  # why a package needs inductor
        print(json.dumps(measure(*given.one, given.device, given.small, given.seconds)))
        return 0
    # Compile torch's modules to bytecode once, as happens on any machine where it can be written; a machine
    # with a read-only image would compile them in every process.
    pycache = tempfile.TemporaryDirectory()
    os.environ |= {"PYTHONPYCACHEPREFIX": pycache.name, "PYTHONDONTWRITEBYTECODE": ""}
    results: dict[str, object] = {"machine": machine(given.device), "allowed": ALLOWED, "models": {}}
    given.out.parent.mkdir(parents=True, exist_ok=True)
    good = True
    for name in given.models:
        for dtype in given.dtypes:
            found = measure_apart(name, dtype, given.device, given.small, given.seconds)
            results["models"][f"{name} {dtype}"] = found
            given.out.write_text(json.dumps(results, indent=1))
            share = found.get("ratio")
            good = good and isinstance(share, float) and share <= ALLOWED
            times = {
                key: row.get("seconds", row.get("error")) for key, row in found.get("contenders", {}).items()
            }
            print(f"{name} {dtype}: {times}, ratio {share}, package {found.get('package')}", flush=True)
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
