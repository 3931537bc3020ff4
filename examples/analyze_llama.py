"""Shows what Llama-3.1-405B consists of and costs, on a machine that could not hold one of its layers.

    python examples/analyze_llama.py

The model is built from its configuration alone, so nothing is downloaded and nothing is computed.
"""

import torch

import torchport
from torchport.analysis import op_configurations


def main() -> None:
    """Analyse the model on 4096 tokens, and show the most expensive ops."""
    model = torchport.zoo.load("hf:meta-llama/Llama-3.1-405B", weights=False, device="meta")
    module = model.module.to(torch.bfloat16)
    tokens = torch.zeros(1, 4096, dtype=torch.long, device="meta")
    analysis = torchport.analyze(module, (), {"input_ids": tokens}, name="Llama-3.1-405B")

    cost = analysis.cost
    print(f"{cost.parameters / 1e9:.1f} billion parameters, {cost.parameter_bytes / 1e9:.0f} GB")
    print(f"{cost.flops / 1e15:.2f} PFLOPs, {cost.arithmetic_intensity:.0f} FLOPs per byte")
    print(
        f"at most {cost.peak.bytes / 1e9:.1f} GB of activations, at {cost.peak.op} in {cost.peak.module_path}"
    )
    estimate = cost.roofline(peak_flops=1e15, bandwidth=3e12)
    print(f"{estimate.seconds:.1f} s on a device of 1 PFLOP/s and 3 TB/s")

    table = op_configurations([analysis])
    print(f"\n{table.total_ops} calls of {len(table.configurations)} configurations; the most expensive:")
    for row in table.configurations[:5]:
        shapes = ", ".join(kind.shape for kind in row.inputs.values())
        print(f"  {row.flop_share:6.1%}  {row.count:4} × {row.op_name}({shapes})")


if __name__ == "__main__":
    main()
