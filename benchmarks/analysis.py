"""Measures the cost of an analysis: a Llama of 405 billion parameters, and ResNet-50 against `torch.export`.

    python benchmarks/analysis.py
    python benchmarks/analysis.py --parts llama --layers 8 32

- llama: the configuration of Llama-3.1-405B with 8, 32 and all 126 layers, on 4096 tokens: built without
  weights and analysed, each in a fresh process; total seconds and peak memory.
- resnet: `torchport.analyze` of a real ResNet-50 against `torch.export.export` of it, interleaved.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import torch
from common import Turns, median, render_table, spread, time_in_turns, write_results

import torchport

PARTS = ("llama", "resnet")
LAYERS = (8, 32, 126)
TOKENS = 4096
SECONDS_LIMIT = 20.0
MEMORY_LIMIT = 1.5e9  # bytes
LINEAR_LIMIT = 1.25  # time per layer with all layers, relative to a quarter of them
RESNET_LIMIT = 0.25  # of torch.export's time


def measure_llama(layers: int, *, backward: bool = False) -> dict[str, float]:
    """Build and analyse a Llama in this process; return the time, the memory and the results."""
    from torchport.zoo.hf_builtin import CONFIGURATIONS
    from torchport.zoo.torchvision_ops import ensure_torchvision_ops

    ensure_torchvision_ops()  # transformers imports torchvision
    from transformers import LlamaConfig, LlamaForCausalLM

    begin = time.perf_counter()
    settings = {**CONFIGURATIONS["meta-llama/Llama-3.1-405B"], "num_hidden_layers": layers}
    with torch.device("meta"):
        model = LlamaForCausalLM(LlamaConfig(**settings)).to(torch.bfloat16).eval()
        tokens = torch.zeros(1, TOKENS, dtype=torch.long)
    built = time.perf_counter()
    cost = torchport.analyze(model, (), {"input_ids": tokens}, backward=backward).cost
    done = time.perf_counter()
    return {
        "build": built - begin,
        "analyze": done - built,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "ops": len(cost.ops),
        "parameters": cost.parameters,
        "flops": cost.flops,
    }


def measure_resnet(turns: Turns) -> dict[str, list[float]]:
    """Time an analysis of ResNet-50 and an export of it, interleaved."""
    model = torchport.zoo.load("torchvision:resnet50", weights=False)
    args = tuple(model.args)
    return time_in_turns(
        {
            "analyze": lambda: torchport.analyze(model.module, args),
            "torch.export": lambda: torch.export.export(model.module, args),
        },
        turns,
    )


def main() -> int:
    """Measure, print the tables, and write the JSON; 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART")
    parser.add_argument("--layers", nargs="+", type=int, default=list(LAYERS))
    parser.add_argument("--backward", action="store_true", help="analyse the backward pass too")
    parser.add_argument("--rounds", type=int, default=7, help="turns of ResNet-50")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure_llama(given.one, backward=given.backward)))
        return 0
    results: dict[str, object] = {}
    good = True
    if "llama" in given.parts:
        good &= _llama_part(given, results)
    if "resnet" in given.parts:
        good &= _resnet_part(given, results)
    print(f"\nwritten to {write_results('analysis', results)}", file=sys.stderr)
    return int(not good)


def _llama_part(given: argparse.Namespace, results: dict[str, object]) -> bool:
    found = {}
    for layers in given.layers:
        print(f"  {layers} layers", file=sys.stderr, flush=True)
        command = [sys.executable, __file__, "--one", str(layers)]
        command += ["--backward"] if given.backward else []
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found[layers] = json.loads(done.stdout.splitlines()[-1])
    header = ["layers", "parameters", "ops", "PFLOPs", "build, s", "analyze, s", "ms a layer", "memory, GB"]
    rows = [
        [
            str(layers),
            f"{row['parameters'] / 1e9:.1f} G",
            f"{row['ops']:.0f}",
            f"{row['flops'] / 1e15:.3f}",
            f"{row['build']:.1f}",
            f"{row['analyze']:.1f}",
            f"{1000 * row['analyze'] / layers:.1f}",
            f"{row['memory'] / 1e9:.2f}",
        ]
        for layers, row in found.items()
    ]
    print(render_table(header, rows))
    print(f"asked: build and analyze <= {SECONDS_LIMIT:.0f} s, memory <= {MEMORY_LIMIT / 1e9} GB, linear\n")
    results["llama"] = {str(layers): row for layers, row in found.items()}
    largest = found[max(found)]
    good = largest["build"] + largest["analyze"] <= SECONDS_LIMIT and largest["memory"] <= MEMORY_LIMIT
    if {32, 126} <= found.keys():
        good &= found[126]["analyze"] / 126 <= LINEAR_LIMIT * found[32]["analyze"] / 32
    return good


def _resnet_part(given: argparse.Namespace, results: dict[str, object]) -> bool:
    print("  ResNet-50", file=sys.stderr, flush=True)
    times = measure_resnet(Turns(rounds=given.rounds, burst=1, turn=0.0))
    ours, theirs = median(times["analyze"]), median(times["torch.export"])
    row = [f"{1000 * ours:.0f}", f"{1000 * theirs:.0f}", f"{ours / theirs:.2f}", f"<= {RESNET_LIMIT}"]
    print(render_table(["ms", "analyze", "torch.export", "ratio", "asked"], [["ResNet-50", *row]]))
    results["resnet50_seconds"] = {name: median(values) for name, values in times.items()}
    results["resnet50_spread"] = {name: spread(values) for name, values in times.items()}
    return ours <= RESNET_LIMIT * theirs


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    sys.exit(main())
