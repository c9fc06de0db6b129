"""Packed bytes: ranges, what is no packed form, and frames that lie."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Iterator

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from mxr.artifact import packed
from mxr.artifact.packed import FIXED, FRAME, LEAST, Packer, pays, plain_stream, read_head
from mxr.errors import DamagedError

TEXT = b"".join(b"%d gpu::code_object\n" % at for at in range(200_000))


def pack(data: bytes, step: int = 300_000) -> bytes:
    packer = Packer(len(data))
    frames = [frame for at in range(0, len(data), step) for frame in packer.add(data[at : at + step])]
    frames += packer.finish()
    assert len(packer.head) == packer.head_size
    return packer.head + b"".join(frames)


def parts(data: bytes, step: int = 70_000) -> Iterator[bytes]:
    yield from (data[at : at + step] for at in range(0, len(data), step))


def reading(data: bytes, offset: int, length: int | None) -> bytes:
    head = read_head(lambda at, size: data[at : at + size])
    assert head is not None and head.stored == len(data)
    _, begin = head.position(offset)
    return b"".join(head.plain(parts(data[begin:]), offset, length))


PACKED = pack(TEXT)
HEAD = PACKED[: FIXED + 4 * -(-len(TEXT) // FRAME)]


def test_it_is_smaller_and_any_decoder_reads_it() -> None:
    assert len(PACKED) < len(TEXT) / 4
    with zstandard.ZstdDecompressor().stream_reader(PACKED, read_across_frames=True) as reader:
        assert reader.read() == TEXT


@given(st.integers(0, len(TEXT)), st.one_of(st.none(), st.integers(0, len(TEXT))))
def test_every_range(offset: int, length: int | None) -> None:
    stop = None if length is None else offset + length
    assert reading(PACKED, offset, length) == TEXT[offset:stop]


def test_a_stream_is_read_in_both_forms() -> None:
    assert b"".join(plain_stream(parts(PACKED, 11), len(TEXT))) == TEXT
    for data in (TEXT, b"", b"x", packed.MAGIC, packed.MAGIC + b"\0" * 40):
        assert b"".join(plain_stream(parts(data, 5), 1)) == data


def test_what_pays() -> None:
    assert pays(TEXT, len(TEXT)) and pays(b"\0" * LEAST, LEAST)
    assert not pays(os.urandom(packed.SAMPLE), 10 * FRAME) and not pays(b"\0" * 1000, 1000)
    weights = struct.pack(f"<{packed.SAMPLE // 4}f", *(random.gauss(0, 1) for _ in range(packed.SAMPLE // 4)))
    assert not pays(weights, 10 * FRAME)
    assert pays(PACKED, len(PACKED)), "what looks packed is always packed, whatever it gains"
    assert reading(pack(PACKED), 0, None) == PACKED
    most = FRAME * packed.MAX_FRAMES
    assert pays(TEXT, most) and not pays(TEXT, most + 1) and not pays(PACKED, most + 1), "no head has so many frames"


def head(size: int, frame: int, *sizes: int, length: int | None = None) -> bytes:
    words = struct.pack("<4sQI", packed.WORD, size, frame) + struct.pack(f"<{len(sizes)}I", *sizes)
    return packed.MAGIC + struct.pack("<I", len(words) if length is None else length) + words


@pytest.mark.parametrize(
    "data",
    [
        PACKED[:FIXED],
        PACKED[: len(PACKED) // 2],
        PACKED[: len(HEAD)] + b"?" + PACKED[len(HEAD) + 1 :],
        head(1 << 62, FRAME, 9),
        head(1 << 40, 1 << 20, 9),
        head(FRAME, 0, 9),
        head(FRAME, FRAME + 1, 9),
        head(FRAME, FRAME, 9, length=7),
        head(FRAME, FRAME, packed.MAX_PACKED + 1),
        head(0, FRAME),
        head(10, FRAME, 30) + zstandard.ZstdCompressor().compress(b"x" * 11),
        head(10, FRAME, 13) + b"not a frame.." * 2,
    ],
)
def test_heads_and_frames_that_lie(data: bytes) -> None:
    """None takes more memory than a frame."""
    with pytest.raises(DamagedError):
        list(plain_stream(parts(data), len(TEXT)))


def test_a_frame_that_expands_to_a_terabyte() -> None:
    bomb = zstandard.ZstdCompressor(level=1, write_content_size=True)
    frame = bytearray(bomb.compress(b"\0" * FRAME))
    # The size in the header of the frame: 1 TiB, in eight bytes (RFC 8878, 3.1.1.1).
    header = frame[:4] + bytes([0xE0]) + struct.pack("<Q", 1 << 40)
    hostile = bytes(header) + bytes(frame[8:])
    assert zstandard.frame_content_size(hostile) == 1 << 40
    for size in (FRAME, 1 << 40):
        with pytest.raises(DamagedError):
            list(plain_stream(parts(head(size, FRAME, *[len(hostile)] * (size // FRAME)) + hostile), 1 << 50))
