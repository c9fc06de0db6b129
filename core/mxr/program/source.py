"""Byte sources: anything of known size that can be read at an offset."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Source(Protocol):
    """Bytes of known size that can be read at an offset: a file, or range requests to an object store."""

    @property
    def size(self) -> int:
        """Number of bytes."""
        ...

    def read_at(self, offset: int, length: int) -> bytes:
        """Return `length` bytes from `offset`, or fewer at the end of the source."""
        ...


class Span(NamedTuple):
    """A range of a source: its offset and its size in bytes."""

    offset: int
    size: int

    @property
    def end(self) -> int:
        """Offset after the last byte."""
        return self.offset + self.size


class BytesSource:
    """A source that reads bytes in memory."""

    __slots__ = ("_data", "size")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)

    def read_at(self, offset: int, length: int) -> bytes:
        """See `Source.read_at`."""
        return self._data[offset : offset + length]


class FileSource:
    """A source that reads a file. Use it as a context manager, or call `close`.

    It uses positioned reads instead of a memory map: if another process truncates a mapped file, the reader is killed
    by SIGBUS, while a short read is only a truncated program. Raises OSError if the file cannot be opened.
    """

    __slots__ = ("_descriptor", "size")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size = os.fstat(self._descriptor).st_size

    def read_at(self, offset: int, length: int) -> bytes:
        """See `Source.read_at`."""
        return os.pread(self._descriptor, length, offset)

    def close(self) -> None:
        """Close the file. A second call has no effect."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> FileSource:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SplicedSource:
    """A source that concatenates spans of another source, such as the chunks of one binary."""

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
