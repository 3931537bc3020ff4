"""Changes of JSON that keep it JSON, as an attacker would make them: names, ops, numbers, types, places."""

from __future__ import annotations

import copy
import random

CANARY = "TORCHPORT_WAS_HERE"
CODE = f'x=__import__("os").environ.__setitem__("{CANARY}","1")'
TEXTS = [
    "", CODE, f"__import__('os').putenv('{CANARY}','1')", "..", "/etc/passwd", "\0", "\udc80", "é" * 100,
    "__class__", "float32", "quint8", "load", "os:system", "collections:OrderedDict", "cpu", "meta", "cuda",
]  # fmt: skip
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
NUMBERS = [-1, 0, 1, 2, 3, 7, 255, 2**31, -(2**31), 2**62, -(2**63), 2**64, 1e308, 0.5, -0.0]


def mutate(data: object, draw: random.Random) -> object:
    """Return a copy of JSON with one to four parts changed."""
    made = copy.deepcopy(data)
    for _ in range(draw.choice((1, 1, 2, 4))):
        places = list(_places(made))
        if not places:
            return made
        container, key = draw.choice(places)
        container[key] = _other(container[key], key, draw, places)
        if isinstance(container, dict) and draw.random() < 0.1:
            container[draw.choice(TEXTS)] = container.pop(key)
    return made


def _places(data: object):
    """Give every place in JSON: a container and a key of it."""
    stack = [data]
    while stack:
        container = stack.pop()
        keys = list(container) if isinstance(container, dict) else range(len(container))
        for key in keys:
            yield container, key
            if isinstance(container[key], (dict, list)):
                stack.append(container[key])


def _other(value: object, key: object, draw: random.Random, places: list) -> object:
    if key == "op" and draw.random() < 0.8:
        return draw.choice(OPS)
    kind = draw.randrange(8)
    if kind == 0:  # what stands elsewhere
        container, other = draw.choice(places)
        return copy.deepcopy(container[other])
    if kind == 1 and isinstance(value, list) and value:
        return value[: draw.randrange(len(value))] if draw.random() < 0.5 else value + value
    if kind == 2 and isinstance(value, dict) and value:
        return {name: item for name, item in value.items() if draw.random() < 0.7}
    if kind == 3:
        return draw.choice(([], {}, None, True, False, [[]], [None], {"value": 0}, {"dtype": "int8"}))
    if isinstance(value, (int, float)) and kind < 6:
        return draw.choice(NUMBERS) if draw.random() < 0.6 else int(value) + draw.choice((-1, 1, 8))
    return draw.choice(TEXTS if isinstance(value, str) or kind == 7 else NUMBERS)
