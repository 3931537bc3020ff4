"""`torchport new-target`."""

from pathlib import Path


def test_the_project_is_written_and_listed(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ran = command("new-target", "my_chip")
    assert ran.code == 0
    assert "my_chip/my_chip_target.py" in ran.out
    assert "cd my_chip && pytest" in ran.out
    assert 'name = "my_chip"' in Path("my_chip/my_chip_target.py").read_text()


def test_json_lists_the_files(command, tmp_path):
    found = command("new-target", "my_chip", "-o", str(tmp_path / "new"), "--json").json
    assert found["directory"] == str(tmp_path / "new")
    assert all(Path(path).is_file() for path in found["files"])


def test_an_existing_name_is_refused_in_one_line(command, tmp_path):
    ran = command("new-target", "openvino", "-o", str(tmp_path / "new"))
    assert ran.code == 2
    assert "there is a target 'openvino' already" in " ".join(ran.err.split())
    assert not list(tmp_path.iterdir())
