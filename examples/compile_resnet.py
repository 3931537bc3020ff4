"""Compiles ResNet-18 for OpenVINO and compares it with eager torch.

    python examples/compile_resnet.py

Weights are random, so nothing is downloaded.
"""

import torch

import torchport


def main() -> None:
    """Compile, run, compare."""
    model = torchport.zoo.load("torchvision:resnet18", weights=False)
    compiled = torchport.compile(model.module, model.args, target="openvino")

    coverage = compiled.coverage
    print(f"{coverage.ops_before} torch ops, {coverage.ops_remain} stay on the host")
    print(f"{coverage.transfers} tensors cross in {len(coverage.islands)} island")

    with torch.no_grad():
        expected = model.module(*model.args)
    comparison = torchport.compare(compiled(*model.args), expected)
    print(f"equals eager torch: {comparison.ok}, PCC {comparison.pcc:.6f}")

    # Another batch size is another shape, compiled on its first call.
    print(f"a batch of two gives {tuple(compiled(torch.rand(2, 3, 224, 224)).shape)}")
    print(f"{len(compiled.programs)} programs are in memory")


if __name__ == "__main__":
    main()
