"""Files of an untrusted directory: only regular ones, in real folders, of limited size."""

import os
import subprocess

import pytest

from torchport.errors import RecordError
from torchport.records import (
    list_all_files,
    list_files,
    read_json,
    read_plain_file,
    refuse_links,
)


@pytest.fixture
def stranger(tmp_path):
    """A directory with a regular file and with other kinds of entries, all with the same ending."""
    directory = tmp_path / "stranger"
    (directory / "deep").mkdir(parents=True)
    (directory / "a.json").write_text("{}")
    (directory / "deep" / "b.json").write_text("{}")
    (directory / "deep" / "c.txt").write_text("")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.json").write_text("{}")
    (directory / "link.json").symlink_to(tmp_path / "outside" / "secret.json")
    (directory / "lost.json").symlink_to(tmp_path / "nowhere")
    (directory / "round.json").symlink_to("round.json")
    (directory / "folder").symlink_to(tmp_path / "outside")
    os.mkfifo(directory / "fifo.json")
    return directory


def test_plain_files_are_found_and_the_others_named(stranger):
    found = list_all_files(stranger, ".json")
    assert found.files == (stranger / "a.json", stranger / "deep" / "b.json")
    refused = {error.where: error.what for error in found.refused}
    assert refused == {
        str(stranger / "fifo.json"): "is a FIFO, which is not read",
        **{
            str(stranger / name): "is a symbolic link, which is not followed"
            for name in ("folder", "link.json", "lost.json", "round.json")
        },
    }


def test_a_folder_that_is_a_link_has_no_files(stranger):
    found = list_files(stranger / "folder", ".json")
    assert found.files == ()
    assert "is a symbolic link" in found.refused[0].what
    assert not list_files(stranger / "absent", ".json")
    assert list_files(stranger / "deep", ".json").files == (stranger / "deep" / "b.json",)


def test_the_directory_itself_may_be_named_by_a_link(stranger, tmp_path):
    (tmp_path / "latest").symlink_to(stranger)
    assert tmp_path / "latest" / "a.json" in list_all_files(tmp_path / "latest", ".json").files


def test_folders_may_be_deeper_than_the_stack(tmp_path):
    here = os.open(tmp_path, os.O_RDONLY)
    try:
        for _ in range(1200):
            os.mkdir("d", dir_fd=here)
            below = os.open("d", os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = below
    finally:
        os.close(here)
    try:
        assert not list_all_files(tmp_path, ".json").files
    finally:  # pytest's own cleanup fails on folders this deep
        subprocess.run(["rm", "-rf", str(tmp_path / "d")], check=True)


def test_a_path_through_a_link_is_refused(stranger):
    refuse_links(stranger, stranger / "new" / "deeper" / "x.csv")
    refuse_links(stranger, stranger / "link.json")  # a write replaces the link itself, not its target
    with pytest.raises(RecordError, match="folder: is a symbolic link, which is not followed"):
        refuse_links(stranger, stranger / "folder" / "x.csv")
    with pytest.raises(RecordError, match=r"a\.json: is a regular file"):
        refuse_links(stranger, stranger / "a.json" / "x.csv")


def test_kinds_and_sizes_are_looked_at_first(stranger):
    assert read_plain_file(stranger / "a.json", 2) == b"{}"
    with pytest.raises(RecordError, match="its 2 bytes exceed the limit of 1"):
        read_plain_file(stranger / "a.json", 1)
    with pytest.raises(RecordError, match="is a FIFO, not a regular file"):
        read_plain_file(stranger / "fifo.json", 10)
    with pytest.raises(RecordError, match="is a device"):
        read_json(type(stranger)("/dev/zero"))
    with pytest.raises(RecordError, match="is a directory"):
        read_plain_file(stranger / "deep", 10)


def test_a_file_that_goes_while_a_folder_is_listed_is_passed_over(stranger, monkeypatch):
    class Gone:
        name = "gone.json"

        def stat(self, follow_symlinks=True):
            raise FileNotFoundError

    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda folder: [Gone(), *scandir(folder)])
    assert "gone.json" not in [path.name for path in list_files(stranger, ".json").files]
