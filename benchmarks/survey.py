"""Measures a survey of torchvision's classification models against `torch.compile` with a counting backend.

    python benchmarks/survey.py
    python benchmarks/survey.py --models resnet18 vit_b_16 densenet121

- survey: `torchport survey --backward` on one image of 224 × 224: the whole command, two workers.
- forward: the same without `--backward`.
- counting: each model built with random weights, compiled with an `aot_autograd` backend that counts
  the nodes it gets, and run forward and backward on real values, one after another in one process.

The models are processed in groups, and the three take turns on each group. The op counts must agree.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import render_table, write_results

HERE = Path(__file__).parent
COMMAND = "from torchport.cli.main import main; main()"
ASKED = {"seconds": 480.0, "forward_seconds": 180.0, "ratio": 4.0, "bytes": 2_000_000_000}


def main() -> None:
    """Run the benchmark, print a table, and fail if a requirement is not met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--models", nargs="*", help="torchvision's names; all classification models by default"
    )
    parser.add_argument("--groups", type=int, default=2, help="how many turns the three take")
    parser.add_argument(
        "--count", nargs="*", help=argparse.SUPPRESS
    )  # the counting process is started with this
    arguments = parser.parse_args()
    if arguments.count is not None:
        count(arguments.count)
        return
    from torchport.zoo import list_zoo

    names = arguments.models or [name.partition(":")[2] for name in list_zoo("torchvision:classification")]
    groups = [names[start :: arguments.groups] for start in range(arguments.groups)]
    results = measure([group for group in groups if group])
    results["met"] = met(results, whole=arguments.models is None)
    print(render_table(["what", "seconds", "models"], rows_of(results)))
    print(f"\nwrote {write_results('survey', results)}")
    for name, ok in results["met"].items():
        print(f"{name}: {'met' if ok else 'NOT met'}")
    sys.exit(0 if all(results["met"].values()) else 1)


def measure(groups: list[list[str]]) -> dict[str, object]:
    """Run the three in turns on each group of models."""
    seconds = {"survey": 0.0, "forward": 0.0, "counting": 0.0}
    peak, ops, differences = 0, 0, []
    with tempfile.TemporaryDirectory() as folder:
        for group in groups:
            spent, rows = survey(group, Path(folder) / "both", "--backward")
            seconds["survey"] += spent
            spent, forward = survey(group, Path(folder) / "forward")
            seconds["forward"] += spent
            spent, counted = counting(group)
            seconds["counting"] += spent
            for name in group:
                row = rows[f"torchvision:{name}"]
                assert row["status"] == forward[f"torchvision:{name}"]["status"] == "ok", row
                peak = max(peak, row["peak_bytes"])
                ops += row["forward_ops"] + row["backward_ops"]
                if [row["forward_ops"], row["backward_ops"]] != counted[name]:
                    differences.append([name, row["forward_ops"], row["backward_ops"], *counted[name]])
            print(f"{len(group)} models: {seconds}", flush=True)
    return {
        "models": sum(map(len, groups)),
        "seconds": seconds,
        "ratio": seconds["counting"] / seconds["survey"],
        "peak_bytes": peak,
        "ops": ops,
        "differences": differences,
    }


def survey(names: list[str], output: Path, *options: str) -> tuple[float, dict[str, dict[str, object]]]:
    """Return how long the command took, and its rows by model."""
    command = [sys.executable, "-c", COMMAND, "survey", *(f"torchvision:{name}" for name in names), *options]
    command += ["--inputs", f"{HERE / 'image_224.py'}::image", "--workers", "2", "-o", str(output), "--json"]
    start = time.perf_counter()
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    spent = time.perf_counter() - start
    rows = [json.loads(line) for line in ran.stdout.splitlines()[:-1]]
    return spent, {row["model"]: row for row in rows}


def counting(names: list[str]) -> tuple[float, dict[str, list[int]]]:
    """Return how long `torch.compile` took for the same models, and its op counts."""
    environment = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
    start = time.perf_counter()
    command = [sys.executable, __file__, "--count", *names]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return time.perf_counter() - start, json.loads(ran.stdout.splitlines()[-1])


def count(names: list[str]) -> None:
    """Compile and run models with a backend that counts; print the numbers of forward and backward nodes."""
    import torch
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.aot_autograd import make_boxed_func

    from torchport.zoo.extras import import_library

    torchvision = import_library("torchvision")  # one whose compiled ops may not load
    found: dict[str, list[int]] = {}
    for name in names:
        numbers = found[name] = [0, 0]

        def counter(place: int, numbers: list[int] = numbers):
            def compile_graph(graph_module, _):
                numbers[place] += sum(node.op == "call_function" for node in graph_module.graph.nodes)
                return make_boxed_func(graph_module.forward)

            return compile_graph

        torch._dynamo.reset()
        model = torchvision.models.get_model(name, weights=None).eval()
        compiled = torch.compile(model, backend=aot_autograd(fw_compiler=counter(0), bw_compiler=counter(1)))
        result = compiled(torch.rand(1, 3, 224, 224))
        result.sum().backward() if isinstance(result, torch.Tensor) else None
    print(json.dumps(found))


def met(results: dict[str, object], whole: bool) -> dict[str, bool]:
    """Return which requirements are met; those on times apply only to all models."""
    seconds: dict[str, float] = results["seconds"]
    found = {
        f"at least {ASKED['ratio']:g} times faster than counting": results["ratio"] >= ASKED["ratio"],
        "the same numbers of ops": not results["differences"],
        f"at most {ASKED['bytes'] / 1e9:g} GB a worker": results["peak_bytes"] <= ASKED["bytes"],
    }
    if whole:
        found[f"forward and backward in {ASKED['seconds']:g} s"] = seconds["survey"] <= ASKED["seconds"]
        found[f"forward in {ASKED['forward_seconds']:g} s"] = seconds["forward"] <= ASKED["forward_seconds"]
    return found


def rows_of(results: dict[str, object]) -> list[list[str]]:
    """Return the table's rows."""
    seconds: dict[str, float] = results["seconds"]
    models = str(results["models"])
    return [
        ["torchport survey --backward", f"{seconds['survey']:.1f}", models],
        ["torchport survey", f"{seconds['forward']:.1f}", models],
        ["torch.compile that counts, real values", f"{seconds['counting']:.1f}", models],
        ["times faster", f"{results['ratio']:.2f}", ""],
    ]


if __name__ == "__main__":
    main()
