"""Measures how fast a Llama-shaped model generates: torchport against its peers, interleaved.

    python benchmarks/generate.py --peers
    python benchmarks/generate.py --layers 2 --dtype float32 --rounds 2

Each contender is a process that loads the same weights, builds, and then waits for its turn; only one runs
at a time. A turn is one call of `generate` with greedy decoding. `--peers` adds
optimum-intel and openvino-genai, in an environment of their own, which is created in `out/peers` with pip.

"build" is the time from the weights on disk to the end of the first turn. "held" is the memory that a process
uses beyond that of its libraries, without file-backed pages, which the system can reclaim.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO

from common import render_table, write_results
from peers import peers_python

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
NAMES = ("torchport", "torchport-auto", "torchport-file", "eager", "inductor")
# Not every processor supports float16, nor every system huge pages.
BY_NAME_ALONE = ("torchport-float16", "torchport-small-pages")
PEERS = ("optimum-intel", "openvino-genai")
OURS = "torchport"
PAUSE = 1.0  # seconds before a turn: threads that wait for more work keep their cores busy for a while

SCRIPT = str(Path(__file__).with_name("generate_contender.py"))


class Contender:
    """A process that generates on request."""

    def __init__(
        self, python: str, name: str, folder: str, dtype: str, arguments: argparse.Namespace
    ) -> None:
        command = [python, SCRIPT, name, folder, dtype, str(arguments.prompt), str(arguments.new)]
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
        raise SystemExit(f"{name} ended; run {SCRIPT} {name} to see why")
    found: dict[str, object] = json.loads(line)
    return found


def measure(dtype: str, arguments: argparse.Namespace, python: str) -> dict[str, object]:
    """Run all contenders for one dtype, interleaved; `python` is that of the peers' environment."""
    with tempfile.TemporaryDirectory() as folder:
        made = subprocess.run(
            [sys.executable, "-c", MODEL, folder, str(arguments.layers), dtype],
            check=True, capture_output=True, text=True, env={**os.environ, "TRANSFORMERS_VERBOSITY": "error"},
        )  # fmt: skip
        model_bytes = int(made.stdout.split()[-1])
        if "torchport-file" in arguments.contenders:
            Contender(sys.executable, "save", folder, dtype, arguments).end()
        contenders = {
            name: Contender(python if name in PEERS else sys.executable, name, folder, dtype, arguments)
            for name in arguments.contenders
        }
        order = list(contenders.values())
        for _ in range(arguments.rounds):
            for contender in order:
                time.sleep(PAUSE)
                contender.turn()
            order = order[1:] + order[:1]  # rotate, so that none always follows the same one
        for contender in contenders.values():
            contender.end()
    others = [each.median("rate") for name, each in contenders.items() if not name.startswith(OURS)]
    best = max(others or [contenders[arguments.contenders[0]].median("rate")])
    expected = next(each for name, each in contenders.items() if name == "eager" or "eager" not in contenders)
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
            str(contender.turns[-1]["tokens"] == expected.turns[-1]["tokens"]),
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
    parser.add_argument("--contenders", nargs="+", choices=(*NAMES, *BY_NAME_ALONE, *PEERS))
    parser.add_argument("--peers", action="store_true", help="optimum-intel and openvino-genai as well")
    arguments = parser.parse_args()
    arguments.contenders = arguments.contenders or [*NAMES, *(PEERS if arguments.peers else ())]
    python = peers_python() if set(PEERS) & set(arguments.contenders) else ""
    results = [measure(dtype, arguments, python) for dtype in arguments.dtype or ("float32", "bfloat16")]
    write_results("generate", {"layers": arguments.layers, "results": results})


if __name__ == "__main__":
    main()
