"""Loads hostile islands in a separate process: `hostile_child.py KIND FIRST LAST FOLDER`; prints problems.

Each island is loaded and run as in a compiled model. A TorchportError or a result is correct. Everything else
is printed: other errors, and any attempt to run a command or open a connection.
"""

from __future__ import annotations

import json
import random
import resource
import signal
import sys
from pathlib import Path

import numpy
import torch

from conformance.mutations import mutate_json, mutate_xml
from targets.ttnn.hostile import built, load_and_run, program_json, with_program
from torchport import targets
from torchport.compiler import cache
from torchport.errors import TorchportError
from torchport.targets import Artifact
from torchport.targets.openvino.format import pack
from torchport.targets.openvino.ir_check import TYPES
from torchport.targets.target import OutOfRange

SECONDS = 60  # for one island
MEMORY = 24 * 2**30  # of address space, most of which torch and OpenVINO reserve

WATCHED = ("os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "socket.connect", "os.putenv")
ran: list[str] = []


def watch(event: str, args: object) -> None:
    """Record events that a file must never cause."""
    if event in WATCHED:
        ran.append(f"{event} {args!r}")


def mutated(kind: str, artifact: Artifact, chance: random.Random) -> Artifact:
    """Return an artefact that was tampered with, with corrected lengths."""
    if kind == "ttnn" and chance.random() < 0.9:
        return with_program(artifact, mutate_json(program_json(artifact), chance))
    if kind == "openvino" and chance.random() < 0.8:
        return _with_xml(artifact, chance)
    if chance.random() < 0.7:
        properties = mutate_json(artifact.properties, chance)
        return Artifact(artifact.payload, properties if isinstance(properties, dict) else {})
    payload = artifact.payload.copy()
    for _ in range(chance.choice((1, 4, 100))):
        payload[chance.randrange(payload.size)] = chance.randrange(256)
    return Artifact(
        payload[: chance.choice((payload.size, chance.randrange(1, payload.size)))], artifact.properties
    )


def _with_xml(artifact: Artifact, chance: random.Random) -> Artifact:
    at = artifact.properties["xml_at"]
    text = targets.find("openvino").readable(artifact)["model.xml"].decode()
    changed = mutate_xml(text, sorted(TYPES), chance).encode()
    packed = pack(changed)
    payload = numpy.concatenate([artifact.payload[:at], packed])
    sizes = {"xml_bytes": int(packed.size), "xml_size": len(changed)}
    return Artifact(payload, {**artifact.properties, **sizes})


def through_cache(artifact: Artifact) -> Artifact | None:
    """Return the artefact after writing it to the cache and reading it back."""
    cache.write("ab12", artifact)
    return cache.read("ab12")


def main(kind: str, first: int, last: int, folder: Path) -> None:
    """Test the islands of a range of seeds."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    target = "openvino" if kind == "openvino" else "ttnn"
    artifact, record, x, expected = built(target)
    torch.testing.assert_close(load_and_run(artifact, record, x), expected, rtol=5e-2, atol=5e-2)
    sys.addaudithook(watch)
    taken = 0
    for seed in range(first, last):
        (folder / "seed").write_text(str(seed))
        chance = random.Random(seed)
        signal.alarm(SECONDS)  # ends the process if it hangs
        try:
            hostile: Artifact | None = mutated(target, artifact, chance)
            if kind == "cache":
                hostile = through_cache(hostile)
            if hostile is not None:
                load_and_run(hostile, record, x)
                taken += 1
        except (TorchportError, OutOfRange):
            pass
        except Exception as error:  # noqa: BLE001  # any other exception is a finding
            print(json.dumps({"seed": seed, "error": f"{type(error).__name__}: {error}"[:500]}))
        if ran:
            print(json.dumps({"seed": seed, "error": f"ran {ran}"[:500]}))
            ran.clear()
    signal.alarm(0)
    print(f"done: {taken} of {last - first} were still whole enough to run")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
