"""Where to cut a program into blobs: at the edges of large weights and code objects, so that the same weights in two
variants become the same blobs.

A large binary becomes blobs of its own, cut only by positions relative to its own start. What lies between two large
ones stays one blob, however small: merged with either it would spoil that one's equality.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from mxr.errors import Damaged
from mxr.program.container import Folding, Walker
from mxr.program.number_types import static_shape
from mxr.program.source import Source, Span

LARGE = 64 << 10
"""Bytes from which a binary is cut out; more where a file would otherwise fall into too many blobs."""
LARGEST = 64 << 20
"""Bytes of the largest blob."""
MOST = 4096
"""Blobs of one file, at most (for files of up to 128 GiB; larger ones get larger blobs)."""

_FREE, _AVERAGE = 16, 1 << 20  # beyond the first few, a blob must be worth a request of its own: some milliseconds


def cut_points(source: Source) -> list[int]:
    """Ascending offsets from 0 to the size: each piece between two neighbours is one blob.

    A large file falls into blobs of a megabyte on average, or more, and none into more than `MOST`.
    A file that is no program, or a damaged one, is cut every `LARGEST` bytes. The points depend on the bytes alone.
    """
    largest = _largest(source.size)
    most = min(MOST, _FREE + source.size // _AVERAGE)
    found = _large_binaries(source)
    least = LARGE
    while True:
        points = _points([span for span in found if span.size >= least], source.size, largest)
        if len(points) <= most + 1:
            return points
        least *= 2


def pieces(source: Source) -> Iterator[Span]:
    """The stretches between the cut points, in order: end to end they are the file."""
    points = cut_points(source)
    for start, end in pairwise(points):
        yield Span(start, end - start)


def _largest(size: int) -> int:
    largest = LARGEST
    while size > largest * MOST // 2:
        largest *= 2
    return largest


def _large_binaries(source: Source) -> list[Span]:
    found: list[Span] = []
    try:
        Walker(source, Folding(static_shape())).skip(LARGE, found)
    except Damaged:
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
