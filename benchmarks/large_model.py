"""Measures the memory that a large model needs: a random Llama of 3 GB, traced, saved, and loaded.

    python benchmarks/large_model.py
    python benchmarks/large_model.py --gigabytes 0.3

Each step runs in its own process; the peak memory of the process and its children is read when it has
ended. The loaded model's result is compared with the traced one's.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import render_table, write_results

LIMIT = 24.0  # GB

MODEL = """
import json, resource, sys, time, torch, torchport
folder, gigabytes = sys.argv[1], float(sys.argv[2])
def model():
    from torchport.zoo.torchvision_ops import ensure_torchvision_ops
    ensure_torchvision_ops()
    from transformers import LlamaConfig, LlamaForCausalLM
    layers = max(1, round(gigabytes * 1e9 / 4 / (4 * 2048 * 2048 + 3 * 2048 * 5632)) - 1)
    config = LlamaConfig(hidden_size=2048, intermediate_size=5632, num_hidden_layers=layers,
                         num_attention_heads=16, vocab_size=8192, use_cache=False)
    torch.manual_seed(0)
    return LlamaForCausalLM(config).eval()
ids = torch.arange(24)[None]
"""
STEPS = {
    "trace and save .pt": """
traced = torchport.trace(model(), (), {"input_ids": ids}, compiler_args=["cache=false"],
                         settings=torchport.TraceSettings(separate_weights=folder + "/m.safetensors"))
traced.save(folder + "/m.pt")
with torch.no_grad():
    torch.save(traced(input_ids=ids)["logits"], folder + "/expected.pt")
""",
    "load .pt": """
with torch.no_grad():
    result = torch.jit.load(folder + "/m.pt")(input_ids=ids)["logits"]
assert torch.equal(result, torch.load(folder + "/expected.pt"))
""",
    "compile and save .pt2": """
compiled = torchport.compile(model(), (), {"input_ids": ids}, options={"cache": False})
torchport.save(compiled, folder + "/m.pt2")
torch.save(compiled(input_ids=ids).logits, folder + "/expected.pt")
""",
    "load .pt2": """
result = torchport.load(folder + "/m.pt2")(input_ids=ids).logits
assert torch.equal(result, torch.load(folder + "/expected.pt"))
""",
}


def run(step: str, folder: Path, gigabytes: float) -> dict[str, float]:
    """Run a step in a fresh process; return its time, and the peak memory of it and of its children."""
    tail = (
        "own, children = (resource.getrusage(who).ru_maxrss for who in "
        "(resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN));"
        "print(json.dumps({'own': own * 1024 / 1e9, 'children': children * 1024 / 1e9}))\n"
    )
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", MODEL + STEPS[step] + tail, str(folder), str(gigabytes)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return {**found, "seconds": time.perf_counter() - begin}


def main() -> int:
    """Measure, print the table, write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=3.0, help="how large the weights are")
    gigabytes = parser.parse_args().gigabytes
    found: dict[str, dict[str, float]] = {}
    sizes: dict[str, int] = {}
    with tempfile.TemporaryDirectory(dir=".") as name:
        folder = Path(name)
        for step in STEPS:
            found[step] = run(step, folder, gigabytes)
            sizes |= {path.name: path.stat().st_size for path in folder.iterdir()}
            if step.startswith("load"):
                for path in folder.iterdir():
                    path.unlink()
    rows = [
        [step, f"{row['seconds']:.0f}", f"{row['own']:.1f}", f"{row['children']:.1f}"]
        for step, row in found.items()
    ]
    print(render_table(["step", "s", "memory, GB", "memory of its children, GB"], rows))
    most = max(row["own"] + row["children"] for row in found.values())
    print(f"{'✅' if most <= LIMIT else '❌'} {most:.1f} GB at most, together (at most {LIMIT:.0f})")
    print(write_results("large_model", {"steps": found, "sizes": sizes, "gigabytes": gigabytes}))
    return 0 if most <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
