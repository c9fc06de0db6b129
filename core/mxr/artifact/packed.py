"""Bytes that are stored packed: zstd in independent frames, so that any range can be read without the rest.

    5d 2a 4d 18 | u32 length | "mxr1" | u64 plain size | u32 plain size of a frame | u32 size of each frame | frames

The head is a skippable frame, so that any zstd decoder gives the plain bytes. The identity of bytes is always the
sha256 of the plain ones: packed bytes are a form of them, and no part of a name. Bytes that look packed themselves are
always stored packed, so that the head tells the form for certain.

Source: RFC 8878, 3.1.2 (skippable frames). All numbers are little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Iterator
from importlib.util import find_spec
from typing import Any

from mxr.errors import DamagedError
from mxr.util.frozen import dataclass
from mxr.util.hashing import Data

MAGIC = struct.pack("<I", 0x184D2A5D)
WORD = b"mxr1"
FIXED = 24
"""Bytes of a head without the sizes of its frames."""

FRAME = 256 << 10
"""Plain bytes of a frame."""

MAX_FRAME = 16 << 20
"""Plain bytes of a frame that is read."""

MAX_FRAMES = 1 << 16
MAX_WINDOW = 8 << 20

SAMPLE = 256 << 10
"""Bytes of the sample at the beginning."""

LEAST = 64 << 10
"""Bytes below which packing does not pay."""

GAIN = 0.75
"""The part of a sample from which on packing does not pay."""

LEVEL = 3


def available() -> bool:
    """Whether this process can pack and unpack: it needs the Python package zstandard."""
    return find_spec("zstandard") is not None


def looks_packed(start: Data) -> bool:
    """Whether bytes begin as packed ones do."""
    return bytes(start[:4]) == MAGIC and bytes(start[8:12]) == WORD


def pays(start: Data, size: int) -> bool:
    """Whether to store so many bytes packed that begin with these: at least `SAMPLE`, or all of them."""
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
    sizes: tuple[int, ...]

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
        buffer = bytearray()
        while left > 0:
            size = self.sizes[number]
            while len(buffer) < size:
                chunk = next(chunks, b"")
                if not chunk:
                    raise DamagedError("Packed bytes end before their last frame.")
                buffer += chunk
            data = unpack_frame(bytes(buffer[:size]), min(self.frame, self.size - number * self.frame))
            del buffer[:size]
            data = data[skip : skip + left] if skip or left < len(data) else data
            number, skip, left = number + 1, 0, left - len(data)
            yield data


def read_head(read_at: Callable[[int, int], bytes]) -> PackedHead | None:
    """Return the head of bytes that `read_at` reads (offset, length); None for bytes that are not packed."""
    start = read_at(0, FIXED)
    if len(start) < FIXED or not looks_packed(start):
        return None
    length, size, frame = struct.unpack("<4xI4xQI", start)
    count = -(-size // frame) if 0 < frame <= MAX_FRAME else 0
    if not 0 < count <= MAX_FRAMES or length != FIXED - 8 + 4 * count:
        return None
    sizes = read_at(FIXED, 4 * count)
    return PackedHead(size, frame, struct.unpack(f"<{count}I", sizes)) if len(sizes) == 4 * count else None


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


def plain_stream(chunks: Iterator[bytes], most: int) -> Iterator[bytes]:
    """Yield the plain bytes of a stream, which may be packed; of packed ones at most `most`. Raises `DamagedError`."""
    buffer = bytearray()

    def filled(size: int) -> bool:
        while len(buffer) < size:
            chunk = next(chunks, b"")
            if not chunk:
                return False
            buffer.extend(chunk)
        return True

    if not filled(FIXED) or not looks_packed(buffer):
        yield bytes(buffer)
        yield from chunks
        return

    def read_at(offset: int, length: int) -> bytes:
        filled(offset + length)
        return bytes(buffer[offset : offset + length])

    head = read_head(read_at)
    if head is None or head.size > most:
        raise DamagedError("Packed bytes have no valid head, or are too many.")
    rest = bytes(buffer[head.length :])

    def following() -> Iterator[bytes]:
        if rest:
            yield rest
        yield from chunks

    yield from head.plain(following())
