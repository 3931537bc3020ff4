"""Mutates a survey's files and reports the survey, case after case, in a monitored process.

python fuzz.py DIRECTORY KIND FIRST COUNT
"""

import io
import json
import random
import signal
import sys
from pathlib import Path

from rich.console import Console

from torchport.cli.main import run
from torchport.cli.output import Output

SECONDS = 60
WORDS = [
    "null",
    "-1",
    "1e400",
    "NaN",
    "[]",
    "{}",
    '"\\ud800"',
    '"\\u001b[2J"',
    "[" * 100,
    "true",
    "9" * 400,
    '""',
]


def mutate_bytes(content: bytes, draw: random.Random) -> bytes:
    """Change bytes as a bad disk or an attacker would: flip, cut, insert, duplicate, swap, fill."""
    data = bytearray(content)
    for _ in range(draw.choice([1, 1, 1, 2, 4, 16])):
        place = draw.randrange(len(data)) if data else 0
        length = draw.choice([1, 1, 2, 4, 8, 64])
        kind = draw.randrange(7)
        if kind == 0 and data:
            data[place] ^= 1 << draw.randrange(8)
        elif kind == 1:
            del data[place : place + length]
        elif kind == 2:
            data[place:place] = draw.randbytes(length)
        elif kind == 3:
            data[place:place] = data[place : place + length]
        elif kind == 4:
            data[place : place + length] = bytes([draw.choice([0, 0x7F, 0x80, 0xFF])]) * length
        elif kind == 5 and len(data) > 64:  # a footer's own numbers
            data[-draw.randrange(1, 64)] = draw.randrange(256)
        elif kind == 6 and draw.random() < 0.2:
            del data[place:]
    return bytes(data)


def mutate_json(content: bytes, draw: random.Random) -> bytes:
    """Replace one of a record's values."""
    record = json.loads(content)
    name = draw.choice(list(record))
    text = json.dumps(record | {name: "\0"})
    if draw.random() < 0.2:
        del record[name]
        return json.dumps(record).encode()
    return text.replace('"\\u0000"', draw.choice(WORDS), 1).encode()


def report(directory: Path) -> str:
    """Report a directory in every format; return the outcome."""
    out, err = io.StringIO(), io.StringIO()
    output = Output(Console(file=out, width=200), Console(file=err, width=200), debug=False)
    page, table = directory / "index.html", directory / "results.csv"
    code = run(["report", str(directory), "--html", str(page), "--csv", str(table), "--no-plots"], output)
    asked = run(["report", str(directory), "--sql", "SELECT count(*), max(model) FROM ops"], output)
    text = out.getvalue() + err.getvalue()
    assert {code, asked} <= {0, 1, 2}
    assert "--debug" not in text, f"unexpected: {err.getvalue()}"
    assert not [sign for sign in "\x1b\x9b\r\ud800" if sign in text]
    return f"{code}{asked}"


def main() -> None:
    directory, kind, first, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    pristine = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    endings = {"parquet": ".parquet", "json": ".json", "value": ".json"}
    candidates = sorted(path for path in pristine if path.suffix == endings[kind])
    results: dict[str, int] = {}
    for case in range(first, first + count):
        draw = random.Random(f"{kind} {case}")
        path = draw.choice(candidates)
        mutate = mutate_json if kind == "value" else mutate_bytes
        path.write_bytes(mutate(pristine[path], draw))
        print(f"{case} {path.name}", flush=True)
        signal.alarm(SECONDS)  # the process ends, and the test names the case
        result = report(directory)
        signal.alarm(0)
        results[result] = results.get(result, 0) + 1
        for made in directory.rglob("*"):
            if made.is_file() and made not in pristine:
                made.unlink()
        path.write_bytes(pristine[path])
    print("done", json.dumps(results), flush=True)


if __name__ == "__main__":
    main()
