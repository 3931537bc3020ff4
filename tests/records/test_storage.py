"""Records written to and read from files."""

import os
import threading
import time

import pytest

from torchport.errors import RecordError
from torchport.records import (
    BenchRecord,
    atomic_write,
    file_name,
    read_record,
    write_record,
    write_text,
    write_texts,
)

RECORD = BenchRecord("torchvision:resnet18", "host", "ok", pcc=float("inf"), error="a “b” \n é")


def test_a_record_survives_its_file(tmp_path):
    path = tmp_path / "deep" / "down" / "record.json"
    write_record(RECORD, path)
    assert read_record(path, BenchRecord) == RECORD
    assert os.listdir(path.parent) == ["record.json"]


def test_a_write_that_fails_leaves_the_old_file_whole(tmp_path, monkeypatch):
    path = tmp_path / "record.json"
    write_record(RECORD, path)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(RecordError, match=r"record\.json: cannot be written: No space left"):
        write_record(BenchRecord("other", "host", "ok"), path)
    assert read_record(path, BenchRecord) == RECORD
    assert os.listdir(tmp_path) == ["record.json"]


def test_a_reader_never_sees_half_a_record(tmp_path):
    path = tmp_path / "record.json"
    long = BenchRecord("m", "host", "failed", error="x" * 200_000)
    write_record(long, path)
    stop = threading.Event()

    def write():
        while not stop.is_set():
            write_record(long, path)

    writers = [threading.Thread(target=write) for _ in range(2)]
    for writer in writers:
        writer.start()
    try:
        for _ in range(50):
            assert read_record(path, BenchRecord) == long
    finally:
        stop.set()
        for writer in writers:
            writer.join()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"schema": "torchport.be', "is not valid JSON"),
        ("", "is not valid JSON"),
        ("[]", "expected a JSON object, got list"),
        ('{"schema": "torchport.bench/9"}', "the schema is 'torchport.bench/9'"),
        ('{"schema": "torchport.bench/1", "model": 3}', "BenchRecord.model: expected str, got 3"),
    ],
)
def test_a_bad_file_is_named(tmp_path, content, message):
    path = tmp_path / "bad.json"
    path.write_text(content)
    with pytest.raises(RecordError) as caught:
        read_record(path, BenchRecord)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)


def test_a_file_that_is_not_there_or_not_text_is_named(tmp_path):
    with pytest.raises(RecordError, match=r"none\.json: cannot be read: No such file"):
        read_record(tmp_path / "none.json", BenchRecord)
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RecordError, match=r"binary\.json: is not valid JSON"):
        read_record(tmp_path / "binary.json", BenchRecord)


def test_text_is_written_as_it_is(tmp_path):
    write_text("a\nb\r\n", tmp_path / "text")
    assert (tmp_path / "text").read_bytes() == b"a\nb\r\n"


def test_file_names_are_readable_and_distinct():
    name = file_name("torchvision:resnet18", "openvino")
    assert name.startswith("torchvision-resnet18-openvino-")
    assert name == file_name("torchvision:resnet18", "openvino")
    assert (
        len({file_name("a/b", "t"), file_name("a:b", "t"), file_name("a", "b-t"), file_name("a-b", "t")}) == 4
    )


@pytest.mark.parametrize("odd", ["../../etc/passwd", ".hidden", "x" * 500, "C:\\dir\\m.py::f", "模型"])
def test_any_name_gives_a_plain_file_name(odd, tmp_path):
    name = file_name(odd, "host")
    assert "/" not in name
    assert "\\" not in name
    assert not name.startswith(".")
    write_record(RECORD, tmp_path / name)
    assert os.listdir(tmp_path) == [name]


def test_several_files_are_written_all_or_none(tmp_path):
    (tmp_path / "taken").mkdir()
    (tmp_path / "old").write_text("before")
    with pytest.raises(RecordError, match="taken"):
        write_texts({tmp_path / "old": "a", tmp_path / "new" / "deep": "b", tmp_path / "taken": "c"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old", "taken"]
    assert (tmp_path / "old").read_text() == "before"
    write_texts({tmp_path / "old": "a", tmp_path / "new" / "deep": "b"})
    assert (tmp_path / "old").read_text() == "a"
    assert (tmp_path / "new" / "deep").read_text() == "b"


def files_below(folder):
    return {
        str(path.relative_to(folder)): path.read_text() if path.is_file() else None
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize("has_links", [True, False], ids=["", "no hard links"])
@pytest.mark.parametrize("failing", ["a", "b", "new/c"])
def test_a_rename_that_fails_undoes_the_others(tmp_path, monkeypatch, failing, has_links):
    """As where a file of another user is in a folder in which only a file's owner may replace it."""
    (tmp_path / "a").write_text("old a")
    (tmp_path / "b").symlink_to("a")
    (tmp_path / "new").mkdir()
    before = files_below(tmp_path)
    replace = os.replace

    def refused(source, target):
        if target == tmp_path / failing:
            raise PermissionError(1, "Operation not permitted")
        replace(source, target)

    def no_link(*args, **kwargs):
        raise PermissionError(1, "Operation not permitted")

    texts = {tmp_path / name: "text" for name in ("a", "b", "new/c", "other/d")}
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refused)
        if not has_links:
            patch.setattr(os, "link", no_link)
        with pytest.raises(RecordError, match=f"{failing}: cannot be written: Operation not permitted"):
            write_texts(texts)
    assert files_below(tmp_path) == before
    assert (tmp_path / "b").is_symlink()
    write_texts(texts)
    assert {str(path.relative_to(tmp_path)): path.read_text() for path in texts} == dict.fromkeys(
        ("a", "b", "new/c", "other/d"), "text"
    )
    assert len(files_below(tmp_path)) == 6


def test_a_disk_that_turns_out_to_be_full_keeps_every_file(tmp_path, monkeypatch):
    (tmp_path / "a").write_text("old")
    calls = []

    def full(file):
        calls.append(file)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RecordError, match="No space left"):
        write_texts({tmp_path / "a": "a", tmp_path / "b": "b"})
    assert files_below(tmp_path) == {"a": "old"}


def test_a_file_below_another_file_is_one_refusal(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match="cannot be written"), atomic_write(tmp_path / "file" / "inner"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_what_a_killed_process_left_is_removed_after_an_hour(tmp_path):
    path = tmp_path / "net[1].pt2"
    left = {path.with_name(f".{path.name}.{number:032x}.tmp"): age for number, age in enumerate((4000, 60))}
    others = [tmp_path / f".other.pt2.{0:032x}.tmp", path.with_name(f".{path.name}.mine.tmp")]
    for file, age in {**left, **dict.fromkeys(others, 4000)}.items():
        file.write_bytes(b"half")
        os.utime(file, (time.time() - age,) * 2)
    with atomic_write(path) as temporary:
        temporary.write_bytes(b"whole")
    assert [file.exists() for file in left] == [False, True]
    assert all(file.exists() for file in others)
    assert path.read_bytes() == b"whole"
