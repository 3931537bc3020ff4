"""Classes of every kind that a model may accept or return."""

import collections
import dataclasses


class Plain:
    def __init__(self, tensor, note=None):
        self.tensor = tensor
        self.note = note


class Slotted:
    __slots__ = ("tensor",)

    def __init__(self, tensor):
        self.tensor = tensor


@dataclasses.dataclass
class Data:
    tensor: object
    note: object = None


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    tensor: object
    note: object = None


class WithOwnState:
    """Defines its own pickled state, and how to restore it."""

    def __init__(self, tensor):
        self.tensor = tensor
        self.lock = lambda: None

    def __getstate__(self):
        return {"kept": self.tensor}

    def __setstate__(self, state):
        self.tensor = state["kept"]
        self.lock = None


class ListLike(list):
    """A list with an attribute."""


class DictLike(dict):
    """A dict with an attribute."""


class Uncopyable:
    """Cannot be flattened, like open files and locks."""

    def __reduce_ex__(self, protocol):
        raise TypeError("not this one")


Pair = collections.namedtuple("Pair", "left right")
