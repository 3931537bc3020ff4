"""Measures torchport's overhead: in a call, in compiling, and in `import torch`.

    python benchmarks/overhead.py
    python benchmarks/overhead.py --parts imports --processes 9

- call: a compiled model against a bare OpenVINO request of the same compiled model, whose tensors are set
  once and share torch's memory; interleaved in one process.
- compile: `torchport.compile` against `torch.export.export`, `openvino.convert_model` and `compile_model`;
  caches off, each in a fresh process, interleaved. One-time costs of a process are paid beforehand,
  on a tiny model.
- imports: `import torch` with and without the hook, and with `import torchport`; in fresh processes,
  interleaved.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from common import ABSENT, Call, Turns, error_of_median, median, render_table, time_in_turns, write_results
from torch import nn

import torchport
from torchport.structure import tensors_in

SMALL_CALL_LIMIT = 50e-6  # seconds that a call adds
LARGE_CALL_LIMIT = 0.01  # as a fraction of the call, if that is more
COMPILE_LIMIT = 1.5  # times as long
IMPORT_LIMIT = 0.3  # seconds
HOOK_LIMIT = 0.010  # seconds

PARTS = ("call", "compile", "imports")
MODELS = {
    "resnet18": "torchvision:resnet18",
    "resnet50": "torchvision:resnet50",
    "mobilenet_v3_large": "torchvision:mobilenet_v3_large",
    "vit_b_16": "torchvision:vit_b_16",
    "bert-base": "hf:bert-base-uncased",
    "gpt2": "hf:gpt2",
}
Inputs = tuple[nn.Module, tuple[object, ...], Mapping[str, object]]


def load(name: str) -> Inputs:
    """Return a model's module and inputs; random weights, no key/value cache."""
    if name == "tiny":
        return nn.Sequential(nn.Linear(16, 16), nn.ReLU()).eval(), (torch.rand(1, 16),), {}
    model = torchport.zoo.load(MODELS[name], weights=False)
    if hasattr(model.module, "config"):
        model.module.config.use_cache = False
    return model.module, tuple(model.args), model.kwargs


# ---- a call


def measure_call(name: str, turns: Turns) -> dict[str, float | None]:
    """Return the seconds of a call, bare and ours, their difference, and its uncertainty."""
    module, args, kwargs = load(name)
    with torch.no_grad():
        with _compiled_models() as made:
            compiled = torchport.compile(module, args, kwargs, options={"cache": False})
        if not compiled.coverage.complete or len(compiled.coverage.islands) != 1 or not made:
            raise RuntimeError(f"{name} is not one island: there is no bare request to compare with")
        bare, expected = _bare_call(made[-1], [tensor for _, tensor in tensors_in((args, dict(kwargs)))])
        bare()
        ours = [tensor for _, tensor in tensors_in(compiled(*args, **kwargs))]
        # After its outputs, the device's model returns sums that detect non-finite values.
        if not all(map(torch.equal, ours, expected[: len(ours)])):
            raise RuntimeError(f"{name}: the bare request gives another result")
        times = time_in_turns({"bare": bare, "torchport": lambda: compiled(*args, **kwargs)}, turns)
        outside = _outside(lambda: compiled(*args, **kwargs), len(times["torchport"]))
    medians = {which: median(taken) for which, taken in times.items()}
    return {
        **medians,
        "difference": medians["torchport"] - medians["bare"],
        "error": math.hypot(*[error_of_median(taken) for taken in times.values()]),
        "outside": outside,
    }


@contextlib.contextmanager
def _compiled_models() -> Iterator[list[object]]:
    """Collect the models for which OpenVINO creates requests."""
    import openvino

    made: list[object] = []
    original = openvino.CompiledModel.create_infer_request

    def create(self: object) -> object:
        made.append(self)
        return original(self)

    with mock.patch.object(openvino.CompiledModel, "create_infer_request", create):
        yield made


def _bare_call(model: Any, inputs: Sequence[torch.Tensor]) -> tuple[Call, list[torch.Tensor]]:
    """Return a call of a request on torch's memory, and the tensors that it writes to.

    It starts and waits, rather than use `infer`, which copies every output once more.
    """
    import openvino

    request = model.create_infer_request()
    for index, tensor in enumerate(inputs):
        request.set_input_tensor(index, openvino.Tensor(tensor.numpy(), shared_memory=True))
    outputs = []
    for index, port in enumerate(model.outputs):
        kind = {"f32": torch.float32, "i64": torch.int64, "i32": torch.int32, "boolean": torch.bool}
        outputs.append(torch.empty(tuple(port.shape), dtype=kind[port.get_element_type().get_type_name()]))
        request.set_output_tensor(index, openvino.Tensor(outputs[-1].numpy(), shared_memory=True))

    def call() -> None:
        request.start_async()
        request.wait()

    return call, outputs


def _outside(call: Call, runs: int) -> float | None:
    """Return the median time of a call before its request starts and after it is done.

    If an inference takes long, the difference of two medians drowns in noise; this measure does not. It
    excludes work that is done while the request runs.
    """
    import openvino

    moments: list[float] = []

    def noting(method: Callable[..., object]) -> Callable[..., object]:
        def noted(self: object, *args: object, **kwargs: object) -> object:
            moments.append(time.perf_counter())
            result = method(self, *args, **kwargs)
            moments.append(time.perf_counter())
            return result

        return noted

    kind = openvino.InferRequest
    names = ("infer", "start_async", "wait")
    patches = {name: noting(getattr(kind, name)) for name in names}
    outside = []
    with mock.patch.multiple(kind, **patches):
        for _ in range(runs):
            moments.clear()
            start = time.perf_counter()
            call()
            end = time.perf_counter()
            if moments:
                outside.append(end - start - (max(moments) - min(moments)))
    return median(outside) if outside else None


# ---- compiling


def compile_ours(inputs: Inputs) -> None:
    """Compile with torchport."""
    module, args, kwargs = inputs
    torchport.compile(module, args, kwargs, options={"cache": False})


def compile_bare(inputs: Inputs) -> None:
    """Compile with only torch.export and OpenVINO, in the same precision."""
    import openvino

    module, args, kwargs = inputs
    program = torch.export.export(module, args, dict(kwargs))
    model = openvino.convert_model(program)
    openvino.Core().compile_model(
        model, "CPU", {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    )


WAYS = {"torchport": compile_ours, "export + convert + compile": compile_bare}


def time_compile(way: str, name: str) -> float:
    """Return the seconds that compiling a model takes in this process."""
    with torch.no_grad():
        WAYS[way](load("tiny"))
        inputs = load(name)
        start = time.perf_counter()
        WAYS[way](inputs)
        return time.perf_counter() - start


def measure_compile(name: str, processes: int) -> dict[str, float]:
    """Return the median seconds of compiling a model in each way, each time in a fresh process."""
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(processes):
        for way, taken in times.items():
            taken.append(float(_run([__file__, "--time-compile", way, name])))
    return {way: median(taken) for way, taken in times.items()}


# ---- imports

_CLOCK = "from time import perf_counter as now; "
# Each prints the seconds of one step. Differences of whole imports, which take seconds, would be noisier
# than the quantity measured.
_IMPORTS = {
    "import torch, hook off": ("0", _CLOCK + "start = now(); import torch; print(now() - start)"),
    "import torch": ("1", _CLOCK + "start = now(); import torch; print(now() - start)"),
    "import torchport, after torch": (
        "0",  # with the hook on, `import torch` would include it
        _CLOCK + "import torch; start = now(); import torchport; print(now() - start)",
    ),
    # What `import torch` does for the hook, apart from the search for hooks, which it does in any case.
    "the hook": (
        "0",
        _CLOCK + "import torch; from importlib.metadata import entry_points; "
        "[hook] = [entry for entry in entry_points(group='torch.backends') if entry.name == 'torchport']; "
        "start = now(); hook.load()(); print(now() - start)",
    ),
    "torchport.compile, first use": (
        "1",
        _CLOCK + "import torch, torchport; start = now(); torchport.compile; print(now() - start)",
    ),
}
_IMPORT_LIMITS = {"import torchport, after torch": IMPORT_LIMIT, "the hook": HOOK_LIMIT}


def measure_imports(processes: int) -> dict[str, float]:
    """Return the median seconds of each import, each in fresh processes."""
    times: dict[str, list[float]] = {name: [] for name in _IMPORTS}
    for _ in range(processes):
        for name, (autoload, code) in _IMPORTS.items():
            taken = _run(["-c", code], {"TORCH_DEVICE_BACKEND_AUTOLOAD": autoload})
            times[name].append(float(taken))
    return {name: median(taken) for name, taken in times.items()}


def _run(arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    """Run Python in a fresh process and return the last line that it prints."""
    done = subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | dict(environment or {}),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return done.stdout.strip().splitlines()[-1]


# ---- the whole benchmark


def main() -> int:
    """Measure, print the tables, and write the JSON; 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), metavar="MODEL",
                        help="what to compile")  # fmt: skip
    parser.add_argument("--seconds", type=float, default=30.0, help="about how long to time calls of a model")
    parser.add_argument("--runs", type=int, help="turns of each; by default as many as fit --seconds")
    parser.add_argument("--processes", type=int, default=7, help="fresh processes of each kind")
    parser.add_argument("--time-compile", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.time_compile:
        print(time_compile(*given.time_compile))
        return 0
    results: dict[str, object] = {}
    good = True
    if "call" in given.parts:
        good &= _call_part(given, results)
    if "compile" in given.parts:
        good &= _compile_part(given, results)
    if "imports" in given.parts:
        good &= _import_part(given, results)
    print(f"\nwritten to {write_results('overhead', results)}", file=sys.stderr)
    return int(not good)


def _call_part(given: argparse.Namespace, results: dict[str, object]) -> bool:
    found = {}
    for name, burst in (("tiny", 200), ("resnet50", 3)):
        print(f"  calls of {name}", file=sys.stderr, flush=True)
        found[name] = measure_call(name, Turns(given.runs, given.seconds, burst))
    header = ["µs a call", "bare request", "torchport", "difference", "outside the request", "asked"]
    rows = [
        [
            name,
            _micro(row["bare"]),
            _micro(row["torchport"]),
            f"{_micro(row['difference'])} ± {_micro(row['error'])}",
            _micro(row["outside"]),
            f"< {_micro(_call_limit(row))}",
        ]
        for name, row in found.items()
    ]
    print(render_table(header, rows), end="\n\n")
    results["call_seconds"] = found
    return all(_is_cheap(row) for row in found.values())


def _is_cheap(row: Mapping[str, float | None]) -> bool:
    """Whether a call adds less than the limit, by the less noisy measure."""
    difference, error, outside = row["difference"] or 0.0, row["error"] or 0.0, row["outside"]
    limit = _call_limit(row)
    if error < limit / 4 or outside is None:
        return difference < limit
    return outside < limit


def _call_limit(row: Mapping[str, float | None]) -> float:
    return max(SMALL_CALL_LIMIT, LARGE_CALL_LIMIT * (row["bare"] or 0.0))


def _compile_part(given: argparse.Namespace, results: dict[str, object]) -> bool:
    found = {}
    for name in given.models:
        print(f"  compiling {name}", file=sys.stderr, flush=True)
        try:
            found[name] = measure_compile(name, given.processes)
        except RuntimeError as error:  # a failure does not stop the others
            print(f"  {name}: {error}", file=sys.stderr)
    ratios = {name: row["torchport"] / row["export + convert + compile"] for name, row in found.items()}
    rows = [
        [name, *[f"{row[way]:.2f}" for way in WAYS], f"{ratios[name]:.2f}", f"<= {COMPILE_LIMIT}"]
        for name, row in found.items()
    ]
    print(render_table(["compile, s", *WAYS, "ratio", "asked"], rows), end="\n\n")
    results["compile_seconds"], results["compile_ratios"] = found, ratios
    return len(found) == len(given.models) and all(ratio <= COMPILE_LIMIT for ratio in ratios.values())


def _import_part(given: argparse.Namespace, results: dict[str, object]) -> bool:
    print("  imports", file=sys.stderr, flush=True)
    found = measure_imports(given.processes)
    rows = [[name, f"{1000 * value:.1f}", _limit(name)] for name, value in found.items()]
    print(render_table(["imports, ms", "median", "asked"], rows))
    results["import_seconds"] = found
    return all(found[name] < limit for name, limit in _IMPORT_LIMITS.items())


def _limit(name: str) -> str:
    return f"< {1000 * _IMPORT_LIMITS[name]:.0f}" if name in _IMPORT_LIMITS else ABSENT


def _micro(seconds: float | None) -> str:
    return ABSENT if seconds is None else f"{1e6 * seconds:.0f}"


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    sys.exit(main())
