"""The MessagePack walk: every encoding, every peculiarity of MIGraphX's writer, and invalid bytes."""

from __future__ import annotations

import os
import struct
import sys

import pytest
from core.program import program_maker as make
from harness.rows import for_each
from hypothesis import given
from hypothesis import strategies as st

from mxr.errors import DamagedError
from mxr.program import container
from mxr.program.container import CHUNKS, DEPTH, VALUES, Walker
from mxr.program.messagepack import MAX_TEXT_LENGTH, Binary
from mxr.program.shapes import Shape, shape_folding
from mxr.program.source import BytesSource, Span


class SmallReads:
    """A source that counts the bytes read from it."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)
        self.was_read = 0

    def read_at(self, offset: int, length: int) -> bytes:
        self.was_read += length
        return self.data[offset : offset + length]


def tree(data: bytes) -> object:
    walker = Walker(BytesSource(data))
    value = walker.tree()
    assert walker.position == len(data)
    return value


def skipped(data: bytes) -> int:
    walker = Walker(BytesSource(data))
    walker.skip()
    return walker.position


SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(max_size=80)
)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=40), inner, min_size=1, max_size=20),
    max_leaves=30,
)


@given(TREES)
def test_a_packed_value_is_read_and_skipped_completely(value):
    data = make.pack(value)
    assert tree(data) == value
    assert skipped(data) == len(data)


@given(TREES, st.data())
def test_a_truncated_value_is_damaged_at_an_offset_within_the_file(value, data):
    packed = make.pack(value)
    cut = packed[: data.draw(st.integers(0, len(packed) - 1))]
    for read in (tree, skipped):
        with pytest.raises(DamagedError) as caught:
            read(cut)
        assert 0 <= caught.value.context["offset"] <= len(cut)


@given(st.binary(max_size=400))
def test_any_bytes_give_a_value_or_damaged(data):
    for read in (lambda walker: walker.tree(), lambda walker: walker.skip()):
        walker = Walker(BytesSource(data), shape_folding())
        try:
            read(walker)
        except DamagedError as error:
            assert 0 <= error.context["offset"] <= len(data)
        else:
            assert walker.position <= len(data)


@given(TREES)
def test_tree_and_skip_end_at_the_same_byte(value):
    data = make.pack([value, make.shape("float", 3, 4), b"weights", make.Chunks([b"a", b"b"]), make.shape("half", 300)])
    for folding in (None, shape_folding()):
        whole, stepped = Walker(BytesSource(data), folding), Walker(BytesSource(data), folding)
        whole.tree()
        stepped.skip()
        assert whole.position == stepped.position == len(data)


def test_float32_is_read():
    assert tree(b"\xca" + struct.pack(">f", 1.5)) == 1.5


@pytest.mark.parametrize("size", [0, 1, 255, 256, 65535, 65536, 300_000])
def test_binaries_are_skipped(size):
    source = SmallReads(make.pack({"a": bytes(size), "b": 7}))
    walker = Walker(source)
    value = walker.tree()
    assert value["a"].size == size
    assert value["b"] == 7
    assert source.was_read <= 2 * (1 << 12) or size < 1 << 12


def test_chunks_are_joined():
    value = tree(make.pack({"data": make.Chunks([b"abc", b"de"]), "next": 1}))
    assert value == {"data": Binary((Span(9, 3), Span(14, 2))), "next": 1}
    assert value["data"].size == 5


def test_an_empty_binary_as_migraphx_2_8_to_2_15_0_writes_it():
    empty = make.Raw(b"\x93" + make.pack(b""))
    data = make.pack({"solution_object": empty, "algo": 3, "more": [empty, 1]})
    assert tree(data) == {"solution_object": Binary(()), "algo": 3, "more": [Binary(()), 1]}
    assert skipped(data) == len(data)
    three = make.pack({"data": make.Chunks([b"", b"x", b"y"]), "algo": 3})
    assert tree(three)["data"].size == 2
    assert skipped(three) == len(three)


def test_an_empty_array_represents_an_empty_map():
    assert Walker(BytesSource(b"\x90")).map_size() == 0
    with pytest.raises(DamagedError, match="Expected a map at byte 0"):
        Walker(BytesSource(b"\x91\x01")).map_size()
    with pytest.raises(DamagedError, match="Expected an array at byte 0"):
        Walker(BytesSource(b"\x81\xa1a\x01")).array_size()


@for_each(
    [
        (b"\xc1", "A MessagePack type"),
        (b"\xd4\x01\x02", "A MessagePack type"),
        (b"\xc7\x01\x02\x03", "A MessagePack type"),
        (b"\xdd\xff\xff\xff\xff", "4294967295 values are declared but only 0"),
        (b"\xdf\xff\xff\xff\xff" + bytes(100), "4294967295 values are declared but only 100"),
        (b"\xc6\xff\xff\xff\xff" + bytes(100), "ends inside a binary or string of 4294967295"),
        (b"\xdb\xff\xff\xff\xff" + bytes(100), "ends inside a binary or string of 4294967295"),
        (b"\xd9\x20abc", "ends inside a (binary or )?string"),
        (b"\xcf\0\0", "ends inside a number"),
        (b"", "ends before a value"),
    ]
)
def test_invalid_bytes(data, message):
    for read in (tree, skipped):
        with pytest.raises(DamagedError, match=message) as caught:
            read(data)
        assert caught.value.exit == 65
        assert 0 <= caught.value.context["offset"] <= len(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x81\x01\x02", "Expected a name at byte 1"),
        (b"\x82\xa1a\x01\xa1a\x02", "has a duplicate key"),
        (b"\x92\xc4\x01x\x05", "Expected the next chunk of a binary at byte 4"),
        (b"\xdc\x20\x00" + b"\xc4\x00" * 8192, f"A binary of {2 * CHUNKS} chunks"),
        (b"\x81\xdb\x00\x01\x00\x01" + b"a" * 65537 + b"\x01", "Expected a name"),
    ],
)
def test_invalid_trees(data, message):
    with pytest.raises(DamagedError, match=message):
        tree(data)


def test_a_long_string_is_not_read():
    assert tree(make.pack("a" * (MAX_TEXT_LENGTH + 1))) == Binary((Span(5, MAX_TEXT_LENGTH + 1),))


@pytest.mark.parametrize("opening", [b"\x91", b"\x81\xa1a", b"\xdc\x00\x01", b"\xde\x00\x01\xa1a"])
def test_nesting_bombs_end_early(opening):
    data = opening * 100_000 + b"\x00"
    for read in (tree, skipped):
        with pytest.raises(DamagedError, match=f"nested more than {DEPTH} deep") as caught:
            read(data)
        assert caught.value.context["offset"] < 200 * len(opening)


def test_the_deepest_nesting_that_is_allowed():
    data = b"\x91" * (DEPTH - 8) + b"\x00"
    assert skipped(data) == len(data)
    tree(data)


def test_a_tree_with_too_many_values_is_rejected_before_it_is_built():
    with pytest.raises(DamagedError, match="number of values exceeds"):
        tree(b"\xdd" + (2 * VALUES).to_bytes(4, "big") + b"\x90" * (2 * VALUES))
    with pytest.raises(DamagedError, match="number of values exceeds"):
        tree(make.array_head(VALUES) + b"\x91\x00" * VALUES)


def reach(read, data: bytes) -> int:
    """The offset where `read` ends: the end of the data, or the byte where it reaches a limit."""
    walker = Walker(BytesSource(data), shape_folding())
    try:
        read(walker)
    except DamagedError as error:
        assert "number of values exceeds" in error.message
    return walker.position


def steps(read, data: bytes) -> int:
    """The number of Python lines that `read` executes: its cost, independent of load (`fuzz.py` measures seconds)."""
    count = 0

    def trace(_frame, event, _arg):
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        reach(read, data)
    finally:
        sys.settrace(before)
    return count


STEPS_PER_BYTE = 40
"""The limit for 5 MB is two seconds, in which an idle machine executes about 100 million lines."""

SCALE = 1 if os.environ.get("MXR_TEST_SOAK") == "1" else 20
"""Divides the limits and the sizes of the test below, because reading up to the real limits takes seconds."""

UNITS = [
    b"\x00",
    b"\x90",
    b"\x91\x00",
    b"\xa1a",
    b"\xcc\x00",
    b"\x81\xa1a\x00",
    b"\x92\x00\x91\x00",
    b"\xcb" + bytes(8),
]


def an_array(unit: bytes, size: int) -> bytes:
    count = size // len(unit)
    return make.array_head(count) + unit * count


def five_nodes(unit: bytes, size: int) -> bytes:
    return make.array_head(5) + an_array(unit, size // 5) * 5


def skip(walker: Walker) -> None:
    walker.skip()


def read_nodes(walker: Walker) -> None:
    for _ in range(walker.array_size()):
        walker.tree()


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize(("read", "made", "least"), [(skip, an_array, 250_000), (read_nodes, five_nodes, 150_000)])
def test_the_cost_of_many_values_is_limited(monkeypatch, read, made, least, unit):
    monkeypatch.setattr(container, "VALUES", VALUES // SCALE)
    monkeypatch.setattr(container, "FREE_VALUES", container.FREE_VALUES // SCALE)
    data = made(unit, 500_000 // SCALE)
    reached = reach(read, data)
    assert reached == len(data) or reached > least // SCALE
    assert steps(read, made(unit, 5_000)) < STEPS_PER_BYTE * 5_000


def test_equal_shapes_are_built_once_and_only_from_whole_maps():
    walker = Walker(BytesSource(make.pack([make.shape("float", 2, 300)] * 3)), shape_folding())
    shapes = walker.tree()
    assert shapes[0] == Shape("float_type", (2, 300), (300, 1))
    assert shapes[0] is shapes[1] is shapes[2]
    # The header of a map of 133 pairs ends in the byte that begins a map of five pairs.
    other = {f"k{n}": n for n in range(128)}
    long = make.pack(make.shape("float", 2) | other)
    assert long[:3] == b"\xde\x00\x85"
    value = Walker(BytesSource(long), shape_folding()).tree()
    assert isinstance(value, dict)
    assert len(value) == 133
