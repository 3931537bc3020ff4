"""Measures how fast a Llama-shaped model generates: torchport against eager torch and inductor, in turns.

    python benchmarks/generate.py
    python benchmarks/generate.py --layers 2 --dtype float32 --rounds 2

Each contender is a process of its own that loads the same weights, builds, and then waits for its turn: one
waits while another runs. A turn is one call of `generate`, the likeliest token each time. Inductor has the
library's static cache and compiles the forward, as transformers' documentation advises.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from typing import IO

from common import render_table, write_results

CONTENDER = """
import json, resource, sys, time
name, folder, prompt, new = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
say, sys.stdout = sys.stdout, sys.stderr
import torch
from torchport.zoo.torchvision_ops import ensure_torchvision_ops
ensure_torchvision_ops()
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval()
model.generation_config.eos_token_id, model.generation_config.pad_token_id = None, 0
torch.manual_seed(1)
ids = torch.randint(3, model.config.vocab_size, (1, prompt))
wanted = {"attention_mask": torch.ones_like(ids), "do_sample": False}
generate = model.generate
start = time.perf_counter()
if name == "torchport":
    import torchport
    generate = torchport.compile(model, (ids,), target="openvino", max_length=prompt + new).generate
elif name == "inductor":
    wanted["cache_implementation"] = "static"
    model.forward = torch.compile(model.forward)
class Clock:
    def __init__(self): self.times = [time.perf_counter()]
    def put(self, value): self.times.append(time.perf_counter())
    def end(self): pass
def turn():
    clock = Clock()
    tokens = generate(ids, max_new_tokens=new, streamer=clock, **wanted)[0, prompt:].tolist()
    return clock.times, tokens
def held():
    # What is the process's own: pages of files, which the system can take back, are not in it.
    with open("/proc/self/status") as file:
        return sum(int(line.split()[1]) * 1024 for line in file if line.startswith(("RssAnon", "RssShmem")))
turn()
print(json.dumps({"build": time.perf_counter() - start}), file=say, flush=True)
for _ in sys.stdin:
    times, tokens = turn()
    print(json.dumps({
        "first": times[2] - times[0], "rate": (len(times) - 3) / (times[-1] - times[2]),
        "seconds": times[-1] - times[0], "tokens": tokens,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "held": held(),
    }), file=say, flush=True)
"""
MODEL = """
import sys, torch
from torchport.zoo.torchvision_ops import ensure_torchvision_ops
ensure_torchvision_ops()
from transformers import LlamaConfig, LlamaForCausalLM
folder, layers, dtype = sys.argv[1], int(sys.argv[2]), getattr(torch, sys.argv[3])
torch.manual_seed(0)
config = LlamaConfig(vocab_size=32000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=layers,
                     num_attention_heads=16, num_key_value_heads=16, max_position_embeddings=2048)
model = LlamaForCausalLM(config).to(dtype)
model.save_pretrained(folder)
print(sum(parameter.nbytes for parameter in model.parameters()))
"""
NAMES = ("torchport", "eager", "inductor")


class Contender:
    """A process that generates when it is told to."""

    def __init__(self, name: str, folder: str, arguments: argparse.Namespace) -> None:
        command = [sys.executable, "-c", CONTENDER, name, folder, str(arguments.prompt), str(arguments.new)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.build = float(_line(self._process.stdout, name)["build"])
        self.turns: list[dict[str, object]] = []
        self._name = name

    def turn(self) -> None:
        """Generate once."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        self.turns.append(_line(self._process.stdout, self._name))

    def end(self) -> None:
        """Let the process end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def median(self, key: str) -> float:
        """Return the median of all turns."""
        return statistics.median(float(str(turn[key])) for turn in self.turns)


def _line(stream: IO[str] | None, name: str) -> dict[str, object]:
    assert stream is not None
    line = stream.readline()
    if not line:
        raise SystemExit(f"{name} ended; run it without the others to see why")
    found: dict[str, object] = json.loads(line)
    return found


def measure(dtype: str, arguments: argparse.Namespace) -> dict[str, object]:
    """Run all contenders for one dtype, in turns."""
    with tempfile.TemporaryDirectory() as folder:
        made = subprocess.run(
            [sys.executable, "-c", MODEL, folder, str(arguments.layers), dtype],
            check=True, capture_output=True, text=True, env={**os.environ, "TRANSFORMERS_VERBOSITY": "error"},
        )  # fmt: skip
        model_bytes = int(made.stdout.split()[-1])
        contenders = {name: Contender(name, folder, arguments) for name in arguments.contenders}
        for _ in range(arguments.rounds):
            for contender in contenders.values():
                contender.turn()
        for contender in contenders.values():
            contender.end()
    best = max(contender.median("rate") for name, contender in contenders.items() if name != "torchport")
    print(f"\n{dtype}, {arguments.layers} layers, {model_bytes / 1e9:.2f} GB")
    rows = [
        (
            name,
            f"{contender.median('first') * 1000:.0f}",
            f"{contender.median('rate'):.1f}",
            f"{contender.median('rate') / best:.2f}",
            f"{contender.build:.1f}",
            f"{float(str(contender.turns[-1]['memory'])) / 1e9:.2f}",
            f"{float(str(contender.turns[-1]['held'])) / model_bytes:.2f}",
            str(contender.turns[-1]["tokens"] == contenders["eager"].turns[-1]["tokens"]),
        )
        for name, contender in contenders.items()
    ]
    header = (
        "contender",
        "first ms",
        "tokens/s",
        "× best",
        "build s",
        "GB at most",
        "held × model",
        "tokens = eager's",
    )
    print(render_table(header, rows))
    return {
        "dtype": dtype,
        "model_bytes": model_bytes,
        "contenders": {name: {"build": each.build, "turns": each.turns} for name, each in contenders.items()},
    }


def main() -> None:
    """Parse, measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dtype", action="append", choices=("float32", "bfloat16"))
    parser.add_argument("--contenders", nargs="+", default=list(NAMES), choices=NAMES)
    arguments = parser.parse_args()
    results = [measure(dtype, arguments) for dtype in arguments.dtype or ("float32", "bfloat16")]
    write_results("generate", {"layers": arguments.layers, "results": results})


if __name__ == "__main__":
    main()
