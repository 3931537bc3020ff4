"""Islands from untrusted files: the ONNX model is checked before onnxruntime reads it."""

import numpy
import onnx
import pytest
import torch
from onnx import helper

from targets.ttnn.hostile import built, load_and_run
from torchport.errors import TargetError
from torchport.targets import Artifact
from torchport.targets.onnxruntime.integer_divisions import _OTHER_TYPES
from torchport.targets.onnxruntime.load import make_session, session_options
from torchport.targets.onnxruntime.onnx_check import _OPSETS, TYPES, checked_model
from torchport.targets.onnxruntime.options import OnnxRuntimeOptions


@pytest.fixture(scope="module")
def island():
    return built("onnxruntime")


def model_of(artifact) -> onnx.ModelProto:
    return onnx.ModelProto.FromString(artifact.payload.tobytes())


def first_weight(model: onnx.ModelProto) -> onnx.TensorProto:
    return max(model.graph.initializer, key=lambda tensor: len(tensor.raw_data))


def external(model):
    tensor = first_weight(model)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/passwd")
    tensor.ClearField("raw_data")


def external_without_mark(model):
    first_weight(model).external_data.add(key="location", value="/etc/passwd")


def cut_off(model):
    tensor = first_weight(model)
    tensor.raw_data = tensor.raw_data[:-4]


def too_large(model):
    first_weight(model).dims[:] = [2**40, 2**40]


def negative(model):
    first_weight(model).dims[:] = [-1, -1]


def of_texts(model):
    tensor = first_weight(model)
    tensor.CopyFrom(helper.make_tensor(tensor.name, onnx.TensorProto.STRING, [1], [b"x"]))


def custom_op(model):
    model.graph.node[0].domain = "com.stranger"


def other_domain(model):
    model.opset_import.add(domain="com.microsoft", version=1)


def old_opset(model):
    model.opset_import[0].version = 1


def function(model):
    model.functions.add(name="f", domain="")


def loop(model):
    node = model.graph.node[0]
    node.op_type = "If"
    node.attribute.append(helper.make_attribute("then_branch", onnx.GraphProto(name="g")))


def graph_in_attribute(model):
    model.graph.node[0].attribute.append(helper.make_attribute("kernel", onnx.GraphProto(name="g")))


def random_op(model):
    model.graph.node[0].op_type = "RandomNormalLike"


def from_nowhere(model):
    model.graph.node[0].input[0] = "nothing"


def given_twice(model):
    model.graph.node[1].output[0] = model.graph.node[0].output[0]


def other_output(model):
    model.graph.output[0].name = "nothing"


def another_input(model):
    model.graph.input.append(helper.make_tensor_value_info("more", onnx.TensorProto.FLOAT, [1]))


def other_shape(model):
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2


@pytest.mark.parametrize(
    "change",
    [
        external, external_without_mark, cut_off, too_large, negative, of_texts, custom_op, other_domain,
        old_opset, function, loop, graph_in_attribute, random_op, from_nowhere, given_twice, other_output,
        another_input, other_shape,
    ],
)  # fmt: skip
def test_what_no_build_writes_is_refused(island, change):
    artifact, record, x, _ = island
    model = model_of(artifact)
    change(model)
    payload = numpy.frombuffer(bytearray(model.SerializeToString()), dtype=numpy.uint8)
    with pytest.raises(TargetError):
        load_and_run(Artifact(payload, artifact.properties), record, x)


@pytest.mark.parametrize("payload", [b"", b"\xff" * 64, b"PK\x03\x04"])
def test_what_is_no_onnx_is_refused(island, payload):
    artifact, record, x, _ = island
    data = numpy.frombuffer(bytearray(payload), dtype=numpy.uint8)
    with pytest.raises(TargetError):
        load_and_run(Artifact(data, artifact.properties), record, x)


@pytest.mark.parametrize(
    "change",
    [
        {"sums": ["else"]}, {"sums": []}, {"sums": None}, {"finite_inputs": [7]},
        {"input_ranges": {"0": [0, 1]}},
        {"input_ranges": []},
    ],
)  # fmt: skip
def test_properties_that_no_build_writes_are_refused(island, change):
    artifact, record, x, _ = island
    with pytest.raises(TargetError):
        load_and_run(Artifact(artifact.payload, {**artifact.properties, **change}), record, x)


def test_the_island_itself_runs(island):
    artifact, record, x, expected = island
    torch.testing.assert_close(load_and_run(artifact, record, x), expected)


def constant(name, values, dtype=numpy.int64):
    return onnx.numpy_helper.from_array(numpy.array(values, dtype=dtype), name)


def check(nodes, *constants):
    """Check a model of integers `x`, with the result `y`."""
    types = onnx.TensorProto
    graph = helper.make_graph(
        nodes, "graph",
        [helper.make_tensor_value_info("x", types.INT64, [4])],
        [helper.make_tensor_value_info("y", types.INT64, [4])],
        [constant("lowest", [-(2**63)] * 4), *constants],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    checked_model(model.SerializeToString(), 1, 1)


NODE = helper.make_node
DIVISORS = {
    "-1": [constant("d", -1)],
    "0": [constant("d", [3, 0, 3, 3])],
    "an input": [NODE("Identity", ["x"], ["d"])],
    "a computed constant": [constant("one", 1), constant("two", 2), NODE("Sub", ["one", "two"], ["d"])],
    "clamped to 0": [constant("low", 0), NODE("Clip", ["x", "low"], ["d"])],
    "clamped to -1": [constant("high", -1), NODE("Clip", ["x", "", "high"], ["d"])],
    "clamped to less than its limit": [
        constant("low", 1), constant("high", -1), NODE("Clip", ["x", "low", "high"], ["d"])
    ],
    "clamped by an input": [NODE("Clip", ["x", "x"], ["d"])],
    "nothing clamped": [NODE("Clip", [], ["d"])],
    "two constants": [
        NODE("Constant", [], ["d"], value=constant("", 3), value_int=-1),
    ],
    "a result that passes for a float": [
        constant("f", [1, 2], numpy.float32), NODE("Split", ["f"], ["", "g"]), NODE("Abs", ["x"], ["d"])
    ],
    "the larger one of 0": [constant("low", 0), NODE("Max", ["x", "low"], ["d"])],
    "the smaller one of -1": [constant("high", [-2, -2, -2, -1]), NODE("Min", ["x", "high"], ["d"])],
    "the smaller one of 1": [constant("high", 1), NODE("Min", ["x", "high"], ["d"])],
}  # fmt: skip
SAFE_DIVISORS = {
    "3": [constant("d", 3)],
    "-3": [NODE("Constant", [], ["d"], value=constant("", -3))],
    "clamped to 1": [constant("low", 1), NODE("Clip", ["x", "low"], ["d"])],
    "clamped to -2": [constant("high", -2), NODE("Clip", ["x", "", "high"], ["d"])],
    "the larger one of 1": [constant("low", 1), NODE("Max", ["low", "x"], ["d"])],
    "the smaller one of -2": [constant("high", -2), NODE("Min", ["x", "high"], ["d"])],
}


def divided(op, parts):
    nodes = [part for part in parts if isinstance(part, onnx.NodeProto)]
    constants = [part for part in parts if isinstance(part, onnx.TensorProto)]
    check([*nodes, NODE(op, ["lowest", "d"], ["y"])], *constants)


@pytest.mark.parametrize("divisor", DIVISORS)
@pytest.mark.parametrize("op", ["Div", "Mod"])
def test_an_integer_division_that_could_trap_is_refused(op, divisor):
    with pytest.raises(TargetError):
        divided(op, DIVISORS[divisor])


@pytest.mark.parametrize("divisor", SAFE_DIVISORS)
@pytest.mark.parametrize("op", ["Div", "Mod"])
def test_other_integer_divisions_are_permitted(op, divisor):
    divided(op, SAFE_DIVISORS[divisor])


def test_floats_may_be_divided_by_anything():
    nodes = [
        NODE("Cast", ["x"], ["f"], to=onnx.TensorProto.FLOAT),
        NODE("Exp", ["f"], ["e"]),
        NODE("Div", ["e", "f"], ["q"]),
        NODE("Mod", ["q", "f"], ["m"], fmod=1),
        NODE("Cast", ["m"], ["y"], to=onnx.TensorProto.INT64),
    ]
    check(nodes)


@pytest.mark.parametrize("opset", _OPSETS)
def test_element_types_are_followed_as_onnx_defines_them(opset):
    """The first output has the type of the first input, or of the one that the table names."""
    assert _OTHER_TYPES.keys() <= TYPES
    for op in TYPES:
        try:
            schema = onnx.defs.get_schema(op, opset)
        except onnx.defs.SchemaError:  # a newer op
            continue
        place, given = _OTHER_TYPES.get(op, 0), schema.outputs[0].type_str
        if op == "DequantizeLinear" and opset > 22:
            assert "output_dtype" in schema.attributes  # which is refused
        elif place is not None and op != "DequantizeLinear":
            assert schema.inputs[place].type_str == given, op


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize("groups", [0, -1, [0]])
def test_fewer_groups_than_one_are_refused(op, groups):
    node = NODE(op, ["x", "lowest"], ["y"], group=groups)
    with pytest.raises(TargetError, match="groups"):
        check([node])


def test_two_attributes_of_one_name_are_refused():
    node = NODE("Cast", ["x"], ["y"], to=onnx.TensorProto.FLOAT)
    node.attribute.append(helper.make_attribute("to", onnx.TensorProto.INT64))
    with pytest.raises(TargetError, match="same name"):
        check([node])


def text_attribute(model):
    model.graph.node[0].attribute.append(helper.make_attribute("mode", "@@"))


def attribute_name(model):
    model.graph.node[0].attribute.append(helper.make_attribute("@@", 1))


def input_name(model):
    model.graph.input[0].name = "@@"


@pytest.mark.parametrize("change", [text_attribute, attribute_name, input_name])
def test_texts_that_are_not_utf8(island, change, capfd):
    artifact, record, x, _ = island
    model = model_of(artifact)
    change(model)
    content = model.SerializeToString().replace(b"@@", b"\xff\xfe")
    payload = numpy.frombuffer(bytearray(content), dtype=numpy.uint8)
    with pytest.raises(TargetError, match="it has a text that is not UTF-8"):
        load_and_run(Artifact(payload, artifact.properties), record, x)


def test_onnxruntime_announces_no_other_provider(island, capfd):
    model = model_of(island[0])
    attribute_name(model)
    content = model.SerializeToString().replace(b"@@", b"\xff\xfe")
    with pytest.raises(UnicodeDecodeError):  # the message names the attribute
        make_session(content, session_options(OnnxRuntimeOptions()), OnnxRuntimeOptions())
    assert capfd.readouterr().out == ""
