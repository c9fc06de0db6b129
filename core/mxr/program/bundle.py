"""Clang offload bundles, plain and compressed: several code objects in one, each under the id of its target.

Source: LLVM's docs/ClangOffloadBundler and clang/lib/Driver/OffloadBundler.cpp.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator

from mxr.artifact.target import GfxArch
from mxr.program.elf import MAGIC as ELF_MAGIC
from mxr.program.elf import Allowance, CodeObject, read_elf
from mxr.program.isa import meet, read_isa
from mxr.program.source import BytesSource, Source, Span, SplicedSource

MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
COMPRESSED_MAGIC = b"CCOB"
MOST_INFLATED = 64 << 20
"""Bytes that the compressed bundles of one program may unpack to."""

_MOST_ENTRIES, _LONGEST_ID, _DEEPEST = 64, 4096, 3
_MOST_PACKED = 32 << 20
_HEAD = {1: 20, 2: 24, 3: 32}
_ZLIB, _ZSTD = 0, 1


def read_code_object(source: Source, allowance: Allowance) -> CodeObject:
    """What the bytes of one code object say, however they are packed. Never raises: what is wrong is its `problem`."""
    return _read(source, allowance, depth=0)


def _read(source: Source, allowance: Allowance, depth: int) -> CodeObject:
    head = source.read_at(0, len(MAGIC))
    if head.startswith(ELF_MAGIC):
        return read_elf(source, allowance)
    if depth >= _DEEPEST:
        return CodeObject(frozenset(), "bundle", problem=f"holds bundles in bundles, {_DEEPEST} deep")
    if head == MAGIC:
        return _read_bundle(source, allowance, depth)
    if head.startswith(COMPRESSED_MAGIC):
        return _read_compressed(source, allowance, depth)
    return CodeObject(frozenset(), "unknown", problem="is packed in a way that mxr does not know")


def _read_bundle(source: Source, allowance: Allowance, depth: int) -> CodeObject:
    isas: set[GfxArch] = set()
    problems: list[str] = []
    confirmed = False
    left = source.size
    for target, span in _entries(source):
        named = read_isa(target)
        if target.startswith("host") or named is None:
            continue
        left -= span.size
        if span.end > source.size or left < 0:
            problems.append("is a bundle whose entries reach past its end")
            isas.add(named)
            break
        inner = _read(SplicedSource(source, (span,)), allowance, depth + 1)
        isas |= inner.isas or {named}
        agrees = any(meet(named, isa) is not None for isa in inner.isas)
        confirmed |= agrees
        problems += [inner.problem] if inner.problem else []
        if inner.isas and not agrees:
            problems.append(f"is called {named} by its bundle and holds code for {_listed(inner.isas)}")
    if not isas:
        problems.append("is a bundle without a code object for any GPU")
    return CodeObject(frozenset(isas), "bundle", None, confirmed, problems[0] if problems else None)


def _listed(isas: frozenset[GfxArch]) -> str:
    return ", ".join(sorted(str(isa) for isa in isas))


def _entries(source: Source) -> Iterator[tuple[str, Span]]:
    """Target id and place of each entry, as far as the table lies within the source."""
    at = len(MAGIC)
    (count,) = struct.unpack("<Q", source.read_at(at, 8).ljust(8, b"\0"))
    at += 8
    for _ in range(min(count, _MOST_ENTRIES)):
        row = source.read_at(at, 24)
        if len(row) < 24:
            return
        offset, size, id_size = struct.unpack("<QQQ", row)
        if id_size > _LONGEST_ID:
            return
        yield source.read_at(at + 24, id_size).decode("ascii", "replace"), Span(offset, size)
        at += 24 + id_size


def _read_compressed(source: Source, allowance: Allowance, depth: int) -> CodeObject:
    version, method = struct.unpack("<HH", source.read_at(4, 4).ljust(4, b"\0"))
    head = _HEAD.get(version)
    if head is None or method not in (_ZLIB, _ZSTD):
        return _unread(f"is a compressed bundle of version {version} and method {method}, which mxr does not know")
    most = min(allowance.inflated, _announced(source, version))
    payload = source.read_at(head, min(source.size, _MOST_PACKED))
    try:
        data = _inflate(payload, method, most)
    except ImportError:
        return _unread("is a bundle compressed with zstd, and the Python package zstandard is not installed")
    if data is None:
        return _unread("is a compressed bundle that is damaged")
    if len(data) > most:
        return _unread("is a compressed bundle that unpacks to more than it announces, or than mxr is willing to read")
    allowance.inflated -= len(data)
    inner = _read(BytesSource(data), allowance, depth + 1)
    return CodeObject(inner.isas, "compressed bundle", inner.version, inner.confirmed, inner.problem)


def _announced(source: Source, version: int) -> int:
    """The unpacked size that the bundle's head names."""
    at, form = {1: (8, "<I"), 2: (12, "<I"), 3: (16, "<Q")}[version]
    width = struct.calcsize(form)
    size: int = struct.unpack(form, source.read_at(at, width).ljust(width, b"\0"))[0]
    return size


def _unread(problem: str) -> CodeObject:
    return CodeObject(frozenset(), "compressed bundle", problem=problem)


def _inflate(payload: bytes, method: int, most: int) -> bytes | None:
    """The unpacked bytes, or one more than `most` of them; None where they do not unpack."""
    if method == _ZLIB:
        try:
            return zlib.decompressobj().decompress(payload, most + 1)
        except zlib.error:
            return None
    import zstandard  # not part of Python before 3.14, and not needed by anyone without such bundles

    try:
        unpacker = zstandard.ZstdDecompressor(max_window_size=1 << 27)
        return unpacker.stream_reader(io.BytesIO(payload)).read(most + 1)
    except zstandard.ZstdError:
        return None
