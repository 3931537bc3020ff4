"""Values of any class are flattened and rebuilt."""

import collections
import types

import numpy
import pytest
import torch
from transformers import DynamicCache
from transformers.modeling_outputs import BaseModelOutput

from structure.classes import Data, DictLike, Frozen, ListLike, Pair, Plain, Slotted, Uncopyable, WithOwnState
from torchport.errors import StructureError
from torchport.structure import flatten, flatten_call, tensors_in
from torchport.structure.flatten import flatten_result

ONE, TWO = torch.tensor([1.0]), torch.tensor([2.0])
SHARED = [ONE]


def rebuilt(value):
    """Flatten a value and rebuild it from copies of its tensors."""
    flat = flatten(value)
    return flat.structure.rebuild([leaf.clone() for leaf in flat.leaves])


@pytest.mark.parametrize(
    ("make", "get"),
    [
        (lambda t: t, lambda v: v),
        (lambda t: (t, 3), lambda v: v[0]),
        (lambda t: [None, t], lambda v: v[1]),
        (lambda t: {"a": {"b": t}}, lambda v: v["a"]["b"]),
        (lambda t: {7: t}, lambda v: v[7]),
        (lambda t: Pair(t, "r"), lambda v: v.left),
        (lambda t: Plain(t, 3), lambda v: v.tensor),
        (lambda t: Slotted(t), lambda v: v.tensor),
        (lambda t: Data(t), lambda v: v.tensor),
        (lambda t: Frozen(t), lambda v: v.tensor),
        (lambda t: WithOwnState(t), lambda v: v.tensor),
        (lambda t: types.SimpleNamespace(a=t), lambda v: v.a),
        (lambda t: collections.OrderedDict(a=t), lambda v: v["a"]),
        (lambda t: collections.defaultdict(list, a=t), lambda v: v["a"]),
        (lambda t: collections.deque([t], maxlen=4), lambda v: v[0]),
        (lambda t: ListLike([t]), lambda v: v[0]),
        (lambda t: DictLike(a=t), lambda v: v["a"]),
        (lambda t: BaseModelOutput(last_hidden_state=t), lambda v: v.last_hidden_state),
        (lambda t: torch.return_types.max((t, t.long())), lambda v: v.values),
        (lambda t: Data(Frozen(Plain([t]))), lambda v: v.tensor.tensor.tensor[0]),
    ],
)
def test_a_value_keeps_its_class_and_its_tensor(make, get):
    value = make(ONE)
    again = rebuilt(value)
    assert type(again) is type(value)
    assert get(again) is not ONE
    assert torch.equal(get(again), ONE)


def test_what_is_no_tensor_is_kept():
    value = {
        "i": 3,
        "f": 0.5,
        "s": "x",
        "n": None,
        "d": torch.float16,
        "shape": torch.Size([2]),
        "set": {1, 2},
    }
    assert flatten(value).leaves == []
    assert rebuilt(value) == value


def test_attributes_beside_items_are_kept():
    value = ListLike([ONE])
    value.note = TWO
    again = rebuilt(value)
    assert (again[0].item(), again.note.item()) == (1.0, 2.0)


def test_a_factory_and_a_limit_are_kept():
    assert rebuilt(collections.defaultdict(list, a=ONE)).default_factory is list
    assert rebuilt(collections.deque([ONE], maxlen=4)).maxlen == 4


def test_a_model_output_is_indexed_as_before():
    again = rebuilt(BaseModelOutput(last_hidden_state=ONE, attentions=(TWO,)))
    assert list(again.keys()) == ["last_hidden_state", "attentions"]
    assert again[1][0].item() == 2.0


def test_a_cache_is_taken_apart_into_its_keys_and_values():
    cache = DynamicCache()
    cache.update(torch.full((1, 1, 2, 1), 3.0), torch.full((1, 1, 2, 1), 4.0), 0)
    assert [path.rsplit(".", 1)[-1] for path, _ in tensors_in(cache)] == ["keys", "values"]
    again = rebuilt(cache)
    assert again.get_seq_length() == 2
    assert again.layers[0].values.unique().item() == 4.0


def test_sharing_survives():
    shared = [ONE]
    again = rebuilt((shared, shared, ONE))
    assert again[0] is again[1]
    assert again[0][0] is again[2]


def test_a_value_that_holds_itself_survives():
    loop = Plain(ONE)
    loop.note = [loop]
    again = rebuilt(loop)
    assert again.note[0] is again


def test_what_cannot_be_copied_is_shared():
    lock = Uncopyable()
    assert rebuilt([lock, ONE])[0] is lock


def test_modules_functions_and_arrays_are_shared():
    shared = (torch.nn.ReLU(), print, numpy.ones(2))
    again = rebuilt(shared)
    assert all(ours is theirs for ours, theirs in zip(again, shared, strict=True))


def test_what_the_caller_names_is_shared():
    config = Plain(None, note="settings")
    flat = flatten({"config": config, "x": ONE}, by_reference={id(config): config})
    assert flat.structure.rebuild([ONE])["config"] is config


def test_paths_name_each_tensor():
    value = {"a": [ONE, (TWO,)], "odd key": Data(torch.ones(2)), 3: Pair(torch.ones(3), torch.ones(4))}
    assert [path for path, _ in tensors_in(value)] == [
        "a[0]", "a[1][0]", "['odd key'].tensor", "[3].left", "[3].right",
    ]  # fmt: skip


def test_a_tensor_as_key_is_refused():
    with pytest.raises(StructureError, match="a dict with a tensor as a key"):
        flatten([{ONE: 1}])


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((ONE, TWO), {}),
        ((ONE,), {"b": TWO}),
        ((), {}),
        ((ONE, ONE), {}),
        ((ONE, 3), {}),
        (([ONE],), {"b": None}),
        (([ONE], {"mask": TWO}), {}),
        (({"mask": ONE}, [TWO]), {}),
        (([ONE, TWO],), {}),
        (([ONE], [TWO]), {}),
        (([], [ONE]), {"b": [TWO]}),
        (([ONE, 3],), {}),
        (([[ONE]],), {}),
        (({1: ONE},), {}),
        (({True: ONE},), {}),
        (([ONE], ONE), {}),
        ((SHARED, SHARED), {}),
        (((ONE, TWO),), {}),
        ((torch.nn.Parameter(ONE),), {"b": [TWO]}),
    ],
)
def test_a_call_is_taken_apart_as_the_pair_of_its_arguments_is(args, kwargs):
    quick, plain = flatten_call(args, kwargs), flatten((args, kwargs))
    assert quick.structure == plain.structure
    assert quick.structure.paths == plain.structure.paths
    assert [id(leaf) for leaf in quick.leaves] == [id(leaf) for leaf in plain.leaves]
    assert list(map(id, quick.objects)) == list(map(id, plain.objects))


class TestResults:
    """Results of calls, and changes that calls make to their inputs."""

    @staticmethod
    def call(function, *args):
        """Trace `function` on copies of its inputs, as capture does; replay it on the inputs themselves."""
        flat = flatten(args)
        copies, objects = flat.structure.rebuild_with_objects([leaf.clone() for leaf in flat.leaves])
        inputs = flatten(copies).leaves
        result = flatten_result(function(*copies), inputs, objects, flat.structure)
        return result.structure.rebuild(result.leaves, flat.leaves, flat.objects)

    def test_an_input_is_given_back_itself(self):
        box, tensor = [ONE], torch.ones(2)
        result = self.call(lambda box, tensor: (tensor, box, tensor + 1), box, tensor)
        assert result[0] is tensor
        assert result[1] is box
        assert result[2].tolist() == [2.0, 2.0]

    def test_a_list_that_grew_has_grown_for_the_caller(self):
        box = [ONE]
        self.call(lambda box: box.append(box[0] + 1), box)
        assert box[0] is ONE
        assert box[1].item() == 2.0

    def test_a_tensor_that_was_replaced_is_replaced_for_the_caller(self):
        # The new tensor has the same index in the result as the old one in the inputs.
        box = Plain(ONE, note={"kept": TWO})

        def replace(box):
            box.tensor = box.tensor + 5

        self.call(replace, box)
        assert box.tensor.item() == 6.0
        assert box.note["kept"] is TWO

    def test_all_kinds_of_containers_are_updated(self):
        box = {
            "list": [ONE],
            "dict": {"a": ONE, "b": 1},
            "object": Plain(ONE),
            "deque": collections.deque([ONE]),
        }

        def change(box):
            box["list"][0] = box["list"][0] * 3
            box["dict"].pop("b")
            box["object"].note = "seen"
            box["deque"].append(box["deque"][0] * 4)
            del box["dict"]["a"]

        inner = dict(box)
        self.call(change, box)
        assert all(box[key] is inner[key] for key in inner)
        assert (box["list"][0].item(), box["dict"], box["object"].note) == (3.0, {}, "seen")
        assert [item.item() for item in box["deque"]] == [1.0, 4.0]

    def test_an_attribute_that_was_deleted_is_gone(self):
        box = Plain(ONE)
        self.call(lambda box: delattr(box, "note"), box)
        assert not hasattr(box, "note")

    def test_what_was_not_changed_is_left_alone(self):
        box = [ONE, {"a": TWO}]
        before = box[1]
        self.call(lambda box: box[0] * 2, box)
        assert box[0] is ONE
        assert box[1] is before

    def test_a_list_that_holds_itself_may_grow(self):
        first, loop = [ONE], [TWO]
        loop.append(loop)

        def grow(first, loop):
            loop.append(first[0] + 1)

        self.call(grow, first, loop)
        assert loop[1] is loop
        assert loop[2].item() == 2.0


def test_what_is_nested_too_deeply_is_refused():
    value = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(StructureError, match="nested too deeply"):
        flatten(value)
