"""Where a program's bytes come from: anything of known size that can be read at an offset."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Source(Protocol):
    """Bytes of a known size, read by offset: a file here, a store's range reads elsewhere."""

    @property
    def size(self) -> int:
        """How many bytes there are."""
        ...

    def read_at(self, offset: int, length: int) -> bytes:
        """The bytes from `offset` on: `length` of them, or fewer where the source ends."""
        ...


class Span(NamedTuple):
    """A stretch of a source: where it begins and how many bytes it has."""

    offset: int
    size: int

    @property
    def end(self) -> int:
        """The offset just after the last byte."""
        return self.offset + self.size


class BytesSource:
    """A source over bytes in memory."""

    __slots__ = ("_data", "size")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)

    def read_at(self, offset: int, length: int) -> bytes:
        """See `Source.read_at`."""
        return self._data[offset : offset + length]


class FileSource:
    """A source over a file, open until it is closed; a context manager.

    Positioned reads and not a memory map: a file that another process cuts short while it is mapped kills the reader
    with SIGBUS, where a short read is only a truncated program. Raises OSError where the file cannot be opened.
    """

    __slots__ = ("_descriptor", "size")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size = os.fstat(self._descriptor).st_size

    def read_at(self, offset: int, length: int) -> bytes:
        """See `Source.read_at`."""
        return os.pread(self._descriptor, length, offset)

    def close(self) -> None:
        """Close the file; closing twice is fine."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> FileSource:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SplicedSource:
    """A source over some stretches of another, end to end: the chunks of one binary."""

    __slots__ = ("_source", "_spans", "size")

    def __init__(self, source: Source, spans: Sequence[Span]) -> None:
        self._source = source
        self._spans = spans
        self.size = sum(span.size for span in spans)

    def read_at(self, offset: int, length: int) -> bytes:
        """See `Source.read_at`."""
        parts = []
        for span in self._spans:
            if length <= 0:
                break
            if offset >= span.size:
                offset -= span.size
                continue
            taken = min(length, span.size - offset)
            parts.append(self._source.read_at(span.offset + offset, taken))
            offset, length = 0, length - taken
        return parts[0] if len(parts) == 1 else b"".join(parts)
