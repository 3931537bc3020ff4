"""Which ops a file may call, as derived from their schemas."""

import pytest
import torch

from torchport.errors import TargetError
from torchport.targets.checked_ops import CHECKED
from torchport.targets.permitted_ops import find_permitted, permitting, why_refused


def all_aten_ops():
    """Every ATen overload in this torch, including TorchScript's own functions."""
    names = {
        name.removeprefix("aten::") for name in torch._C._dispatch_get_all_op_names() if "aten::" in name
    }
    names |= {
        schema.name.removeprefix("aten::")
        for schema in torch._C._jit_get_all_schemas()
        if "aten::" in schema.name
    }
    for base in sorted({name.partition(".")[0] for name in names}):
        packet = getattr(torch.ops.aten, base, None)
        for overload in packet.overloads() if isinstance(packet, torch._ops.OpOverloadPacket) else ():
            yield getattr(packet, overload)


PERMITTED = [op for op in all_aten_ops() if not why_refused(op)]
HARMLESS = {
    "Tensor",
    "int",
    "bool",
    "float",
    "number",
    "str",
    "Device",
    "ScalarType",
    "Layout",
    "MemoryFormat",
}


def test_no_permitted_op_writes_or_takes_what_a_file_must_not_give():
    assert len(PERMITTED) > 800
    for op in PERMITTED:
        schema = op._schema
        assert not schema.is_mutable, op
        assert not any(item.alias_info and item.alias_info.is_write for item in schema.arguments), op
        for argument in schema.arguments:
            kind = str(argument.real_type).rsplit("[", 1)[-1].rstrip("]")
            assert kind in HARMLESS or str(argument.real_type) == "Optional[Generator]", op
            assert argument.name not in ("storage", "storage_offset", "filename", "stream"), op
        assert not {"strided", "resize", "backward", "storage", "file", "seed"} & set(
            op._schema.name[6:].split("_")
        )


@pytest.mark.parametrize(
    "name",
    [
        "aten.from_file.default",
        "aten.manual_seed.default",
        "aten.manual_seed.generator",
        "aten.as_strided_copy.default",
        "aten.as_strided_scatter.default",
        "aten.empty_strided.default",
        "aten.new_empty_strided.default",
        "aten.set.source_Storage",
        "aten.relu_.default",
        "aten.add.out",
        "aten.resize.default",
        "aten.native_batch_norm.default",
        "aten.batch_norm.default",
        "aten._embedding_bag.default",
        "aten._pack_padded_sequence.default",
        "aten._weight_int4pack_mm.default",
        "aten._sparse_coo_tensor_unsafe.default",
        "aten.max_pool2d_with_indices_backward.default",
        "aten.lstm.data",
        "aten.lstm.input",
        "aten.gru_cell.default",
        "aten.warn.default",
        "aten.format.default",
        "aten.get_device.default",
        "aten.pin_memory.default",
        "inductor._reinterpret_tensor.default",
        "prims.broadcast_in_dim.default",
        "torchport.island.default",
        "aten.nothing.default",
        "aten.__class__.__init__",
        "aten.relu.__class__",
        "aten.relu",
        "aten",
        "",
        "__class__.__base__.__subclasses__",
        "load_library",
        "os.system",
    ],
)
def test_what_is_refused(name):
    with pytest.raises(TargetError):
        find_permitted(name)


def test_what_models_call_is_permitted():
    for name in (
        "aten.addmm.default",
        "aten.convolution.default",
        "aten._softmax.default",
        "aten._to_copy.default",
        "aten.native_layer_norm.default",
        "aten.index.Tensor",
        "aten.bernoulli.p",
        "aten.sym_size.int",
        "aten.scaled_dot_product_attention.default",
        "aten.grid_sampler_2d.default",
    ):
        assert str(find_permitted(name)) == name


def test_another_library_is_called_where_the_caller_names_it(monkeypatch):
    library = torch.library.Library("someones", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.define("fill(Tensor(a!) x) -> Tensor(a!)")
    with pytest.raises(TargetError, match=r"'someones'.*namespaces=\['someones'\]"):
        find_permitted("someones.twice.default")
    with permitting(["someones"]):
        assert find_permitted("someones.twice.default") is torch.ops.someones.twice.default
        with pytest.raises(TargetError, match="writes to its arguments"):
            find_permitted("someones.fill.default")
    monkeypatch.setenv("TORCHPORT_NAMESPACES", "torchvision, someones")
    assert find_permitted("someones.twice.default") is torch.ops.someones.twice.default


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("aten.as_strided.default", (torch.arange(8.0)[2:4], [4], [1])),
        ("aten.as_strided.default", (torch.arange(8.0)[2:4], [1], [1], 0)),
        ("aten.as_strided.default", (torch.arange(8.0), [2], [-1])),
        ("aten.as_strided.default", (torch.arange(8.0), [2, 2], [1])),
        ("aten._fft_c2c.default", (torch.ones(2, 2) + 0j, [5], 0, True)),
        ("aten._fft_c2c.default", (torch.ones(2, 2) + 0j, [0, 0], 0, True)),
        ("aten._fft_c2c.default", (torch.ones(2, 2) + 0j, [0], 9, True)),
        ("aten._fft_c2r.default", (torch.ones(2, 2) + 0j, [1], 0, 100)),
        (
            "aten._native_batch_norm_legit_no_training.default",
            (torch.ones(2, 9, 2), torch.ones(1), torch.ones(9), torch.ones(9), torch.ones(9), 0.1, 1e-5),
        ),
        ("aten._native_batch_norm_legit.no_stats", (torch.ones(9), torch.ones(1), None, True, 0.1, 1e-5)),
        ("aten._embedding_bag.default", (torch.ones(3, 2), torch.tensor([9]), torch.tensor([0]))),
        ("aten._embedding_bag.default", (torch.ones(3, 2), torch.tensor([1, 2]), torch.tensor([0, 7]))),
        ("aten._embedding_bag.default", (torch.ones(3, 2), torch.tensor([1, 2]), torch.tensor([0, 2, 1]))),
        ("aten._embedding_bag.default", (torch.ones(3), torch.tensor([1]), torch.tensor([0]))),
        ("aten._pdist_forward.default", (torch.ones(2, 3, 0, 3), 2.0)),
        # Tensors for numbers, with which the sums of the check would wrap around.
        (
            "aten.as_strided.default",
            (torch.zeros(1, 400)[:, :4], [1, 4], [4, 1], torch.tensor(254, dtype=torch.uint8)),
        ),
        ("aten.as_strided.default", (torch.zeros(8), [torch.tensor(2)], [1])),
        ("aten._fft_c2c.default", (torch.ones(2, 2) + 0j, [torch.tensor(0), torch.tensor(0)], 0, True)),
    ],
)
def test_ops_that_rely_on_their_callers_are_checked(name, args):
    from torchport.errors import RuntimeRefusal

    with pytest.raises(RuntimeRefusal, match="is called with"):
        CHECKED[name](*args)


@pytest.mark.parametrize("name", ["div", "divide"])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_the_quotient_that_no_integer_holds_is_refused(name, dtype):
    """Without the check, x86 processors end the process."""
    from torchport.errors import RuntimeRefusal

    least, divisors = torch.iinfo(dtype).min, torch.tensor([3, -1], dtype=torch.int8)
    by_tensor, by_number = CHECKED[f"aten.{name}.Tensor_mode"], CHECKED[f"aten.{name}.Scalar_mode"]
    values = torch.tensor([5, least], dtype=dtype)
    with pytest.raises(RuntimeRefusal, match=r"the least int\d\d, divided by -1"):
        by_tensor(values, divisors, rounding_mode="trunc")
    with pytest.raises(RuntimeRefusal, match=r"the least int\d\d, divided by -1"):
        by_number(values, -1, rounding_mode="trunc")
    assert by_tensor(values + 1, divisors, rounding_mode="trunc").tolist() == [2, -least - 1]
    assert by_number(values, 2, rounding_mode="trunc").tolist() == [2, least // 2]
    assert by_tensor(values.double(), divisors, rounding_mode="trunc").tolist() == [1, -least]


def test_memory_that_a_file_allocates_is_empty():
    x = torch.ones(100, 100)
    for name, args in (
        ("empty.memory_format", ([100, 100],)),
        ("empty_like.default", (x,)),
        ("empty_permuted.default", ([100, 100], [1, 0])),
        ("new_empty.default", (x, [100, 100])),
    ):
        for _ in range(20):
            torch.ones(100, 100)  # torch would hand out its memory next
            assert not CHECKED[f"aten.{name}"](*args).any()


def test_checked_ops_compute_what_they_did():
    x = torch.rand(4, 6)
    assert torch.equal(
        CHECKED["aten.as_strided.default"](x, [2, 3], [6, 2], 1), x.as_strided([2, 3], [6, 2], 1)
    )
    spectrum = CHECKED["aten._fft_r2c.default"](x, [1], 0, True)
    assert torch.equal(spectrum, torch.fft.rfft(x))
    back = CHECKED["aten._fft_c2r.default"](spectrum, [1], 2, 6)
    torch.testing.assert_close(back, x)


def test_bags_of_embeddings_survive():
    table, rows, bags = torch.rand(5, 3), torch.tensor([0, 4, 1, 1]), torch.tensor([0, 1, 1])
    [ours, *_] = CHECKED["aten._embedding_bag_forward_only.default"](table, rows, bags)
    assert torch.equal(ours, torch.nn.functional.embedding_bag(rows, table, bags, mode="sum"))
