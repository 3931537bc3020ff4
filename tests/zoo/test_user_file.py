"""Models and inputs from a user's own file."""

import textwrap

import pytest
import torch

from torchport.errors import ZooError
from torchport.zoo import load

NET = """
    import torch
    from torch import nn

    class Double(nn.Module):
        def forward(self, x, y=0):
            return x * 2 + y

    def net():
        return Double()
"""


def write(folder, body, name="model.py"):
    path = folder / name
    path.write_text(textwrap.dedent(body))
    return path


def refusal(*args, **kwargs):
    with pytest.raises(ZooError) as caught:
        load(*args, **kwargs)
    return str(caught.value)


@pytest.mark.parametrize(
    ("returned", "args", "kwargs"),
    [
        ("torch.ones(2)", 1, []),
        ("(torch.ones(2),)", 1, []),
        ("[torch.ones(2), torch.ones(2)]", 2, []),
        ("dict(x=torch.ones(2))", 0, ["x"]),
        ("((torch.ones(2),), dict(y=torch.ones(2)))", 1, ["y"]),
    ],
)
def test_inputs_come_in_every_usual_form(tmp_path, returned, args, kwargs):
    path = write(tmp_path, f"{NET}\n    def inputs():\n        return {returned}\n")
    model = load(f"{path}::net", inputs=f"{path}::inputs")
    assert len(model.args) == args
    assert list(model.kwargs) == kwargs
    two_or_three = 3.0 if len(model.args) + len(model.kwargs) == 2 else 2.0
    assert torch.equal(model.module(*model.args, **model.kwargs), torch.full((2,), two_or_three))


@pytest.mark.parametrize(
    "returned",
    [
        "Double(), (torch.ones(2),)",
        "Double(), torch.ones(2)",
        "Double(), (), {'x': torch.ones(2)}",
        "Model('mine', Double(), (torch.ones(2),))",
    ],
)
def test_a_loader_may_return_the_inputs_too(tmp_path, returned):
    path = write(
        tmp_path, f"from torchport.zoo import Model\n{textwrap.dedent(NET)}\ndef both(): return {returned}\n"
    )
    model = load(f"{path}::both")
    assert model.name == f"{path}::both"
    assert torch.equal(model.module(*model.args, **model.kwargs), torch.tensor([2.0, 2.0]))


def test_a_class_and_a_module_object_are_models(tmp_path):
    path = write(tmp_path, NET + "\n    ready = Double()\n    def inputs(): return torch.ones(1)\n")
    for name in ("Double", "ready"):
        model = load(f"{path}::{name}", inputs=f"{path}::inputs")
        assert model.module(*model.args).item() == 2


def test_the_module_is_in_evaluation_mode(tmp_path):
    path = write(tmp_path, "from torch import nn, ones\ndef net(): return nn.Dropout(0.9), ones(8)\n")
    model = load(f"{path}::net")
    assert torch.equal(model.module(*model.args), torch.ones(8))


def test_random_weights_repeat_and_the_callers_generator_is_left_alone(tmp_path):
    path = write(tmp_path, "import torch\ndef net(): return torch.nn.Linear(3, 3), torch.rand(1, 3)\n")
    torch.manual_seed(7)
    before = torch.get_rng_state()
    first, second = load(f"{path}::net"), load(f"{path}::net")
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first.module.weight, second.module.weight)
    assert torch.equal(first.args[0], second.args[0])


def test_files_next_to_it_can_be_imported_and_do_not_mix(tmp_path):
    for folder, factor in (("one", 3.0), ("two", 5.0)):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder, f"FACTOR = {factor}\n", "helper.py")
        write(
            tmp_path / folder,
            """
            import torch
            from helper import FACTOR
            class Net(torch.nn.Module):
                def forward(self, x): return x * FACTOR
            def net(): return Net(), torch.ones(1)
            """,
        )
    for folder, factor in (("one", 3.0), ("two", 5.0)):
        model = load(f"{tmp_path}/{folder}/model.py::net")
        assert model.module(*model.args).item() == factor


def test_a_file_that_changed_is_read_again(tmp_path):
    body = "import torch\ndef net(): return torch.nn.Linear(2, {}), torch.ones(1, 2)\n"
    path = write(tmp_path, body.format(3))
    assert load(f"{path}::net").module.out_features == 3
    write(tmp_path, body.format(44))
    assert load(f"{path}::net").module.out_features == 44


def test_a_missing_file_names_the_nearest(tmp_path):
    write(tmp_path, NET, "my_model.py")
    text = refusal(f"{tmp_path}/my_modle.py::net")
    assert text == f"{tmp_path}/my_modle.py: there is no such file: did you mean 'my_model.py'?"


def test_a_missing_function_names_the_nearest(tmp_path):
    path = write(tmp_path, NET)
    assert refusal(f"{path}::nett") == f"{path}: it has no function 'nett': did you mean 'net'?"


def test_a_name_without_a_function_says_the_form(tmp_path):
    path = write(tmp_path, NET)
    assert (
        refusal(str(path))
        == f"{path}: the name has no function: write FILE.py::FUNCTION, such as {path}::load"
    )


def test_no_inputs_says_how_to_give_them(tmp_path):
    path = write(tmp_path, NET)
    text = refusal(f"{path}::net")
    assert text.startswith(f"{path}::net: no inputs given: ")
    assert "--inputs" in text


def test_the_error_for_a_loader_that_returns_no_module_names_its_result(tmp_path):
    path = write(tmp_path, "def net(): return 3, 4\ndef nothing(): pass\n")
    assert "it returned a tuple of int, int, not a model" in refusal(f"{path}::net")
    assert "it returned None, not a model" in refusal(f"{path}::nothing")


def test_inputs_of_another_type_are_refused(tmp_path):
    path = write(tmp_path, NET + "\n    def inputs(): return 3\n")
    text = refusal(f"{path}::net", inputs=f"{path}::inputs")
    assert text.startswith(f"{path}::inputs: the inputs are of type int: return a tensor")


def test_a_loader_that_raises_is_chained_and_located(tmp_path):
    path = write(
        tmp_path,
        """
        def deeper():
            raise KeyError("conv")
        def net():
            return deeper()
        """,
    )
    with pytest.raises(ZooError) as caught:
        load(f"{path}::net")
    assert str(caught.value) == f"{path}:3: net() raised KeyError: 'conv'"
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize(
    ("body", "line", "says"),
    [
        ("import torch\ndef broken(:\n    pass\n", 2, "importing it raised SyntaxError"),
        ("import torch\nimport there_is_no_such_thing\n", 2, "importing it raised ModuleNotFoundError"),
        ("\n\nraise SystemExit(3)\n", 3, "importing it raised SystemExit: 3"),
    ],
)
def test_a_file_that_does_not_import_is_located(tmp_path, body, line, says):
    path = write(tmp_path, body)
    assert refusal(f"{path}::net").startswith(f"{path}:{line}: {says}")


def test_a_file_sets_its_own_batch(tmp_path):
    path = write(tmp_path, NET)
    assert "the batch size of a model from a file cannot be set" in refusal(f"{path}::net", batch=2)
