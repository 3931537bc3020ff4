"""Checks an island's ONNX model before onnxruntime reads it: only what torchport's builds write is accepted.

Only standard compute ops, no subgraphs, no functions, no external data, and constants whose length matches
their shape. onnxruntime gets the checked model serialized again, so anything the check did not see is gone.
"""

from __future__ import annotations

import math
from typing import Any

from torchport.errors import TargetError, one_line
from torchport.targets.onnxruntime.integer_divisions import Divisions
from torchport.targets.onnxruntime.library import library

_MOST_BYTES = 2**31 - 1  # protobuf's limit for one message; also for one tensor here
_MOST_NODES = 2**20
_OPSETS = range(17, 27)
_IR_VERSIONS = range(8, 14)

# The ops that torch's exporter and its optimizer produce for ATen ops with a rule, all of ONNX's own domain.
# No op that holds subgraphs, draws random numbers, keeps state or reads strings.
TYPES = frozenset(
    """
    Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh AveragePool BatchNormalization BitwiseAnd
    BitwiseNot BitwiseOr BitwiseXor Cast CastLike Ceil Clip Concat Constant ConstantOfShape Conv
    ConvTranspose Cos Cosh CumSum DepthToSpace DequantizeLinear Div Einsum Elu Equal Erf Exp Expand
    EyeLike Flatten Floor Gather GatherElements GatherND Gelu Gemm GlobalAveragePool GlobalMaxPool
    Greater GreaterOrEqual GridSample GroupNormalization HardSigmoid HardSwish Identity
    InstanceNormalization IsInf IsNaN LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax
    MatMul Max MaxPool Mean Min Mish Mod Mul Neg Not OneHot Or PRelu Pad Pow QuantizeLinear
    RMSNormalization Range Reciprocal ReduceL1 ReduceL2 ReduceMax ReduceMean ReduceMin ReduceProd
    ReduceSum ReduceSumSquare Relu Reshape Resize Round ScatterElements ScatterND Selu Shape Sigmoid
    Sign Sin Sinh Size Slice Softmax Softplus Softsign SpaceToDepth Split Sqrt Squeeze Sub Sum Tan Tanh
    Tile TopK Transpose Trilu Unsqueeze Where Xor
    """.split()
)
_QUANTIZE_OPS = ("QuantizeLinear", "DequantizeLinear")
# ONNX's element types (float32, uint8, int8, int32, int64, bool), and their size in bytes.
_ITEM_BYTES = {1: 4, 2: 1, 3: 1, 6: 4, 7: 8, 9: 1}
_TYPED = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")
# ONNX's attribute types for plain data: numbers, strings, a tensor, and lists of numbers and strings.
_KINDS = {1: "f", 2: "i", 3: "s", 4: "t", 6: "floats", 7: "ints", 8: "strings"}


def checked_model(model: bytes, inputs: int, outputs: int) -> bytes:
    """Check a model, and return it serialized again for onnxruntime to read.

    Args:
        model: an ONNX model.
        inputs, outputs: how many inputs and outputs it must have.

    Raises:
        TargetError: the model is refused; the error says why.
    """
    if len(model) > _MOST_BYTES:
        raise _refusal("it is larger than 2 GiB, more than ONNX files can be")
    found = library("onnx").ModelProto()
    try:
        found.ParseFromString(model)
    except Exception as error:  # protobuf's errors have no common class
        raise _refusal(f"it is not ONNX: {one_line(error)}") from error
    found.DiscardUnknownFields()
    _check_texts(found)
    _check_head(found)
    graph = found.graph
    if (len(graph.input), len(graph.output)) != (inputs, outputs):
        raise _refusal(f"it does not have {inputs} inputs and {outputs} outputs")
    _check_graph(graph)
    del graph.value_info[:]  # untrusted shapes; onnxruntime infers them itself
    return found.SerializeToString()  # type: ignore[no-any-return]  # bytes; onnx is not typed


def _check_texts(message: Any) -> None:
    """Refuse a text that is not UTF-8, which onnxruntime can neither return nor mention in an error."""
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for part in [value] if hasattr(value, "ListFields") else value:
                _check_texts(part)
        elif field.type == field.TYPE_STRING or field.name in ("s", "strings"):
            for text in [value] if isinstance(value, (str, bytes)) else value:
                if isinstance(text, bytes) and not _is_utf8(text):
                    raise _refusal(f"it has a text that is not UTF-8: {text!r:.60}")


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _check_head(model: Any) -> None:
    imports = [(entry.domain, entry.version) for entry in model.opset_import]
    if [domain for domain, _ in imports] not in ([""], ["ai.onnx"]) or imports[0][1] not in _OPSETS:
        raise _refusal(f"it uses the op sets {imports!r:.100}")
    if model.ir_version not in _IR_VERSIONS:
        raise _refusal(f"its IR version is {model.ir_version}")
    graph = model.graph
    for holder, names in (
        (model, ("functions", "training_info", "configuration")),
        (graph, ("sparse_initializer", "quantization_annotation")),
    ):
        for name in names:
            if name in holder.DESCRIPTOR.fields_by_name and len(getattr(holder, name)):
                raise _refusal(f"it has {name}")
    del model.metadata_props[:]
    del graph.metadata_props[:]


def _check_graph(graph: Any) -> None:
    known = {value.name for value in graph.input}
    constants: dict[str, list[int]] = {}  # their shapes
    for tensor in graph.initializer:
        _check_tensor(tensor)
        known.add(tensor.name)
        constants[tensor.name] = list(tensor.dims)
    if len(known) != len(graph.input) + len(graph.initializer) or "" in known:
        raise _refusal("two tensors have the same name, or one has none")
    if len(graph.node) > _MOST_NODES:
        raise _refusal(f"it has {len(graph.node)} nodes")
    divisions = Divisions(graph)
    for node in graph.node:
        if node.domain not in ("", "ai.onnx") or node.op_type not in TYPES:
            raise _refusal(f"torchport never writes the op {node.op_type!r:.60} of {node.domain!r:.60}")
        if getattr(node, "overload", "") or len(getattr(node, "device_configurations", ())):
            raise _refusal(f"an op {node.op_type} sets an overload or device configurations")
        if not all(name in known for name in node.input if name):
            raise _refusal(f"an op {node.op_type} reads a tensor that is not defined before it")
        gives = [name for name in node.output if name]
        if not gives or len({*gives}) != len(gives) or known & {*gives}:
            raise _refusal(f"an op {node.op_type} has no output, or one whose name is already taken")
        known.update(gives)
        if len({attribute.name for attribute in node.attribute}) != len(node.attribute):
            raise _refusal(f"an op {node.op_type} has two attributes of the same name")
        if node.op_type == "Constant" and len(node.attribute) != 1:
            raise _refusal(f"an op Constant has {len(node.attribute)} attributes")
        for attribute in node.attribute:
            _check_attribute(node.op_type, attribute)
            if node.op_type == "Constant" and attribute.name == "value":
                constants[node.output[0]] = list(attribute.t.dims)
        if node.op_type in _QUANTIZE_OPS:
            _check_quantize_op(node, constants)
        if not divisions.allow(node):
            raise _refusal(f"an op {node.op_type} could divide an integer by 0 or -1")
        del node.metadata_props[:]
    if not all(value.name in known for value in graph.output):
        raise _refusal("one of its outputs is not defined")


def _check_attribute(op: str, attribute: Any) -> None:
    kind = _KINDS.get(attribute.type)
    fields = {descriptor.name for descriptor, _ in attribute.ListFields()}
    if kind is None or fields - {"name", "type", kind, "doc_string"}:
        raise _refusal(f"the attribute {attribute.name!r:.60} of {op} is not plain data")
    if kind == "t":
        _check_tensor(attribute.t)
    if attribute.name == "group" and (kind != "i" or attribute.i < 1):
        raise _refusal(f"an op {op} has {attribute.i} groups")


def _check_quantize_op(node: Any, constants: dict[str, list[int]]) -> None:
    """Refuse scales and zero points that are not constants, or whose number does not match the tensor."""
    given = {attribute.name: attribute.i for attribute in node.attribute}
    axis = given.pop("axis", 1)  # ONNX's default
    if len(node.input) not in (2, 3) or given not in ({}, {"saturate": 1}):
        raise _refusal(f"an op {node.op_type} has inputs or attributes that torchport never writes")
    source, *shapes = [constants.get(name) for name in node.input]
    by_channel = [dim for dim, size in enumerate(source or ()) if shapes[0] == [size]]
    if shapes[0] not in ([], [1]) and axis not in by_channel:
        raise _refusal(f"the scales of an op {node.op_type} are not constants, or not one per channel")
    if len(shapes) == 2 and shapes[1] != shapes[0]:
        raise _refusal(f"an op {node.op_type} has a different number of zero points than scales")


def _check_tensor(tensor: Any) -> None:
    """Refuse a constant with external data, or whose length does not match its shape."""
    size = _ITEM_BYTES.get(tensor.data_type)
    if size is None or tensor.data_location or len(tensor.external_data) or tensor.HasField("segment"):
        raise _refusal("a constant has an unsupported type, or lies in another file")
    dims = list(tensor.dims)
    if len(dims) > 32 or any(dim < 0 for dim in dims) or math.prod(dims) * size > _MOST_BYTES:
        raise _refusal(f"a constant has the shape {dims!r:.100}")
    if any(len(getattr(tensor, name)) for name in _TYPED):
        typed = sum(len(getattr(tensor, name)) for name in _TYPED)
        if tensor.HasField("raw_data") or typed != math.prod(dims) or len(tensor.string_data):
            raise _refusal("a constant's number of elements does not match its shape")
    elif len(tensor.raw_data) != math.prod(dims) * size:
        raise _refusal("a constant's number of bytes does not match its shape")


def _refusal(why: str) -> TargetError:
    return TargetError(
        f"the island's ONNX model is refused: {why}", where="onnxruntime", remedy="compile the model again"
    )
