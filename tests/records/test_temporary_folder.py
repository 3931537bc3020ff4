"""Temporary folders are removed, even those of a process that was killed."""

import os
import subprocess
import sys
import tempfile

import pytest

from torchport.records import temporary_folder


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def folders(temporary):
    return sorted(path.name for path in temporary.iterdir())


def test_a_folder_is_there_as_long_as_it_is_needed(temporary):
    with temporary_folder("test") as folder:
        (folder / "x").mkdir()
        assert folder.parent == temporary
        assert folder.stat().st_mode & 0o777 == 0o700
    assert folders(temporary) == []
    with pytest.raises(ValueError, match="odd"), temporary_folder("test"):
        raise ValueError("odd")
    assert folders(temporary) == []


def test_what_a_killed_process_left_is_removed_and_what_others_hold_is_not(temporary):
    code = (
        "import os, signal\nfrom torchport.records import temporary_folder\n"
        "with temporary_folder('killed') as folder:\n    (folder / 'x').write_text('')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)"
    )
    with temporary_folder("held") as held:
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
        assert len(folders(temporary)) == 2
        with temporary_folder("next") as folder:
            assert folders(temporary) == sorted([held.name, folder.name])


def test_what_is_not_ours_is_left(temporary, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    (outside / ".lock").write_text("")
    (temporary / "torchport-link").symlink_to(outside)
    (temporary / "torchport-file").write_text("")
    (temporary / "torchport-young").mkdir()
    (temporary / "other").mkdir()
    os.mkfifo(temporary / "torchport-fifo")
    before = folders(temporary)
    with temporary_folder("test"):
        pass
    assert folders(temporary) == before
    assert (outside / ".lock").exists()
