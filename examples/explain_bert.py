"""Shows what OpenVINO supports of BERT, and why an op stays on the host, without building anything.

    python examples/explain_bert.py

The model is built from its configuration alone, without values, so nothing is downloaded or computed.
"""

import torchport


def main() -> None:
    """Explain the model as it is, then with a part of it kept on the host."""
    model = torchport.zoo.load("hf:bert-base-uncased", weights=False, device="meta")

    coverage = torchport.explain(model.module, model.args, model.kwargs, target="openvino")
    print(f"{coverage.ops_before} torch ops of {coverage.unique_before} kinds")
    print(f"{coverage.ops_remain} stay on the host")
    print(f"{coverage.flops_covered / coverage.flops:.1%} of {coverage.flops / 1e9:.1f} GFLOPs are covered")

    options = {"keep_modules": ["bert.encoder.layer.0.intermediate"]}
    kept = torchport.explain(model.module, model.args, model.kwargs, target="openvino", options=options)
    print(f"\n{kept.ops_remain} ops stay, in {len(kept.islands)} islands, with {options}:")
    for op in kept.stayed:
        print(f"  {op.op} in {op.module_path}: {op.reason}, at {op.source}")


if __name__ == "__main__":
    main()
