"""Mutates JSON and XML as an attacker who knows their structure might: the result is valid JSON or XML."""

from __future__ import annotations

import copy
import random
import re

CANARY = "TORCHPORT_WAS_HERE"
NUMBERS = (
    -1, 0, 1, 2, 3, 7, 31, 32, 255, 2**31 - 1, 2**31, -(2**31), 2**32, 2**40, 2**62, 2**63, -(2**63), 2**64,
    10**30, 0.5, -0.0, 1e308,
)  # fmt: skip
WORDS = (
    "", "x", "..", "../..", "/etc/passwd", "\n", "\0", "\udc80", "é" * 100, "0", "-1", "99999999999999999999",
    f'x=__import__("os").environ.__setitem__("{CANARY}","1")', f"__import__('os').putenv('{CANARY}','1')",
    "True", "import os", "os.system", "os:system", "__class__", "load", "collections:OrderedDict", "device",
    "cpu", "CPU", "meta", "cuda", "float32", "float64", "complex64", "quint8", "tile", "ttnn", "full", "relu",
    "matmul", "embedding",
)  # fmt: skip
OPS = """
aten.relu.default aten.relu_.default aten.copy_.default aten.as_strided.default aten.from_file.default
aten.manual_seed.default aten.set_.source_Storage aten.empty_strided.default aten.addmm.default
aten.view.default aten._unsafe_view.default aten.gather.default aten.index.Tensor aten.embedding.default
aten._embedding_bag.default aten.convolution.default aten.native_layer_norm.default aten._softmax.default
aten.select.int aten.slice.Tensor aten.permute.default aten.expand.default aten.upsample_bilinear2d.vec
aten._fft_c2c.default aten._native_batch_norm_legit_no_training.default aten.max_pool2d_with_indices.default
aten.sym_size.int aten.item.default size.mul size.floordiv getitem torchport.island.default
inductor._reinterpret_tensor.default prims.as_strided.default os.system aten.__class__.mro
""".split()
VALUES: tuple[object, ...] = (
    *NUMBERS, *WORDS, None, True, False, [], {}, [[]], [None], {"ref": "x"}, {"name": "os"}, {"value": 0},
    {"dtype": "int8"},
)  # fmt: skip


def mutate_json(data: object, chance: random.Random) -> object:
    """Return JSON with one to four places changed: names, ops, numbers, types, the order."""
    data = copy.deepcopy(data)
    for _ in range(chance.choice((1, 1, 2, 3, 4))):
        places = _places(data)
        if not places:
            return data
        container, key = chance.choice(places)
        _change(container, key, places, chance)
        if isinstance(container, dict) and key in container and chance.random() < 0.1:
            container[chance.choice(WORDS)] = container.pop(key)
    return data


def _places(data: object) -> list[tuple[object, object]]:
    """Return every place in JSON, as a container and a key of it."""
    found: list[tuple[object, object]] = []
    waiting = [data]
    while waiting:
        item = waiting.pop()
        keys = list(item) if isinstance(item, dict) else range(len(item)) if isinstance(item, list) else ()
        for key in keys:
            found.append((item, key))
            waiting.append(item[key])
    return found


def _change(container, key, places, chance: random.Random) -> None:
    kind = chance.randrange(9)
    value = container[key]
    if key == "op" and chance.random() < 0.8:
        container[key] = chance.choice(OPS)
    elif kind == 0:
        del container[key]
    elif kind == 1:
        other, place = chance.choice(places)
        if place in other if isinstance(other, dict) else place < len(other):
            container[key] = copy.deepcopy(other[place])
    elif kind == 2 and isinstance(container, list):
        container.insert(chance.randrange(len(container) + 1), copy.deepcopy(value))
    elif kind == 3 and isinstance(container, list):
        chance.shuffle(container)
    elif kind in (2, 3) and isinstance(value, list) and value:
        container[key] = value[: chance.randrange(len(value))] if kind == 2 else value + value
    elif kind == 4 and isinstance(value, dict):
        container[key] = {name: item for name, item in value.items() if chance.random() < 0.7}
    elif isinstance(value, (int, float)) and kind < 7:
        container[key] = chance.choice((*NUMBERS, value + 1, value - 1, value + 8, -value))
    else:
        container[key] = copy.deepcopy(
            chance.choice(WORDS if isinstance(value, str) and kind < 7 else VALUES)
        )


_ATTRIBUTE = re.compile(r'(\w[\w-]*)="([^"]*)"')
_ELEMENT = re.compile(r"\t*<(layer|edge)\b.*?(?:/>|</layer>)\n", re.DOTALL)
_SIZE = re.compile(r"<dim>(-?\d+)</dim>")


def mutate_xml(text: str, types: list[str], chance: random.Random) -> str:
    """Return XML with one to three attributes, sizes or elements changed."""
    for _ in range(chance.choice((1, 1, 2, 3))):
        kind = chance.randrange(6)
        if kind < 3:
            text = _change_attribute(text, types, chance)
        elif kind == 3:
            text = _replaced(text, _SIZE, lambda _: f"<dim>{chance.choice(NUMBERS)}</dim>", chance)
        elif kind == 4:
            text = _replaced(text, _ELEMENT, lambda match: chance.choice(("", match.group() * 2)), chance)
        else:
            elements = [match.group() for match in _ELEMENT.finditer(text)]
            text = _replaced(text, _ELEMENT, lambda _: chance.choice(elements), chance)
    return text


def _change_attribute(text: str, types: list[str], chance: random.Random) -> str:
    others = _ATTRIBUTE.findall(text)

    def change(match: re.Match[str]) -> str:
        name, value = match.groups()
        same = [other for key, other in others if key == name]
        numbers = [str(chance.choice(NUMBERS)) for _ in value.split(",")]
        choices = [chance.choice(same), ", ".join(numbers), chance.choice(others)[1], chance.choice(WORDS)]
        chosen = chance.choice(types) if name == "type" else chance.choice(choices)
        return f'{name}="{re.sub(r"[<>&]|[^ -~]", "", chosen)}"'

    return _replaced(text, _ATTRIBUTE, change, chance)


def _replaced(text: str, pattern: re.Pattern[str], change, chance: random.Random) -> str:
    found = list(pattern.finditer(text))
    if not found:
        return text
    match = chance.choice(found)
    return text[: match.start()] + change(match) + text[match.end() :]
