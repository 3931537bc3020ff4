"""The scripts in examples/ run, and print what they promise."""

import runpy

import pytest

PRINTS = {
    "analyze_llama.py": (
        "405.9 billion parameters",
        "3.45 PFLOPs",
        "1 PFLOP/s",
        "torch.nn.functional.linear",
    ),
    "compile_resnet.py": ("0 stay on the host", "2 tensors cross in 1 island", "torch: True", "(2, 1000)"),
    "write_resnet.py": ("classes, bit for bit equal to the model", "changed: ", "0.5"),
    "explain_bert.py": ("0 stay on the host", "100.0% of", "kept_by_option"),
}
# Not scripts; test_targets.py runs the target.
OTHERS = {"numpy_target.py"}


def test_every_example_is_run(root):
    assert {path.name for path in (root / "examples").glob("*.py")} == set(PRINTS) | OTHERS


@pytest.mark.parametrize("name", list(PRINTS))
def test_example_runs(root, name, capsys):
    runpy.run_path(str(root / "examples" / name), run_name="__main__")
    printed = capsys.readouterr().out
    for text in PRINTS[name]:
        assert text in printed
