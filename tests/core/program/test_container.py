"""The MessagePack walk: every encoding, every quirk of MIGraphX's writing, and bytes that no one wrote in earnest."""

from __future__ import annotations

import struct
import sys

import program_maker as make
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxr.errors import Damaged
from mxr.program.container import CHUNKS, DEPTH, VALUES, Walker
from mxr.program.shapes import Shape, shape_folding
from mxr.program.source import BytesSource, Span
from mxr.program.tokens import LONGEST_TEXT, Binary


class SmallReads:
    """A source that counts what is read of it."""

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


@settings(max_examples=40, deadline=None)
@given(TREES)
def test_what_is_packed_is_read_and_skipped_whole(value):
    data = make.pack(value)
    assert tree(data) == value
    assert skipped(data) == len(data)


@settings(max_examples=40, deadline=None)
@given(TREES, st.data())
def test_a_value_cut_short_is_damaged_at_an_offset_within_the_file(value, data):
    packed = make.pack(value)
    cut = packed[: data.draw(st.integers(0, len(packed) - 1))]
    for read in (tree, skipped):
        with pytest.raises(Damaged) as caught:
            read(cut)
        assert 0 <= caught.value.detail["offset"] <= len(cut)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_give_a_value_or_damaged(data):
    for read in (lambda walker: walker.tree(), lambda walker: walker.skip()):
        walker = Walker(BytesSource(data), shape_folding())
        try:
            read(walker)
        except Damaged as error:
            assert 0 <= error.detail["offset"] <= len(data)
        else:
            assert walker.position <= len(data)


@settings(max_examples=40, deadline=None)
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
def test_binaries_are_stepped_over(size):
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


def test_a_binary_of_no_bytes_as_migraphx_2_8_to_2_15_0_wrote_it():
    hollow = make.Raw(b"\x93" + make.pack(b""))
    data = make.pack({"solution_object": hollow, "algo": 3, "more": [hollow, 1]})
    assert tree(data) == {"solution_object": Binary(()), "algo": 3, "more": [Binary(()), 1]}
    assert skipped(data) == len(data)
    three = make.pack({"data": make.Chunks([b"", b"x", b"y"]), "algo": 3})
    assert tree(three)["data"].size == 2
    assert skipped(three) == len(three)


def test_an_empty_array_stands_for_an_empty_map():
    assert Walker(BytesSource(b"\x90")).map_size() == 0
    with pytest.raises(Damaged, match="should be a map at byte 0"):
        Walker(BytesSource(b"\x91\x01")).map_size()
    with pytest.raises(Damaged, match="should be an array at byte 0"):
        Walker(BytesSource(b"\x81\xa1a\x01")).array_size()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\xc1", "A kind of value"),
        (b"\xd4\x01\x02", "A kind of value"),
        (b"\xc7\x01\x02\x03", "A kind of value"),
        (b"\xdd\xff\xff\xff\xff", "4294967295 values are announced where 0"),
        (b"\xdf\xff\xff\xff\xff" + bytes(100), "4294967295 values are announced where 100"),
        (b"\xc6\xff\xff\xff\xff" + bytes(100), "ends inside a binary or text of 4294967295"),
        (b"\xdb\xff\xff\xff\xff" + bytes(100), "ends inside a binary or text of 4294967295"),
        (b"\xd9\x20abc", "ends inside a (binary or )?text"),
        (b"\xcf\0\0", "ends inside a number"),
        (b"", "ends where a value should begin"),
    ],
)
def test_wrong_bytes(data, words):
    for read in (tree, skipped):
        with pytest.raises(Damaged, match=words) as caught:
            read(data)
        assert caught.value.exit == 65
        assert 0 <= caught.value.detail["offset"] <= len(data)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x81\x01\x02", "should be a name at byte 1"),
        (b"\x82\xa1a\x01\xa1a\x02", "names a key twice"),
        (b"\x92\xc4\x01x\x05", "should be the next chunk of a binary at byte 4"),
        (b"\xdc\x20\x00" + b"\xc4\x00" * 8192, f"A binary in {2 * CHUNKS} chunks"),
        (b"\x81\xdb\x00\x01\x00\x01" + b"a" * 65537 + b"\x01", "should be a name"),
    ],
)
def test_wrong_trees(data, words):
    with pytest.raises(Damaged, match=words):
        tree(data)


def test_a_long_text_is_not_held():
    assert tree(make.pack("a" * (LONGEST_TEXT + 1))) == Binary((Span(5, LONGEST_TEXT + 1),))


@pytest.mark.parametrize("opening", [b"\x91", b"\x81\xa1a", b"\xdc\x00\x01", b"\xde\x00\x01\xa1a"])
def test_nesting_bombs_end_early(opening):
    data = opening * 100_000 + b"\x00"
    for read in (tree, skipped):
        with pytest.raises(Damaged, match=f"More than {DEPTH}") as caught:
            read(data)
        assert caught.value.detail["offset"] < 200 * len(opening)


def test_the_deepest_nesting_that_is_allowed():
    data = b"\x91" * (DEPTH - 8) + b"\x00"
    assert skipped(data) == len(data)
    tree(data)


def test_a_value_of_many_values_is_refused_before_it_is_held():
    with pytest.raises(Damaged, match="More values"):
        tree(b"\xdd" + (2 * VALUES).to_bytes(4, "big") + b"\x90" * (2 * VALUES))
    with pytest.raises(Damaged, match="More values"):
        tree(make.array_head(VALUES) + b"\x91\x00" * VALUES)


def reach(read, data: bytes) -> int:
    """The offset to which `read` comes, be it the end or the byte where it gives up."""
    walker = Walker(BytesSource(data), shape_folding())
    try:
        read(walker)
    except Damaged as error:
        assert "More values" in error.message
    return walker.position


def steps(read, data: bytes) -> int:
    """Lines of Python that `read` runs: what it costs, whatever else this machine does (`fuzz.py` measures seconds)."""
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
"""Two seconds are promised for 5 MB, and a quiet machine runs 100 million lines in them and less."""

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
def test_many_values_cost_no_more_than_their_share(read, made, least, unit):
    data = made(unit, 500_000)
    reached = reach(read, data)
    assert reached == len(data) or reached > least
    assert steps(read, made(unit, 20_000)) < STEPS_PER_BYTE * 20_000


def test_shapes_are_known_at_sight_and_only_whole():
    walker = Walker(BytesSource(make.pack([make.shape("float", 2, 300)] * 3)), shape_folding())
    shapes = walker.tree()
    assert shapes[0] == Shape("float_type", (2, 300), (300, 1))
    assert shapes[0] is shapes[1] is shapes[2]
    # A map of 133 pairs whose head ends in the byte that opens a map of five.
    other = {f"k{n}": n for n in range(128)}
    long = make.pack(make.shape("float", 2) | other)
    assert long[:3] == b"\xde\x00\x85"
    value = Walker(BytesSource(long), shape_folding()).tree()
    assert isinstance(value, dict)
    assert len(value) == 133
