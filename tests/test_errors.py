"""Error messages say what failed, where, and what to do."""

import pickle

import pytest

from torchport import errors
from torchport.errors import TorchportError, nearest, one_line


@pytest.mark.parametrize(
    ("where", "remedy", "text"),
    [
        ("", "", "it broke"),
        ("net", "", "net: it broke"),
        ("", "mend it", "it broke: mend it"),
        ("net, line 3", "mend it", "net, line 3: it broke: mend it"),
    ],
)
def test_the_text_of_an_error(where, remedy, text):
    error = TorchportError("it broke", where=where, remedy=remedy)
    assert str(error) == text
    assert error.to_json() == {
        "error": "TorchportError",
        "what": "it broke",
        "where": where,
        "remedy": remedy,
    }


def test_every_refusal_is_a_torchport_error():
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert len(kinds) > 5
    assert all(issubclass(kind, TorchportError) for kind in kinds)


@pytest.mark.parametrize(
    ("name", "known", "advice"),
    [
        ("opnvino", ["host", "openvino"], "did you mean 'openvino'?"),
        ("net", ["resnet18", "vit"], "did you mean 'resnet18'?"),
        ("zzz", ["host", "openvino"], "choose from host, openvino"),
        ("zzz", [f"n{i}" for i in range(20)], "choose from n0, n1, n10, n11, n12, n13, n14, n15, …"),
        ("zzz", [], "none are available"),
    ],
)
def test_an_unknown_name_gets_the_nearest(name, known, advice):
    assert nearest(name, known) == advice


def test_one_line_of_any_error():
    assert one_line(ValueError("no\nsuch thing")) == "ValueError: no"
    assert one_line(ValueError()) == "ValueError"
    assert one_line(TorchportError("a\nb", remedy="c")) == "a b: c"
    assert len(one_line(ValueError("x" * 1000))) < 400


def test_an_error_survives_a_process_boundary():
    error = errors.TargetError("no device", where="openvino", remedy="get one")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is errors.TargetError
    assert str(again) == "openvino: no device: get one"
