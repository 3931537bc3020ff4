"""Rows are written to the slots of each buffer, and torch counts one write for each."""

import copy
import io

import pytest
import torch

from torchport.generation.slot_stacks import SlotStacks

SHAPES = [(2, 3, 5, 4), (2, 3, 5, 4), (2, 1, 5, 6)]


def _rows(count, shapes=SHAPES):
    return [torch.randn(batch, heads, count, width) for batch, heads, _, width in shapes]


def _expected(buffers, rows, start, count):
    expected = [buffer.clone() for buffer in buffers]
    for buffer, new in zip(expected, rows, strict=True):
        buffer[:, :, start : start + count] = new[:, :, :count]
    return expected


@pytest.mark.parametrize(("start", "count", "width"), [(0, 3, 3), (2, 1, 1), (1, 2, 4)])
def test_rows_are_written_from_a_slot_on(start, count, width):
    stacks = SlotStacks(SHAPES, torch.float32)
    rows = _rows(width)
    expected = _expected(stacks.buffers, rows, start, count)
    before = [buffer._version for buffer in stacks.buffers]
    stacks.write(stacks.buffers, rows, start, count)
    assert [tuple(buffer.shape) for buffer in stacks.buffers] == SHAPES
    assert all(map(torch.equal, stacks.buffers, expected))
    assert [buffer._version for buffer in stacks.buffers] == [version + 1 for version in before]


def test_buffers_that_took_the_place_of_others_are_written():
    stacks = SlotStacks(SHAPES, torch.float32)
    others = [stacks.buffers[0].clone(), *stacks.buffers[1:]]
    rows = _rows(2)
    expected = _expected(others, rows, 1, 2)
    stacks.write(others, rows, 1, 2)
    assert all(map(torch.equal, others, expected))
    assert not stacks.buffers[0].any()


def test_a_buffer_that_gets_no_rows_stays():
    stacks = SlotStacks(SHAPES, torch.float32)
    rows = _rows(2)
    rows[1] = rows[1][:, :, :0]
    stacks.write(stacks.buffers, rows, 0, 2)
    assert not stacks.buffers[1].any()
    torch.testing.assert_close(stacks.buffers[0][:, :, :2], rows[0], rtol=0, atol=0)


def test_rows_of_another_dtype_are_rounded():
    stacks = SlotStacks(SHAPES, torch.bfloat16)
    rows = _rows(5)
    stacks.write(stacks.buffers, rows, 0, 5)
    assert all(map(torch.equal, stacks.buffers, [new.bfloat16() for new in rows]))


def test_buffers_that_grow_keep_what_they_hold():
    stacks = SlotStacks(SHAPES, torch.float32)
    rows = _rows(5)
    stacks.write(stacks.buffers, rows, 0, 5)
    with torch.inference_mode():
        grown = SlotStacks.grown(stacks.buffers, 8)
    for buffer, new in zip(grown.buffers, rows, strict=True):
        assert buffer.shape[2] == 8
        assert torch.equal(buffer[:, :, :5], new)
        assert not buffer[:, :, 5:].any()
        assert not buffer.is_inference()


def _loaded(value):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("copied", [copy.deepcopy, _loaded])
def test_writes_to_copies_are_counted(copied):
    stacks = SlotStacks(SHAPES, torch.float32)
    others, buffers = copied((stacks, stacks.buffers))
    before = [buffer._version for buffer in buffers]
    rows = _rows(1)
    others.write(buffers, rows, 2, 1)
    assert all(torch.equal(buffer[:, :, 2:3], new) for buffer, new in zip(buffers, rows, strict=True))
    assert [buffer._version for buffer in buffers] == [version + 1 for version in before]
    assert not any(buffer.any() for buffer in stacks.buffers)
