"""Measures a Llama-shaped model with weights in 8 and in 4 bits: accuracy, file sizes, tokens per second.

    python benchmarks/weight_only.py
    python benchmarks/weight_only.py --hidden 256 --vocabulary 1000 --no-speed --json

PCC compares the logits with the float model's, on tokens that were not used for fitting; files are those that
`torchport.save` writes, compared with that of the model in bfloat16; tokens per second are measured
interleaved with the float32 model. Weights and tokens are random. Exits with 1 if a limit is missed; there is
none for speed: `torchport.quantize` itself keeps a model in float if it would be slower on this machine.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from common import Turns, median, render_table, time_in_turns, write_results
from torch import nn

import torchport
from torchport.quantization import AccuracyBudget
from torchport.zoo.torchvision_ops import ensure_torchvision_ops

PCC = {8: 0.999, 4: 0.98}
SIZE = {8: 0.55, 4: 0.3}


def llama(given: argparse.Namespace) -> nn.Module:
    """Return the model, with random weights."""
    ensure_torchvision_ops()
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=given.vocabulary,
        hidden_size=given.hidden,
        intermediate_size=given.hidden * 11 // 4,
        num_hidden_layers=given.layers,
        num_attention_heads=given.hidden // 64,
        tie_word_embeddings=given.tied,
        eos_token_id=None,
    )
    return LlamaForCausalLM(config).eval().requires_grad_(False)


def tokens(given: argparse.Namespace, seed: int, rows: int) -> torch.Tensor:
    """Return random tokens."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, given.vocabulary, (rows, given.tokens), generator=generator)


def pcc(one: nn.Module, other: nn.Module, ids: torch.Tensor) -> float:
    """Return the correlation of two models' logits."""
    with torch.no_grad():
        logits = [model(input_ids=ids).logits.flatten().double() for model in (one, other)]
    return float(torch.corrcoef(torch.stack(logits))[0, 1])


def file_bytes(model: nn.Module, ids: torch.Tensor) -> int:
    """Return the size of the file that the compiled model is written to."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pt2"
        torchport.save(torchport.compile(model, (ids,), options={"speed_trial": False}), path)
        return path.stat().st_size


def generating(model: nn.Module, ids: torch.Tensor, new: int) -> Callable[[], object]:
    """Return a function that generates `new` tokens."""
    compiled = torchport.compile(model, (ids,), options={"speed_trial": False}, max_length=ids.shape[1] + new)
    mask = torch.ones_like(ids)
    return lambda: compiled.generate(
        ids, attention_mask=mask, max_new_tokens=new, min_new_tokens=new, do_sample=False
    )


def measure(given: argparse.Namespace) -> dict[str, dict[str, object]]:
    """Return all figures, by the precision of the weights."""
    model = llama(given)
    items = [{"input_ids": tokens(given, seed, given.rows)} for seed in range(given.items)]
    unseen, prompt = tokens(given, -1, 16), tokens(given, -2, 1)[:, :8]
    found: dict[str, dict[str, object]] = {"float32": {"pcc": 1.0}}
    made: dict[str, nn.Module] = {"float32": model}
    for bits in (8, 4):
        start = time.perf_counter()
        quantized = torchport.quantize(
            model,
            items,
            method="weight_only",
            speed=False,
            accuracy=AccuracyBudget(pcc=0.5),
            options={"bits": bits, "group_size": given.group_size},
        )
        key = f"int{bits}"
        made[key] = quantized.module
        found[key] = {
            "quantize_seconds": time.perf_counter() - start,
            "pcc": pcc(quantized.module, model, unseen),
            "weight_bytes": quantized.report.bytes,
            "eight_bit_layers": [plan.name for plan in quantized.plan.layers if bits == 4 and plan.bits == 8],
        }
        found[key]["file_bytes"] = file_bytes(quantized.module, prompt)
        print(f"{key}: {found[key]}", file=sys.stderr)
    half = file_bytes(llama(given).to(torch.bfloat16), prompt)
    found["bfloat16"] = {"file_bytes": half}
    if given.speed:
        calls = {key: generating(module, prompt, given.new) for key, module in made.items()}
        for key, seconds in time_in_turns(calls, Turns(seconds=given.seconds, settle=0.0)).items():
            found[key]["tokens_a_second"] = given.new / median(seconds)
    return found


def missed(found: dict[str, dict[str, object]]) -> list[str]:
    """Return the limits that were missed."""
    half = float(str(found["bfloat16"]["file_bytes"]))
    short = [f"int{bits}: PCC below {PCC[bits]}" for bits in (8, 4) if _of(found, bits, "pcc") < PCC[bits]]
    return short + [
        f"int{bits}: a file of more than {SIZE[bits]} × bfloat16's"
        for bits in (8, 4)
        if _of(found, bits, "file_bytes") > SIZE[bits] * half
    ]


def _of(found: dict[str, dict[str, object]], bits: int, key: str) -> float:
    return float(str(found[f"int{bits}"][key]))


def row(name: str, found: dict[str, dict[str, object]]) -> list[str]:
    """Return a line of the table."""
    own, floats, half = found[name], found["float32"], float(str(found["bfloat16"]["file_bytes"]))
    rate, size = own.get("tokens_a_second"), own.get("file_bytes")
    base = float(str(floats.get("tokens_a_second", 0)))
    return [
        name,
        f"{float(str(own['pcc'])):.4f}" if "pcc" in own else "-",
        f"{float(str(size)) / 2**20:.1f}" if size else "-",
        f"{float(str(size)) / half:.3f}" if size else "-",
        f"{float(str(rate)):.1f}" if rate else "-",
        f"{float(str(rate)) / base:.2f}" if rate else "-",
    ]


def main() -> int:
    """Measure, print the table or JSON, and write the JSON; 1 if a limit is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hidden", type=int, default=768, help="a multiple of 64")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--vocabulary", type=int, default=4096)
    parser.add_argument("--tied", action="store_true", help="the head has the embedding's weight")
    parser.add_argument("--group-size", type=int, default=64)
    parser.add_argument("--items", type=int, default=20, help="how many items to calibrate and evaluate on")
    parser.add_argument("--rows", type=int, default=8, help="sequences in an item")
    parser.add_argument("--tokens", type=int, default=64, help="tokens in a sequence")
    parser.add_argument("--new", type=int, default=32, help="tokens to generate")
    parser.add_argument("--seconds", type=float, default=60.0, help="about how long to generate for")
    parser.add_argument("--no-speed", dest="speed", action="store_false", help="generate nothing")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    found = measure(given)
    short = missed(found)
    sizes = {key: value for key, value in vars(given).items() if key != "json"}
    written = write_results("weight_only", {"sizes": sizes, "found": found, "missed": short})
    if given.json:
        print(json.dumps({"sizes": sizes, "found": found, "missed": short}, indent=2))
    else:
        titles = ["weights", "PCC", "file MiB", "× bfloat16's", "tokens/s", "× float32's"]
        print(render_table(titles, [row(name, found) for name in ("float32", "bfloat16", "int8", "int4")]))
        print("\n".join(["", *short]))
    print(f"\nwritten to {written}", file=sys.stderr)
    return int(bool(short))


if __name__ == "__main__":
    sys.exit(main())
