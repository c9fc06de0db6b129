"""Bytes that are stored packed: zstd in independent frames, so that any range can be read without the rest.

    5d 2a 4d 18 | u32 length | "mxr1" | u64 plain size | u32 plain size of a frame | u32 size of each frame | frames

The head is a skippable frame, so that any zstd decoder gives the plain bytes. The identity of bytes is always the
sha256 of the plain ones: packed bytes are a form of them, and no part of a name. Bytes that look packed themselves are
always stored packed, so that the head tells the form for certain.

Source: RFC 8878, 3.1.2 (skippable frames). All numbers are little-endian.
"""

from __future__ import annotations

import struct
import sys
import tempfile
from array import array
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

from mxr.errors import DamagedError, TooLargeError
from mxr.util import disk
from mxr.util.frozen import dataclass
from mxr.util.hashing import CHUNK, Data

MAGIC = struct.pack("<I", 0x184D2A5D)
WORD = b"mxr1"
FIXED = 24
"""Bytes of a head without the sizes of its frames."""

FRAME = 32 << 10
"""Plain bytes of a frame, at most: what each reader holds. Larger ones save little."""

MAX_PACKED = FRAME + 1024
"""Packed bytes of a frame. Source: zstd.h, ZSTD_COMPRESSBOUND."""

MAX_FRAMES = 1 << 18
"""Frames of packed bytes; what has more than 8 GiB stays plain."""

MAX_WINDOW = 8 << 20

SAMPLE = 256 << 10
"""Bytes of the sample at the beginning."""

LEAST = 64 << 10
"""Bytes below which packing does not pay."""

GAIN = 0.75
"""The part of a sample from which on packing does not pay."""

LEVEL = 3

SPOOLED = 4 << 20
"""Packed bytes that are kept in memory; more are in a temporary file."""


def available() -> bool:
    """Whether this process can pack and unpack: it needs the Python package zstandard."""
    return find_spec("zstandard") is not None


def looks_packed(start: Data) -> bool:
    """Whether bytes begin as packed ones do."""
    return bytes(start[:4]) == MAGIC and bytes(start[8:12]) == WORD


def pays(start: Data, size: int) -> bool:
    """Whether to store so many bytes packed that begin with these: at least `SAMPLE`, or all of them."""
    if size > FRAME * MAX_FRAMES:
        return False
    if looks_packed(start):
        return True
    if size < LEAST:
        return False
    import zstandard

    sample = memoryview(start)[:SAMPLE]
    return len(zstandard.ZstdCompressor(level=1).compress(sample)) <= GAIN * len(sample)


class Packer:
    """Packs so many bytes, which arrive in chunks."""

    def __init__(self, size: int) -> None:
        import zstandard

        self._compressor = zstandard.ZstdCompressor(level=LEVEL)
        self._size = size
        self._sizes: list[int] = []
        self._rest = bytearray()

    @property
    def head_size(self) -> int:
        """Bytes of the head, which is complete after the last chunk."""
        return FIXED + 4 * -(-self._size // FRAME)

    @property
    def head(self) -> bytes:
        """The bytes before the frames."""
        words = struct.pack("<4sQI", WORD, self._size, FRAME) + struct.pack(f"<{len(self._sizes)}I", *self._sizes)
        return MAGIC + struct.pack("<I", len(words)) + words

    def add(self, data: Data) -> Iterator[bytes]:
        """Yield the frames that are complete with further bytes."""
        self._rest += data
        while len(self._rest) >= FRAME:
            yield self._frame(FRAME)

    def finish(self) -> Iterator[bytes]:
        """Yield the last frame, if there is more."""
        if self._rest:
            yield self._frame(len(self._rest))

    def _frame(self, size: int) -> bytes:
        found: bytes = self._compressor.compress(bytes(memoryview(self._rest)[:size]))
        del self._rest[:size]
        self._sizes.append(len(found))
        return found


@dataclass(frozen=True, slots=True)
class PackedHead:
    """The head of packed bytes. `size`: the plain bytes, `frame`: those of a frame; `sizes`: of the frames, packed."""

    size: int
    frame: int
    sizes: array[int]

    @property
    def length(self) -> int:
        """Bytes of the head itself."""
        return FIXED + 4 * len(self.sizes)

    @property
    def stored(self) -> int:
        """Bytes of head and frames."""
        return self.length + sum(self.sizes)

    def position(self, offset: int) -> tuple[int, int]:
        """Return the number of the frame with this plain offset, and where it begins among the packed bytes."""
        number = min(offset // self.frame, len(self.sizes))
        return number, self.length + sum(self.sizes[:number])

    def span(self, offset: int, length: int | None) -> tuple[int, int]:
        """Return where the frames of a plain range begin among the packed bytes, and their packed bytes."""
        stop = self.size if length is None else min(self.size, offset + length)
        begin, (_, end) = self.position(offset)[1], self.position(stop + self.frame - 1)
        return begin, max(0, end - begin)

    def plain(
        self, chunks: Iterator[bytes], offset: int = 0, length: int | None = None
    ) -> Generator[bytes, None, None]:
        """Yield plain bytes from `offset`, by the packed bytes from `position(offset)` on.

        Raises `DamagedError` for what is no frame of this size.
        """
        number, _ = self.position(offset)
        skip = offset - number * self.frame
        left = self.size - offset if length is None else min(length, self.size - offset)
        unpacker = Unpacker(self.size, self, number)
        for chunk in chunks if left > 0 else ():
            for data in unpacker.add(chunk):
                part = data[skip : skip + left] if skip or left < len(data) else data
                skip, left = 0, left - len(part)
                yield part
                if left <= 0:
                    return
        if left > 0:
            raise DamagedError("Packed bytes end before their last frame.")


def read_head(read_at: Callable[[int, int], bytes]) -> PackedHead | None:
    """Return the head of bytes that `read_at` reads (offset, length); None for bytes that are not packed."""
    start = read_at(0, FIXED)
    if len(start) < FIXED or not looks_packed(start):
        return None
    length, size, frame = struct.unpack("<4xI4xQI", start)
    count = -(-size // frame) if 0 < frame <= FRAME else 0
    if not 0 < count <= MAX_FRAMES or length != FIXED - 8 + 4 * count:
        return None
    data = read_at(FIXED, 4 * count)
    if len(data) != 4 * count:
        return None
    sizes = array("I", data)
    if sys.byteorder == "big":
        sizes.byteswap()
    return PackedHead(size, frame, sizes) if max(sizes) <= MAX_PACKED else None


def unpack_frame(frame: bytes, size: int) -> bytes:
    """Return the plain bytes of a frame, which has so many. Raises `DamagedError`; takes no more memory than that."""
    import zstandard

    try:
        if zstandard.frame_content_size(frame) != size:
            raise DamagedError("A packed frame has another size than its head says.")
        found: Any = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW).decompress(frame)
    except zstandard.ZstdError as problem:
        raise DamagedError(f"A packed frame cannot be read: {problem}.") from None
    if len(found) != size:
        raise DamagedError("A packed frame has another size than its head says.")
    return bytes(found)


class Unpacker:
    """Packed bytes that arrive in chunks, as the plain bytes of their frames.

    `most`: the plain bytes that it takes. `head`, `number`: of bytes that begin with this frame, after their head.
    Raises `DamagedError` for what is not packed, and `TooLargeError`.
    """

    def __init__(self, most: int, head: PackedHead | None = None, number: int = 0) -> None:
        self._most = most
        self._buffer = bytearray()
        self._head, self._number = head, number

    @property
    def size(self) -> int | None:
        """The number of the plain bytes; None before their head has arrived."""
        return None if self._head is None else self._head.size

    def add(self, data: Data) -> Iterator[bytes]:
        """Yield the plain bytes of the frames that are complete with further bytes."""
        self._buffer += data
        if self._head is None and not self._read_head():
            return
        head, at = self._head, 0
        assert head is not None
        while self._number < len(head.sizes) and len(self._buffer) - at >= head.sizes[self._number]:
            stop, plain = at + head.sizes[self._number], min(head.frame, head.size - self._number * head.frame)
            frame, at, self._number = bytes(memoryview(self._buffer)[at:stop]), stop, self._number + 1
            yield unpack_frame(frame, plain)
        del self._buffer[:at]

    def finish(self) -> None:
        """Raise `DamagedError` if frames are missing, or something follows them."""
        if self._head is None or self._number < len(self._head.sizes) or self._buffer:
            raise DamagedError("Packed bytes end before their last frame, or go on after it.")

    def _read_head(self) -> bool:
        if len(self._buffer) < FIXED:
            return False
        length = struct.unpack_from("<I", self._buffer, 4)[0] + 8
        if looks_packed(self._buffer) and FIXED < length <= FIXED + 4 * MAX_FRAMES:
            if len(self._buffer) < length:
                return False
            self._head = read_head(lambda at, size: bytes(self._buffer[at : at + size]))
        if self._head is None:
            raise DamagedError("Packed bytes have no valid head.")
        if self._head.size > self._most:
            raise TooLargeError(f"Packed bytes stand for {self._head.size} bytes; at most {self._most} are taken.")
        del self._buffer[:length]
        return True


def plain_stream(chunks: Iterator[bytes], most: int) -> Iterator[bytes]:
    """Yield the plain bytes of a stream, which may be packed; of packed ones at most `most`. Raises `DamagedError`."""
    start = bytearray()
    for chunk in chunks:
        start += chunk
        if len(start) >= FIXED:
            break
    if not looks_packed(start):
        yield bytes(start)
        yield from chunks
        return
    unpacker = Unpacker(most)
    try:
        for chunk in chain((bytes(start),), chunks):
            yield from unpacker.add(chunk)
    except TooLargeError as problem:
        raise DamagedError(problem.message) from None
    unpacker.finish()


@contextmanager
def smaller_body(chunks: Iterator[bytes], size: int) -> Iterator[tuple[Iterator[bytes], int, bool]]:
    """Yield so many bytes in chunks, packed if that pays and is possible; their size; and whether they are packed."""
    start = bytearray()
    while len(start) < min(SAMPLE, size) and (chunk := next(chunks, b"")):
        start += chunk
    every = chain((bytes(start),), chunks)
    if not (available() and pays(start, size)):
        yield every, size, False
        return
    packer = Packer(size)
    with tempfile.SpooledTemporaryFile(SPOOLED) as file:
        with disk.faults(Path(tempfile.gettempdir())):
            file.write(bytes(packer.head_size))
            frames = (frame for data in every for frame in packer.add(data))
            for frame in chain(frames, packer.finish()):
                file.write(frame)
            length = file.tell()
            file.seek(0)
            file.write(packer.head)
            file.seek(0)
        yield iter(partial(file.read, CHUNK), b""), length, True
