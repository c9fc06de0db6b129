"""Cut points: equal weights become equal blobs, and the number of blobs is limited."""

from __future__ import annotations

import hashlib
import random
import subprocess
import sys
from itertools import pairwise

import pytest
from core.program import program_maker as make
from hypothesis import given
from hypothesis import strategies as st

from mxr.program import BytesSource, FileSource, cut_points, pieces
from mxr.program.cuts import LARGE, MAX_BLOB_BYTES, MAX_BLOBS

MIB = 1 << 20


class Holes:
    """A large source that contains parts of a program, and zeros between them."""

    def __init__(self, size: int, parts: dict[int, bytes]) -> None:
        self.size = size
        self.parts = parts

    def read_at(self, offset: int, length: int) -> bytes:
        window = bytearray(min(length, self.size - offset))
        for start, data in self.parts.items():
            for at in range(max(start, offset), min(start + len(data), offset + len(window))):
                window[at - offset] = data[at - start]
        return bytes(window)


def weights(seed: int, size: int) -> bytes:
    return random.Random(seed).randbytes(size)


def program(sizes: list[int], *, head: int = 1, seed: int = 0) -> bytes:
    nodes = [
        make.literal(f"@{n}", make.shape("float", size // 4), make.Chunks([weights(seed + n, size)]))
        for n, size in enumerate(sizes)
    ]
    return make.program([make.param("x" * head, make.shape("float", 1)), *nodes])


def blobs(data: bytes) -> dict[str, int]:
    return {hashlib.sha256(data[span.offset : span.end]).hexdigest(): span.size for span in pieces(BytesSource(data))}


def check(points: list[int], size: int) -> None:
    assert points[0] == 0
    assert points[-1] == size
    assert all(start < end <= start + MAX_BLOB_BYTES for start, end in pairwise(points))
    assert len(points) <= MAX_BLOBS + 1


def test_every_large_binary_is_a_piece_and_small_ones_are_not():
    sizes = [LARGE, 1000, LARGE + 4, LARGE - 4]
    found = blobs(program(sizes))
    for n, size in enumerate(sizes):
        assert (hashlib.sha256(weights(n, size)).hexdigest() in found) == (size >= LARGE)
    assert len(found) == 5


@given(st.lists(st.sampled_from([4, 4096, LARGE, 2 * LARGE, 300_000]), max_size=6), st.integers(1, 40))
def test_pieces_are_the_file_and_shared_weights_are_shared_pieces(sizes, head):
    one, other = program(sizes), program(list(reversed(sizes)), head=head, seed=-len(sizes) + 1)
    for data in (one, other):
        check(cut_points(BytesSource(data)), len(data))
        assert b"".join(data[span.offset : span.end] for span in pieces(BytesSource(data))) == data
    large = [size for size in sizes if size >= LARGE]
    same = program(sizes, head=head)
    assert sum(size for key, size in blobs(same).items() if key in blobs(one)) >= sum(large)


def test_real_variants_share_their_weights():
    def read(name: str) -> dict[str, int]:
        return blobs((make.DATA / "mxr_real" / f"{name}.mxr").read_bytes())

    for one, other, least in [
        ("convnet_b1_fp32_ref", "convnet_b4_fp32_ref", 0.95),
        ("convnet_b1_fp16_ref", "convnet_b4_fp16_ref", 0.70),
        ("convnet_b4_fp32_ref", "convnet_b4_uncompiled", 0.95),
    ]:
        first, second = read(one), read(other)
        shared = sum(size for key, size in second.items() if key in first)
        assert shared / sum(second.values()) > least
        assert len(second) <= 8


def test_small_programs_are_one_piece():
    for path in (make.DATA / "mxr_spliced").iterdir():
        with FileSource(path) as source:
            assert cut_points(source) == [0, source.size]


@pytest.mark.parametrize("before", [0, 5, 70])
def test_a_huge_literal_is_cut_relative_to_its_start(before):
    data = make.program([make.param("x" * (1 + before), make.shape("float", 1)), make.literal("@0", {}, b"HERE")])
    head, tail = data.split(b"\xc4\x04HERE")
    size = 3 * MAX_BLOB_BYTES + 12345
    start = len(head) + 5
    source = Holes(start + size + len(tail), {0: head + make.bin_head(size), start + size: tail})
    points = cut_points(source)
    assert points == [0, start, *(start + n * MAX_BLOB_BYTES for n in (1, 2, 3)), start + size, source.size]


def test_files_that_are_not_programs_are_cut_evenly():
    source = Holes(2 * MAX_BLOB_BYTES + 5, {0: b"\x7fELF"})
    assert cut_points(source) == [0, MAX_BLOB_BYTES, 2 * MAX_BLOB_BYTES, 2 * MAX_BLOB_BYTES + 5]
    assert cut_points(BytesSource(b"<html>")) == [0, 6]
    assert cut_points(BytesSource(b"")) == [0]
    cut_short = program([LARGE, LARGE])[:-100]
    assert cut_points(BytesSource(cut_short)) == [0, len(cut_short)]


def test_the_number_of_pieces_is_bounded():
    many = program([LARGE] * 200)
    points = cut_points(BytesSource(many))
    check(points, len(many))
    assert len(points) - 1 <= 16 + len(many) // MIB
    enormous = Holes(1 << 40, {})
    assert len(cut_points(enormous)) <= MAX_BLOBS + 1


def test_the_largest_binaries_are_cut_out_first():
    sizes = [LARGE] * 60 + [MIB]
    found = blobs(program(sizes))
    assert hashlib.sha256(weights(60, MIB)).hexdigest() in found
    assert hashlib.sha256(weights(0, LARGE)).hexdigest() not in found


def test_cut_points_imports_only_what_it_needs():
    code = "import sys; from mxr.program import cut_points; print(*(name for name in sys.modules if 'mxr' in name))"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert set(loaded) <= {
        *("mxr", "mxr.errors", "mxr.version", "mxr.program", "mxr.program.cuts", "mxr.program.container"),
        *("mxr.program.messagepack", "mxr.program.source", "mxr.program.number_types"),
        *("mxr.display", "mxr.display.text", "mxr.display.text"),
    }
