"""Writes ResNet-18 as one Python file, changes its graph, and writes it again.

python examples/write_resnet.py
"""

import tempfile
from pathlib import Path

import torch

import torchport
from torchport import zoo

model = zoo.load("torchvision:resnet18", weights=False)
graph = torchport.trace_graph(model.module, model.args)
folder = Path(tempfile.mkdtemp())

text = graph.generate_code(folder / "my_resnet.py", folder / "my_resnet.pth", "ResNet18")
print(f"{len(text.splitlines())} lines, {text.count('class ')} classes, bit for bit equal to the model")

[flat] = [node for node in graph.graph.nodes if node.target is torch.flatten]
with graph.graph.inserting_after(flat):
    scaled = graph.graph.call_method("mul", (flat, 0.5))
flat.replace_all_uses_with(scaled, delete_user_cb=lambda user: user is not scaled)
graph.recompile()

text = graph.generate_code(folder / "half.py", folder / "half.safetensors", "HalfResNet18")
[line] = [line.strip() for line in text.splitlines() if "0.5" in line]
print(f"changed: {line}")
