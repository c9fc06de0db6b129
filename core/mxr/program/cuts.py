"""Splits a program into blobs at the edges of large weights and code objects, so that variants share equal blobs.

A large binary becomes one or more blobs of its own, cut only at offsets relative to its start. The bytes between two
large binaries stay one blob, however small: merged with a neighbour they would make that neighbour differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from mxr.errors import DamagedError
from mxr.program.container import Folding, Walker
from mxr.program.number_types import static_shape
from mxr.program.source import Source, Span

LARGE = 64 << 10
"""Minimum size in bytes of a binary that becomes its own blob. Doubled until the file has few enough blobs."""
MAX_BLOB_BYTES = 64 << 20
"""Maximum size of a blob in bytes."""
MAX_BLOBS = 4096
"""Maximum number of blobs of one file, for files of up to 128 GiB; larger files get larger blobs."""

# Each blob costs a request of some milliseconds, so beyond the first few blobs their average size must justify that.
_FREE, _AVERAGE = 16, 1 << 20


def cut_points(source: Source) -> list[int]:
    """Return ascending offsets from 0 to the size; the bytes between two neighbours are one blob.

    The blobs of a large file have 1 MiB or more on average, and no file has more than `MAX_BLOBS`. A file that is
    damaged or not a program is cut every `MAX_BLOB_BYTES` bytes. The result depends only on the bytes.
    """
    largest = _largest(source.size)
    most = min(MAX_BLOBS, _FREE + source.size // _AVERAGE)
    found = _large_binaries(source)
    least = LARGE
    while True:
        points = _points([span for span in found if span.size >= least], source.size, largest)
        if len(points) <= most + 1:
            return points
        least *= 2


def pieces(source: Source) -> Iterator[Span]:
    """Yield the spans between the cut points, in order. Together they cover the whole file."""
    points = cut_points(source)
    for start, end in pairwise(points):
        yield Span(start, end - start)


def _largest(size: int) -> int:
    largest = MAX_BLOB_BYTES
    while size > largest * MAX_BLOBS // 2:
        largest *= 2
    return largest


def _large_binaries(source: Source) -> list[Span]:
    found: list[Span] = []
    try:
        Walker(source, Folding(static_shape())).skip(LARGE, found)
    except DamagedError:
        return []
    return found


def _points(binaries: Sequence[Span], size: int, largest: int) -> list[int]:
    points = [0]
    for start, end in [*((span.offset, span.end) for span in binaries), (size, size)]:
        for edge in (start, end):
            points.extend(range(points[-1] + largest, edge, largest))
            if edge > points[-1]:
                points.append(edge)
    return points
