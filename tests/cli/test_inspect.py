"""`torchport inspect`, on files that `torchport compile -o` wrote."""

import pytest

from torchport.records import PackageSummary


@pytest.mark.parametrize(("name", "kind"), [("net.pt2", "torch.export archive"), ("net.pt", "TorchScript")])
def test_what_is_in_a_file(command, models, tmp_path, name, kind):
    path = tmp_path / name
    line = ("compile", f"{models}::load", "--target", "host", "--option", "keep_ops=aten.relu", "-o", path)
    assert command(*line).code == 1  # it is written all the same
    ran = command("inspect", path)
    assert ran.code == 0, ran.err
    for text in (
        kind,
        "on host",
        "float32[2, 4]",
        "torchport 0.",
        "keep_ops=['aten.relu']",
        "kept_by_option",
    ):
        assert text in ran.out
    found = PackageSummary.from_json(command("inspect", path, "--json").json)
    assert (found.format, found.target, found.bytes) == (name.rpartition(".")[2], "host", path.stat().st_size)
    assert found.programs[0].coverage.ops_remain == 2


def test_other_files_fail(command, models, tmp_path):
    ran = command("inspect", models)
    assert ran.code == 2
    assert "is no package" in ran.err


def test_a_name_that_says_nothing_is_refused_before_anything_is_compiled(command, models, tmp_path):
    ran = command("compile", f"{models}::load", "--target", "host", "-o", tmp_path / "net.onnx")
    assert ran.code == 2
    assert "ends in .pt2, or in .pt for TorchScript: call it net.pt2" in ran.err
