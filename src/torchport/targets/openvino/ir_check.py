"""Validates an island's XML and weights before OpenVINO reads them: OpenVINO trusts what it reads.

An offset beyond the weights, a tensor larger than memory, a cycle or an op without its inputs makes OpenVINO
crash or read memory outside the model. So an XML from a file may only contain what torchport's own builds
write: plain layers of known types with all their inputs, constants within the weights, reasonable sizes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from xml.parsers import expat

from torchport.targets.openvino.format import Bytes
from torchport.targets.openvino.ir_integers import IntegerCheck, Port
from torchport.targets.openvino.ir_layer import Layer
from torchport.targets.openvino.ir_layer import refusal as _refusal

_MOST_BYTES = 2**40  # per tensor: none is that large, and products of sizes stay within 64 bits
MOST_XML = 1 << 28  # bytes; the largest models have a few megabytes
_DEEPEST = 12  # nesting depth of elements; those of our builds are nested eight deep
_OPSET = re.compile(r"opset[0-9]{1,2}")
_NUMBER = re.compile(r"[0-9]{1,18}")

_PLACES = {
    "net": ("net",),
    "layers": ("net", "layers"),
    "layer": ("net", "layers", "layer"),
    "edges": ("net", "edges"),
    "edge": ("net", "edges", "edge"),
}
_PORTS: dict[tuple[str, ...], str] = {
    ("net", "layers", "layer", side, "port"): side for side in ("input", "output")
}
_HEAD = b'<?xml version="1.0"?>'

# The layer types that OpenVINO's frontend and its simplifications create for the ops with a rule. None keeps
# a state between calls, contains other graphs, draws random numbers or comes from an extension. Nor does any
# read or write elements at indices that its CPU kernel does not check, as GatherND, Roll and
# ScatterElementsUpdate do.
TYPES = frozenset(
    """
    Abs Acos Acosh AdaptiveAvgPool AdaptiveMaxPool Add Asin Asinh Atan Atanh AvgPool BatchNormInference
    BatchToSpace BitwiseAnd BitwiseLeftShift BitwiseNot BitwiseOr BitwiseRightShift BitwiseXor Broadcast
    Bucketize Ceiling Clamp Col2Im Concat Const Convert ConvertLike Convolution ConvolutionBackpropData
    Cos Cosh CumSum DepthToSpace Divide Einsum Elu EmbeddingBagOffsets EmbeddingBagPacked
    EmbeddingBagOffsetsSum EmbeddingBagPackedSum Equal Erf Exp ExtractImagePatches Eye FakeQuantize Floor
    FloorMod Gather GatherElements Gelu Greater GreaterEqual GridSample GroupConvolution
    GroupConvolutionBackpropData GroupNormalization HSigmoid HSwish HardSigmoid Interpolate Inverse
    IsFinite IsInf IsNaN LRN Less LessEqual Log LogSoftmax LogicalAnd LogicalNot LogicalOr LogicalXor MVN
    MatMul MaxPool Maximum Minimum Mish Mod Multiply Negative NonZero NormalizeL2 NotEqual OneHot PReLU
    Pad Parameter Power RMS Range ReLU ReduceL1 ReduceL2 ReduceLogicalAnd ReduceLogicalOr ReduceMax
    ReduceMean ReduceMin ReduceProd ReduceSum Reshape Result Reverse ReverseSequence Round
    ScaledDotProductAttention ScatterNDUpdate ScatterUpdate SearchSorted Select Selu
    ShapeOf ShuffleChannels Sigmoid Sign Sin Sinh Slice SliceScatter SoftMax SoftPlus SoftSign SpaceToBatch
    SpaceToDepth Split Sqrt SquaredDifference Squeeze StridedSlice Subtract Swish Tan Tanh Tile TopK Transpose
    Unsqueeze VariadicSplit
    """.split()
)

_WITH_DATA = ("Const", "Parameter")  # layers without inputs
# The least number of inputs of a layer, where it is more than one: OpenVINO reads them without checking.
_LEAST_INPUTS = {
    name: count
    for count, names in {
        2: """
        AdaptiveAvgPool AdaptiveMaxPool Add BitwiseAnd BitwiseLeftShift BitwiseOr BitwiseRightShift BitwiseXor
        Broadcast Bucketize ConvertLike Convolution ConvolutionBackpropData CumSum Divide EmbeddingBagPacked
        EmbeddingBagPackedSum Equal FloorMod GatherElements Greater GreaterEqual GridSample
        GroupConvolution GroupConvolutionBackpropData Interpolate LRN Less LessEqual LogicalAnd LogicalOr
        LogicalXor MatMul Maximum Minimum Mod Multiply NormalizeL2 NotEqual PReLU Power ReduceL1 ReduceL2
        ReduceLogicalAnd ReduceLogicalOr ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum Reshape
        ReverseSequence SearchSorted Split SquaredDifference Subtract Tile TopK Transpose Unsqueeze
        """,
        3: """
        Col2Im EmbeddingBagOffsets EmbeddingBagOffsetsSum Eye Gather GroupNormalization HardSigmoid Pad Range
        ScaledDotProductAttention ScatterNDUpdate Select Selu StridedSlice VariadicSplit
        """,
        4: "BatchToSpace OneHot ScatterUpdate Slice SpaceToBatch",
        5: "BatchNormInference FakeQuantize SliceScatter",
    }.items()
    for name in names.split()
}
_BITS = {
    "f64": 64, "f32": 32, "f16": 16, "bf16": 16, "i64": 64, "i32": 32, "i16": 16, "i8": 8, "i4": 4,
    "u64": 64, "u32": 32, "u16": 16, "u8": 8, "u4": 4, "u1": 1, "boolean": 8,
}  # fmt: skip


def check_ir(xml: bytes, weights: Bytes, *, inputs: int, outputs: int) -> None:
    """Refuse an intermediate representation that torchport's builds would not write.

    Args:
        xml: the XML of the representation.
        weights: the weights.
        inputs, outputs: the number of the model's inputs and outputs.

    Raises:
        TargetError: the model is refused; the message says why.
    """
    found = _Reader(int(weights.size)).read(xml)
    kinds = [layer.type for layer in found.layers.values()]
    if (kinds.count("Parameter"), kinds.count("Result")) != (inputs, outputs):
        raise _refusal(f"it does not have {inputs} inputs and {outputs} outputs")
    if any(layer.type in _WITH_DATA and layer.data is None for layer in found.layers.values()):
        raise _refusal("a constant or parameter has no data element")
    for layer in found.layers.values():
        least = 0 if layer.type in _WITH_DATA else _LEAST_INPUTS.get(layer.type, 1)
        if len(layer.takes) < least or (not least and layer.takes):
            raise _refusal(f"a layer {layer.type} has the wrong number of inputs, {len(layer.takes)}")
    sources = _check_edges(found)
    order = _check_order(found.layers, sources)
    IntegerCheck(found.layers, sources, order, weights).run()


class _Reader:
    """Reads the XML element by element, without external references or entity expansion."""

    def __init__(self, weights_bytes: int) -> None:
        self._weights_bytes = weights_bytes
        self._path: list[str] = []
        self._layer = Layer("")
        self._sizes: list[int] = []  # of the port that is being read
        self._text = ""
        self.layers: dict[str, Layer] = {}
        self.edges: list[dict[str, str]] = []

    def read(self, xml: bytes) -> _Reader:
        if len(xml) > MOST_XML:
            raise _refusal(f"its XML is too large, {len(xml)} bytes")
        # OpenVINO uses another parser: nothing is allowed that the two could parse differently.
        if not xml.startswith(_HEAD) or xml.count(b"<?") > 1 or b"<!" in xml:
            raise _refusal("its XML has an unexpected declaration, comment or CDATA section")
        parser = self._parser = expat.ParserCreate("UTF-8", intern={})
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        try:
            parser.Parse(xml, True)
        except expat.ExpatError as error:
            raise _refusal(f"it is not XML: {error}") from error
        return self

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        path = self._path
        path.append(name)
        if len(path) > _DEEPEST:
            raise _refusal("its elements are nested too deeply")
        if name == "dim":
            self._text = ""
            self._parser.CharacterDataHandler = self._characters  # other text is ignored
        elif name == "port":
            self._start_port(attributes)
        elif name in _PLACES:
            if tuple(path) != _PLACES[name]:
                raise _refusal(f"it has a misplaced element {name!r}")
            if name == "layer":
                self._start_layer(attributes)
            elif name == "edge":
                self.edges.append(attributes)
        elif name == "data" and path[:-1] == [*_PLACES["layer"]]:
            self._check_data(attributes)
        elif name in ("body", "port_map", "back_edges"):
            raise _refusal(f"it has an element {name!r}, which torchport's builds never have")

    def _end(self, name: str) -> None:
        self._path.pop()
        if name == "dim":
            self._parser.CharacterDataHandler = None
            size = self._text.strip()
            self._sizes.append(1 if size == "-1" else _number(size, "a size"))  # -1: only known at run time
        elif name == "port":
            _check_size(self._sizes, 64)

    def _characters(self, text: str) -> None:
        self._text += text

    def _start_layer(self, attributes: dict[str, str]) -> None:
        kind, number = attributes.get("type", ""), attributes.get("id", "")
        if kind not in TYPES or not _OPSET.fullmatch(attributes.get("version", "")):
            raise _refusal(
                f"torchport's builds never have a layer {kind!r:.60} of {attributes.get('version')!r:.60}"
            )
        if number in self.layers or not _NUMBER.fullmatch(number):
            raise _refusal(f"a layer has an invalid or duplicate id, {number!r:.60}")
        self._layer = self.layers[number] = Layer(kind)

    def _start_port(self, attributes: dict[str, str]) -> None:
        takes, gives = self._layer.takes, self._layer.gives
        side = _PORTS.get(tuple(self._path))
        number = attributes.get("id", "")
        if side is None or number in takes or number in gives or not _NUMBER.fullmatch(number):
            raise _refusal(f"a port is misplaced or has an invalid or duplicate id, {number!r:.60}")
        (takes if side == "input" else gives)[number] = None
        self._sizes = []

    def _check_data(self, attributes: dict[str, str]) -> None:
        for key, value in attributes.items():
            for word in re.findall(r"(?<![0-9.])[0-9]{19,}", value):  # a fraction may have any digits
                raise _refusal(f"the number {word[:40]} of {key} is too large")
        if self._layer.data is not None:  # OpenVINO reads the first one
            raise _refusal(f"a layer {self._layer.type} has two data elements")
        self._layer.data = attributes
        if self._layer.type in _WITH_DATA:
            self._check_tensor(attributes)

    def _check_tensor(self, attributes: dict[str, str]) -> None:
        kind, text = attributes.get("element_type", ""), attributes.get("shape", "").strip()
        if kind not in _BITS:
            raise _refusal(f"a tensor has the unknown element type {kind!r:.60}")
        words = [word.strip() for word in text.split(",")] if text else []
        if self._layer.type == "Parameter":  # an open size is only known at run time
            words = ["1" if word == "?" else word for word in words]
        sizes = [_number(word, "a size") for word in words]
        bits = _check_size(sizes, _BITS[kind])
        if self._layer.type == "Const":
            offset = _number(attributes.get("offset", ""), "an offset")
            size = _number(attributes.get("size", ""), "a length")
            held = (bits + 7) // 8 or size  # OpenVINO may store a byte for an empty tensor
            if size != held or offset + size > self._weights_bytes or (not bits and size > 1):
                raise _refusal(f"the {size} bytes at {offset} are not a constant within the weights")


def _number(text: str, what: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise _refusal(f"{what} is not a number, {text!r:.60}")
    return int(text)


def _check_size(sizes: list[int], bits: int) -> int:
    total = math.prod(sizes) * bits
    if len(sizes) > 32 or total > 8 * _MOST_BYTES:
        raise _refusal(f"a tensor is too large, with the shape {sizes!r:.100}")
    return total


def _check_edges(found: _Reader) -> dict[Port, Port]:
    """Return the output port that each input port reads.

    Raises:
        TargetError: an input is not connected, or an edge is between layers or ports that do not exist.
    """
    sources: dict[Port, Port] = {}
    for edge in found.edges:
        start, end = edge.get("from-layer", ""), edge.get("to-layer", "")
        out, into = edge.get("from-port", ""), edge.get("to-port", "")
        if start not in found.layers or end not in found.layers or (end, into) in sources:
            raise _refusal(f"an edge from layer {start!r:.60} to {end!r:.60} is invalid or a duplicate")
        if out not in found.layers[start].gives or into not in found.layers[end].takes:
            raise _refusal(f"an edge from port {out!r:.60} to port {into!r:.60} is invalid")
        sources[end, into] = start, out
    if len(sources) != sum(len(layer.takes) for layer in found.layers.values()):
        raise _refusal("an input of a layer is not connected")
    return sources


def _check_order(layers: Collection[str], sources: Mapping[Port, Port]) -> list[str]:
    """Return the layers' ids, each after those that it reads; refuse cycles."""
    users: dict[str, list[str]] = {number: [] for number in layers}
    waiting = dict.fromkeys(layers, 0)
    for (end, _), (start, _) in sources.items():
        users[start].append(end)
        waiting[end] += 1
    ready = [number for number, count in waiting.items() if not count]
    order: list[str] = []
    while ready:
        order.append(ready.pop())
        for user in users[order[-1]]:
            waiting[user] -= 1
            if not waiting[user]:
                ready.append(user)
    if len(order) < len(waiting):
        raise _refusal("its layers form a cycle")
    return order
