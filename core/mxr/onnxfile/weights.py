"""Digests of the weights of a model, to see whether a program holds them."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from hashlib import sha256
from pathlib import Path

from mxr.util.hashing import read_chunks, sha256_chunks

from .external import EXTERNAL_DATA
from .protobuf import Bytes, MalformedProtobuf, Span, fields, message, opened, text_of

MOST = 256 << 20
"""Bytes of the weights that are hashed: some large ones tell as much as all of them."""

PIECE = 1 << 22


def weight_digests(model: Path, external: Mapping[str, Path], sizes: Collection[int]) -> list[str]:
    """Return the sha256 of the bytes of each initializer that has one of these sizes in bytes.

    `external`: the files of the external data by location. The model was read before. Raises `OSError`, and
    `TemporaryError` for a file that changes meanwhile.
    """
    try:
        return list(_digests(model, external, sizes))
    except (MalformedProtobuf, KeyError, ValueError):
        return []  # another file was put there since: nothing can be said of its weights


def _digests(model: Path, external: Mapping[str, Path], sizes: Collection[int]) -> Iterator[str]:
    left = MOST
    with opened(model) as data:
        for tensor in _initializers(data):
            raw, outside = _place(data, tensor)
            size = raw[1] - raw[0] if outside is None else outside[2]
            if size not in sizes or size > left:
                continue
            left -= size
            if outside is None:
                digest = sha256()
                for at in range(*raw, PIECE):
                    digest.update(data[at : min(at + PIECE, raw[1])])
                yield digest.hexdigest()
                continue
            descriptor = os.open(external[outside[0]], os.O_RDONLY | os.O_CLOEXEC)
            try:
                yield sha256_chunks(read_chunks(descriptor, outside[1], size))
            finally:
                os.close(descriptor)


def _initializers(data: Bytes) -> Iterator[Span]:
    for tag, start, stop in fields(data, 0, len(data)):
        if tag == message(7):
            yield from ((a, b) for inner, a, b in fields(data, start, stop) if inner == message(5))


def _place(data: Bytes, tensor: Span) -> tuple[Span, tuple[str, int, int] | None]:
    """Where the bytes of a tensor are: the span of its raw data, or location, offset and length of external data."""
    raw, entries = (0, 0), dict[str, str]()
    for tag, start, stop in fields(data, *tensor):
        if tag == message(9):
            raw = (start, stop)
        elif tag == EXTERNAL_DATA:
            entries[text_of(data, [(start, stop)], 1)] = text_of(data, [(start, stop)], 2)
    if not entries:
        return raw, None
    return raw, (entries.get("location", ""), int(entries.get("offset", 0)), int(entries.get("length", 0)))
