"""Options: given as values or as strings from a command line, and rejected by name."""

import pytest

from torchport.errors import TargetError
from torchport.targets import find


@pytest.mark.parametrize(
    ("given", "name", "value"),
    [
        ({"min_island_size": 3}, "min_island_size", 3),
        ({"min_island_size": "3"}, "min_island_size", 3),
        ({"cache": False}, "cache", False),
        ({"cache": "no"}, "cache", False),
        ({"check": "True"}, "check", True),
        ({"keep_ops": ["aten.relu"]}, "keep_ops", ("aten.relu",)),
        ({"keep_ops": "aten.relu, aten.tanh.default"}, "keep_ops", ("aten.relu", "aten.tanh.default")),
        ({"keep_modules": ()}, "keep_modules", ()),
    ],
)
def test_options_are_read(given, name, value, target):
    assert getattr(find(target).make_options(given), name) == value


def test_openvino_s_own_options_are_read():
    options = find("openvino").make_options(
        {"device": "GPU.1", "precision": "bfloat16", "threads": "2", "config": {"NUM_STREAMS": 1}}
    )
    assert (options.device, options.precision, options.threads) == ("GPU.1", "bfloat16", 2)
    assert options.config == {"NUM_STREAMS": 1}


def test_none_gives_the_defaults(target):
    assert find(target).make_options(None) == find(target).make_options({})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"keep_op": ()}, "openvino: the target has no option 'keep_op': did you mean 'keep_ops' or"),
        ({"presicion": "float32"}, "the target has no option 'presicion': did you mean 'precision'?"),
        ({"precision": "bfloat"}, "openvino: unknown precision 'bfloat': did you mean 'bfloat16' or"),
        ({"precision": 16}, "the option 'precision' takes a string, not 16"),
        ({"threads": "many"}, "the option 'threads' takes an integer, not 'many'"),
        ({"threads": "²"}, "the option 'threads' takes an integer, not '²'"),
        ({"threads": "--5"}, "the option 'threads' takes an integer, not '--5'"),
        ({"threads": True}, "the option 'threads' takes an integer, not True"),
        ({"cache": 1}, "the option 'cache' takes true or false, not 1"),
        ({"keep_ops": 3}, "the option 'keep_ops' takes a list of strings, not 3"),
        ({"config": "x"}, "the option 'config' takes a dict, not 'x'"),
        ({"keep_ops": ["aten.sofmax.int"]}, "torch has no such op: did you mean 'aten.softmax.int'"),
        ({"keep_ops": ["aten.tanh", "relu"]}, "the option keep_ops names 'relu', and torch has no such op"),
    ],
)
def test_what_is_no_option_is_refused_by_name(given, message):
    with pytest.raises(TargetError) as caught:
        find("openvino").make_options(given)
    assert message in str(caught.value)


def test_a_target_has_only_its_own_options():
    with pytest.raises(TargetError, match="host: the target has no option 'device'"):
        find("host").make_options({"device": "CPU"})


def test_options_survive_json(target):
    found = find(target)
    options = found.make_options({"keep_ops": ["aten.relu"], "min_island_size": 2})
    assert found.make_options(found.options_json(options)) == options
