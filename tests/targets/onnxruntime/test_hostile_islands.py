"""Islands from untrusted files: the ONNX model is checked before onnxruntime reads it."""

import numpy
import onnx
import pytest
import torch
from onnx import helper

from targets.ttnn.hostile import built, load_and_run
from torchport.errors import TargetError
from torchport.targets import Artifact


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
