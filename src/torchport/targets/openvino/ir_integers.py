"""Refuses layers whose integer arithmetic could end the process: OpenVINO divides without checks.

It folds constants with the processor's division, which traps for a divisor of 0, and for the lowest integer
by -1. It also folds what it computes from sizes. So an integer divisor must be a constant without these two,
or be clamped to 1 and more, or to -2 and less; see `bounded_divisors.py`. A `Range` divides by its step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy

from torchport.targets.openvino.format import Bytes
from torchport.targets.openvino.ir_layer import Layer, refusal

Port = tuple[str, str]  # the ids of a layer and one of its ports

_LARGEST = 2**31 - 1  # CPU kernels compute in 32 bits: a larger number could become 0 or -1
_FLOATS = frozenset({"f16", "bf16", "f32", "f64"})
_DTYPES = {
    "i64": "i8", "i32": "i4", "i16": "i2", "i8": "i1", "u64": "u8", "u32": "u4", "u16": "u2", "u8": "u1",
    "f64": "f8", "f32": "f4", "f16": "f2",
}  # fmt: skip
# The attribute with the element type of the result.
_STATED = {"Const": "element_type", "Parameter": "element_type", "Convert": "destination_type"}
# The inputs with the element type of the first result. One suffices: OpenVINO requires that they agree.
_SAME = {
    name: places
    for places, names in {
        (0, 1): "Add Divide FloorMod MatMul Maximum Minimum Mod Multiply Power SquaredDifference Subtract",
        (1, 2): "Select",
        (1,): "ConvertLike",
        (0,): """
        Abs Acos Acosh AdaptiveAvgPool AdaptiveMaxPool Asin Asinh Atan Atanh AvgPool BatchNormInference
        BatchToSpace Broadcast Ceiling Clamp Col2Im Concat Convolution ConvolutionBackpropData Cos Cosh CumSum
        DepthToSpace Elu EmbeddingBagOffsets EmbeddingBagOffsetsSum EmbeddingBagPacked EmbeddingBagPackedSum
        Erf Exp ExtractImagePatches FakeQuantize Floor Gather GatherElements Gelu GridSample GroupConvolution
        GroupConvolutionBackpropData GroupNormalization HSigmoid HSwish HardSigmoid Interpolate Inverse LRN
        Log LogSoftmax MVN MaxPool Mish Negative NormalizeL2 PReLU Pad RMS ReLU ReduceL1 ReduceL2 ReduceMax
        ReduceMean ReduceMin ReduceProd ReduceSum Reshape Reverse ReverseSequence Round
        ScaledDotProductAttention ScatterNDUpdate ScatterUpdate Selu ShuffleChannels Sigmoid Sign Sin Sinh
        Slice SliceScatter SoftMax SoftPlus SoftSign SpaceToBatch SpaceToDepth Split Sqrt Squeeze StridedSlice
        Swish Tan Tanh Tile TopK Transpose Unsqueeze VariadicSplit
        """,
    }.items()
    for name in names.split()
}
_SPLITS = ("Split", "VariadicSplit")  # all their results have the same type


class IntegerCheck:
    """Checks the integers of an IR whose layers and edges are already found to be valid.

    Args:
        layers: the layers by their ids.
        sources: the output port that each input port reads.
        order: the ids of the layers, each after those that it reads.
        weights: the weights, which hold the constants.
    """

    def __init__(
        self, layers: Mapping[str, Layer], sources: Mapping[Port, Port], order: Sequence[str], weights: Bytes
    ) -> None:
        self._layers = layers
        self._sources = sources
        self._order = order
        self._weights = weights
        self._floats: set[Port] = set()  # the output ports that certainly give floats

    def run(self) -> None:
        """Check all layers.

        Raises:
            TargetError: a layer is refused.
        """
        for number in self._order:
            layer = self._layers[number]
            if self._gives_floats(number, layer):
                given = list(layer.gives) if layer.type in _SPLITS else list(layer.gives)[:1]
                self._floats.update((number, port) for port in given)
            elif layer.type in ("Divide", "Mod") and not self._is_divisor(self._source(number, 1)):
                raise refusal(f"a layer {layer.type} could divide an integer by 0 or -1")
            if layer.type == "Range" and not self._is_step(layer, self._source(number, 2)):
                raise refusal("the step of a layer Range is 0, or not a constant")

    def _gives_floats(self, number: str, layer: Layer) -> bool:
        if layer.type in _STATED:
            return (layer.data or {}).get(_STATED[layer.type]) in _FLOATS
        places = _SAME.get(layer.type, ())
        return any(self._source(number, place) in self._floats for place in places)

    def _source(self, number: str, place: int) -> Port | None:
        """Return the output port that an input of a layer reads."""
        takes = list(self._layers[number].takes)
        return self._sources[number, takes[place]] if place < len(takes) else None

    def _is_divisor(self, source: Port | None) -> bool:
        values = self._values(source)
        if values is not None:
            return _lies(values, -_LARGEST, _LARGEST) and not ((values == 0) | (values == -1)).any()
        kind = "" if source is None else self._layers[source[0]].type
        if source is None or kind not in ("Maximum", "Minimum"):
            return False
        limits = [self._values(self._source(source[0], place)) for place in (0, 1)]
        low, high = (1, _LARGEST) if kind == "Maximum" else (-_LARGEST, -2)
        return any(limit is not None and _lies(limit, low, high) for limit in limits)

    def _is_step(self, layer: Layer, source: Port | None) -> bool:
        values = self._values(source)
        if values is None or values.size != 1:
            return False
        step = abs(float(values.item()))
        is_float = (layer.data or {}).get("output_type") in _FLOATS and values.dtype.kind == "f"
        return 0 < step < math.inf if is_float else 1 <= step <= _LARGEST

    def _values(self, source: Port | None) -> numpy.ndarray[Any, Any] | None:
        """Return the values of a constant; None if it is anything else, or of a rare type."""
        layer = None if source is None else self._layers[source[0]]
        if layer is None or layer.type != "Const" or layer.data is None:
            return None
        dtype = _DTYPES.get(layer.data.get("element_type", ""))
        if dtype is None:
            return None
        offset, size = int(layer.data["offset"]), int(layer.data["size"])
        count = size // numpy.dtype(dtype).itemsize  # an empty tensor may have a byte
        values = numpy.frombuffer(self._weights[offset : offset + size].tobytes(), dtype, count)
        return values.astype(numpy.int64) if values.dtype.kind in "iu" else values


def _lies(values: numpy.ndarray[Any, Any], low: int, high: int) -> bool:
    """Whether all values are integers within bounds."""
    if values.dtype.kind != "i":
        return False
    return not values.size or bool(low <= values.min() and values.max() <= high)
