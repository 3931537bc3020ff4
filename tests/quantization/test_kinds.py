"""Kinds of models: each is quantized, and OpenVINO matches the simulation."""

import pytest
import torch
from torch import nn

import torchport
from torchport.quantization import AccuracyBudget
from torchport.targets.processor import has_int8


class SqueezeExcite(nn.Module):
    """A depthwise convolution, a gate of its channels, a transposed convolution, a residual sum."""

    def __init__(self) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.norm = nn.BatchNorm2d(8)
        squeeze = [nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 4, 1), nn.ReLU()]
        self.gate = nn.Sequential(*squeeze, nn.Conv2d(4, 8, 1), nn.Sigmoid())
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return an image of twice the size."""
        seen = torch.relu(self.norm(self.depthwise(x)))
        return self.up(x + seen * self.gate(seen))


class Attention(nn.Module):
    """Attention, written in a chosen way."""

    def __init__(self, spelling: str) -> None:
        super().__init__()
        self.spelling = spelling
        self.into = nn.Linear(16, 48)
        self.out = nn.Linear(16, 16)
        self.whole = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a tensor like the input."""
        if self.spelling == "module":
            return self.whole(x, x, x, need_weights=False)[0]
        query, key, value = (part.unflatten(-1, (2, 8)).transpose(1, 2) for part in self.into(x).chunk(3, -1))
        if self.spelling == "function":
            mixed = nn.functional.scaled_dot_product_attention(query, key, value)
        elif self.spelling == "einsum":
            scores = torch.einsum("bhqd,bhkd->bhqk", query, key) / 8**0.5
            mixed = torch.einsum("bhqk,bhkd->bhqd", scores.softmax(-1), value)
        else:
            mixed = (query @ key.transpose(-1, -2) / 8**0.5).softmax(-1) @ value
        return self.out(mixed.transpose(1, 2).flatten(2))


class SharedGru(nn.Module):
    """An embedding, a recurrent layer, and a module that is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        self.recurrent = nn.GRU(16, 16, batch_first=True)
        self.shared = nn.Linear(16, 16)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return a vector for each sequence."""
        state = self.recurrent(self.embed(tokens))[0][:, -1]
        return self.shared(torch.relu(self.shared(state)))


def images() -> list[torch.Tensor]:
    return [torch.randn(2, 8, 6, 6) for _ in range(6)]


def sequences() -> list[torch.Tensor]:
    return [torch.randn(2, 5, 16) for _ in range(6)]


def tokens() -> list[torch.Tensor]:
    return [torch.randint(0, 20, (2, 4)) for _ in range(6)]


KINDS = {
    "squeeze-excite": (SqueezeExcite, images, {"depthwise", "gate.1", "gate.3", "up"}),
    "attention module": (lambda: Attention("module"), sequences, {"whole/linear#1"}),
    "attention function": (lambda: Attention("function"), sequences, {"into", "out"}),
    "attention einsum": (lambda: Attention("einsum"), sequences, {"into", "out"}),
    "attention matmul": (lambda: Attention("matmul"), sequences, {"into", "out"}),
    "shared and recurrent": (SharedGru, tokens, {"shared#1", "shared#2"}),
}


@pytest.mark.parametrize("kind", list(KINDS))
def test_each_kind_is_quantized_and_compiled(kind: str) -> None:
    make, data, names = KINDS[kind]
    model, items = make().eval(), data()
    quantized = torchport.quantize(model, items, speed=False, accuracy=AccuracyBudget(pcc=0.98))
    in_int8 = {layer.name for layer in quantized.plan.layers if layer.precision == "int8"}
    assert names <= in_int8, in_int8
    compiled = torchport.compile(quantized, (items[0],))
    with torch.no_grad():
        floats, simulated, found = model(items[0]), quantized(items[0]), compiled(items[0])
    assert torch.corrcoef(torch.stack([simulated.flatten(), floats.flatten()]))[0, 1] > 0.97
    assert torch.corrcoef(torch.stack([found.flatten(), simulated.flatten()]))[0, 1] > 0.99


def test_it_runs_in_eight_bits() -> None:
    """Checked in OpenVINO's own model, and, if the processor has the instructions, in its chosen kernels."""
    from torchport import targets
    from torchport.quantization.speed import _product_times

    model = nn.Sequential(
        nn.Conv2d(8, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.Flatten(), nn.Linear(128, 16)
    )
    quantized = torchport.quantize(model.eval(), images(), speed=False)
    item = images()[0]
    compiled = torchport.compile(quantized, (item,))
    assert compiled.coverage.complete
    [island] = compiled.record.islands
    # Weights take a quarter of the bytes, plus scales and biases: they are int8 in the file.
    weights = sum(parameter.nbytes for parameter in model.parameters())
    assert int(island.properties["weights_bytes"]) < 0.4 * weights
    times = _product_times(quantized, targets.find("openvino"), (item,), {})
    assert len(times) == 3
    if has_int8():
        assert [time.precision.lower() in ("i8", "u8") for time in times if time] == [True] * 3


def test_what_a_depthwise_convolution_reads_is_in_eight_bits() -> None:
    """By default nncf quantizes its input per channel, which engines never get: it would run in floats."""
    model = nn.Sequential(
        nn.Conv2d(8, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3, groups=32), nn.ReLU(), nn.Conv2d(32, 4, 1)
    )
    quantized = torchport.quantize(model.eval(), images(), speed=False)
    nodes = quantized.module.graph_module.graph.nodes
    products = [node for node in nodes if str(node.target) == "aten.conv2d.default"]
    assert len(products) == 3
    assert {str(node.args[0].target) for node in products} == {"aten.fake_quantize_per_tensor_affine.default"}


def test_a_model_that_generates_generates_with_weights_in_eight_bits() -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"vocab_size": 97, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
    model = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=4, eos_token_id=None)).eval()
    ids = torch.tensor([[5, 17, 3]])
    quantized = torchport.quantize(model, [{"input_ids": ids}], method="weight_only", speed=False)
    # Seven in each block, plus the head and the embedding.
    assert quantized.plan.count("weight_only") == len(quantized.plan.layers) == 16
    with torch.no_grad():
        ours, theirs = quantized(input_ids=ids).logits, model(input_ids=ids).logits
    assert torch.corrcoef(torch.stack([ours.flatten(), theirs.flatten()]))[0, 1] > 0.999
    made = quantized.module.generate(ids, max_new_tokens=4, do_sample=False)
    assert made.shape == (1, 7)
