"""Crafts packages as an attacker would: with arbitrary changes, and every checksum corrected."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

from torchport.records import digest_of

Change = Callable[[dict], None]


def read_records(path: Path) -> dict[str, bytes]:
    """Return the records of an archive by name, without the archive's root folder."""
    with zipfile.ZipFile(path) as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def write_records(records: Mapping[str, bytes], path: Path, method: int = zipfile.ZIP_STORED) -> Path:
    """Write an archive of these records."""
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in records.items():
            archive.writestr(f"archive/{name}", content)
    return path


def change_package(path: Path, target: Path, change: Change, method: int = zipfile.ZIP_STORED) -> Path:
    """Write the package with a changed `torchport.json`."""
    records = read_records(path)
    data = json.loads(records["extra/torchport.json"])
    change(data)
    records["extra/torchport.json"] = json.dumps(data).encode()
    return write_records(records, target, method)


def island_calls(data: dict) -> list[dict]:
    """Return the island calls in a package."""
    calls = [call for program in data["programs"] for call in program["graph"]["calls"]]
    return [call for call in calls if call["op"] == "torchport.island.default"]


def change_meta(call: dict, change: Change) -> None:
    """Change an island's metadata, which is a string in its call."""
    meta = json.loads(call["args"][1])
    change(meta)
    call["args"][1] = json.dumps(meta, sort_keys=True)


def change_host_program(path: Path, target: Path, change: Change) -> Path:
    """Write the package with a changed program in its first island (target `host`), and correct digests."""
    records = read_records(path)
    data = json.loads(records["extra/torchport.json"])
    program = data["programs"][0]
    call = island_calls(data)[0]
    name = program["graph"]["tensors"][call["args"][0]["value"] - program["graph"]["inputs"]]
    model, _, tensor = program["tensors"][name].partition("/")
    table = json.loads(records[f"data/weights/{model}_weights_config.json"])
    record = f"data/weights/{table['config'][f'program.{tensor}']['path_name']}"
    payload, meta = records[record], json.loads(call["args"][1])
    size = meta["properties"]["program_bytes"]
    inside = json.loads(payload[:size])
    change(inside)
    text = json.dumps(inside).encode()
    text += b" " * (-len(text) % 8)
    records[record] = text + payload[size:]
    digest = digest_of(memoryview(records[record]))

    def repair(meta: dict) -> None:
        meta["digest"] = digest
        meta["properties"]["program_bytes"] = len(text)

    change_meta(call, repair)
    data["tensors"][program["tensors"][name]].update(shape=[len(records[record])], digest=digest)
    records["extra/torchport.json"] = json.dumps(data).encode()
    return write_records(records, target)
