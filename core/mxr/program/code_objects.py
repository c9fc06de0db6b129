"""Summarizes the code objects of a program, their ISAs and their problems, also in Clang offload bundles.

Source of the bundles: LLVM's docs/ClangOffloadBundler and clang/lib/Driver/OffloadBundler.cpp.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections import Counter
from collections.abc import Iterator

from mxr.artifact.target import GfxArch
from mxr.program.description import Basis, Certainty
from mxr.program.elf import MAGIC as ELF_MAGIC
from mxr.program.elf import Allowance, CodeObject, read_elf
from mxr.program.isa import can_intersect, intersect, read_isa
from mxr.program.messagepack import Binary
from mxr.program.source import BytesSource, Source, Span, SplicedSource

MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
COMPRESSED_MAGIC = b"CCOB"
MAX_INFLATED_BYTES = 64 << 20
"""Maximum number of bytes to which all compressed bundles of one program may decompress, damaged ones included."""

MIN_INFLATED_BYTES = 4 << 10
"""Bytes that every compressed bundle counts at least, so that their number is limited, too."""

_MAX_ENTRIES, _MAX_ID_LENGTH, _MAX_DEPTH = 64, 4096, 3
_MAX_COMPRESSED = 32 << 20
_HEADER_SIZE = {1: 20, 2: 24, 3: 32}
"""Header bytes of a compressed bundle, by version."""
_ZLIB, _ZSTD = 0, 1
_STEP = 64 << 10
"""Bytes that are decompressed at once."""


def read_code_object(source: Source, allowance: Allowance) -> CodeObject:
    """Read one code object in any packing. Never raises for bad content: `problem` describes what is wrong."""
    return _read(source, allowance, depth=0)


def _read(source: Source, allowance: Allowance, depth: int) -> CodeObject:
    head = source.read_at(0, len(MAGIC))
    if head.startswith(ELF_MAGIC):
        return read_elf(source, allowance)
    if depth >= _MAX_DEPTH:
        return CodeObject(frozenset(), "bundle", problem=f"nests bundles more than {_MAX_DEPTH} deep", unread=True)
    if head == MAGIC:
        return _read_bundle(source, allowance, depth)
    if head.startswith(COMPRESSED_MAGIC):
        return _read_compressed(source, allowance, depth)
    return CodeObject(frozenset(), "unknown", problem="has a packing that mxr does not know", unread=True)


def _read_bundle(source: Source, allowance: Allowance, depth: int) -> CodeObject:
    """The ISAs are those of the code objects. The label of an entry that cannot be read proves nothing."""
    isas: set[GfxArch] = set()
    problems: list[str] = []
    confirmed = unread = False
    left = source.size
    for target, span in _entries(source):
        named = read_isa(target)
        if target.startswith("host") or named is None:
            continue
        left -= span.size
        if span.end > source.size or left < 0:
            problems.append("is a bundle with entries beyond its end")
            unread = True
            break
        inner = _read(SplicedSource(source, (span,)), allowance, depth + 1)
        isas |= inner.isas
        unread |= inner.unread
        agrees = any(intersect(named, isa) is not None for isa in inner.isas)
        confirmed |= agrees
        problems += [inner.problem] if inner.problem else []
        if inner.isas and not agrees:
            problems.append(f"is labelled {named} by its bundle but contains code for {_joined(inner.isas)}")
    if not isas:
        problems.append("is a bundle without a GPU code object")
    problem = problems[0] if problems else None
    return CodeObject(frozenset(isas), "bundle", None, confirmed, problem, unread or not isas)


def _joined(isas: frozenset[GfxArch]) -> str:
    return ", ".join(sorted(str(isa) for isa in isas))


def _entries(source: Source) -> Iterator[tuple[str, Span]]:
    """The target id and the span of each entry, up to the end of the source."""
    at = len(MAGIC)
    (count,) = struct.unpack("<Q", source.read_at(at, 8).ljust(8, b"\0"))
    at += 8
    for _ in range(min(count, _MAX_ENTRIES)):
        row = source.read_at(at, 24)
        if len(row) < 24:
            return
        offset, size, id_size = struct.unpack("<QQQ", row)
        if id_size > _MAX_ID_LENGTH:
            return
        yield source.read_at(at + 24, id_size).decode("ascii", "replace"), Span(offset, size)
        at += 24 + id_size


def _read_compressed(source: Source, allowance: Allowance, depth: int) -> CodeObject:
    version, method = struct.unpack("<HH", source.read_at(4, 4).ljust(4, b"\0"))
    header_size = _HEADER_SIZE.get(version)
    if header_size is None or method not in (_ZLIB, _ZSTD):
        return _unread(f"is a compressed bundle of unsupported version {version} or method {method}")
    most = _declared_size(source, version)
    if most > allowance.inflated:
        return _unread("is a compressed bundle that exceeds the size limit of mxr")
    payload = source.read_at(header_size, min(source.size, _MAX_COMPRESSED))
    data = bytearray()
    try:
        intact = _inflate(payload, method, most, data)
    except ImportError:
        return _unread("is a bundle compressed with zstd, and the Python package zstandard is not installed")
    # Before an error, up to one further step was decompressed and is lost.
    allowance.inflated -= max(MIN_INFLATED_BYTES, len(data) + (0 if intact else _STEP))
    if not intact:
        return _unread("is a damaged compressed bundle")
    if len(data) > most:
        return _unread("is a compressed bundle that exceeds its declared size")
    inner = _read(BytesSource(bytes(data)), allowance, depth + 1)
    return CodeObject(inner.isas, "compressed bundle", inner.version, inner.confirmed, inner.problem, inner.unread)


def _declared_size(source: Source, version: int) -> int:
    """The decompressed size that the header of the bundle declares."""
    at, form = {1: (8, "<I"), 2: (12, "<I"), 3: (16, "<Q")}[version]
    width = struct.calcsize(form)
    size: int = struct.unpack(form, source.read_at(at, width).ljust(width, b"\0"))[0]
    return size


def _unread(problem: str) -> CodeObject:
    return CodeObject(frozenset(), "compressed bundle", problem=problem, unread=True)


def _inflate(payload: bytes, method: int, most: int, data: bytearray) -> bool:
    """Append the decompressed bytes to `data`, at most `most + 1` of them. Returns whether they are intact so far."""
    return _inflate_zlib(payload, most, data) if method == _ZLIB else _inflate_zstd(payload, most, data)


def _inflate_zlib(payload: bytes, most: int, data: bytearray) -> bool:
    unpacker = zlib.decompressobj()
    for start in range(0, len(payload), _STEP):
        rest = payload[start : start + _STEP]
        while rest and len(data) <= most:
            try:
                data += unpacker.decompress(rest, min(_STEP, most + 1 - len(data)))
            except zlib.error:
                return False
            rest = unpacker.unconsumed_tail
    return unpacker.eof or len(data) > most


def _inflate_zstd(payload: bytes, most: int, data: bytearray) -> bool:
    import zstandard  # optional: not part of Python before 3.14, and only these bundles need it

    try:
        reader = zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(io.BytesIO(payload))
        while len(data) <= most and (step := reader.read(min(_STEP, most + 1 - len(data)))):
            data += step
    except zstandard.ZstdError:
        return False
    return True


_READ_WHOLE = 1 << 20
"""Bytes up to which a code object is read at once."""
_MAX_ISA_SETS, _MAX_PROBLEMS = 256, 8


class CodeObjects:
    """Reads code objects one by one and keeps only their summary."""

    def __init__(self, source: Source, file_size: int) -> None:
        self._source = source
        self._allowance = Allowance(notes=file_size + (1 << 20), inflated=MAX_INFLATED_BYTES)
        self._isa_sets: Counter[frozenset[GfxArch]] = Counter()
        self._packings: Counter[str] = Counter()
        self._confirmed = 0
        self.count = self.bytes = self.mlir = self.unread = 0
        self.problems: Counter[str] = Counter()

    def add(self, binary: Binary, symbol: str) -> None:
        """Read one code object, which contains the kernel `symbol`."""
        self.count += 1
        self.bytes += binary.size
        self.mlir += symbol.startswith("mlir_")
        found = read_code_object(self._view(binary), self._allowance)
        self._packings[found.packing] += 1
        self._confirmed += found.confirmed
        self.unread += found.unread
        if found.isas and (found.isas in self._isa_sets or len(self._isa_sets) < _MAX_ISA_SETS):
            self._isa_sets[found.isas] += 1
        if found.problem and (found.problem in self.problems or len(self.problems) < _MAX_PROBLEMS):
            self.problems[found.problem] += 1

    def _view(self, binary: Binary) -> Source:
        if len(binary.spans) == 1 and binary.size <= _READ_WHOLE:
            return BytesSource(self._source.read_at(*binary.spans[0]))
        return SplicedSource(self._source, binary.spans)

    def archs(self) -> tuple[str, ...]:
        """The ISAs of all code objects, sorted."""
        return tuple(sorted({str(isa) for isas in self._isa_sets for isa in isas}))

    def are_mixed(self) -> bool:
        """Whether no single device can load all code objects."""
        return not can_intersect(self._isa_sets)

    def ground(self) -> Basis:
        """How certain the archs are, and why."""
        known = sum(self._isa_sets.values())
        if not known:
            return Basis(Certainty.UNKNOWN, f"{_counted(self.count)}, none with a readable ISA")
        packed = ", ".join(name for name, _ in self._packings.most_common() if name not in ("ELF", "unknown"))
        text = f"ELF flags of {_counted(known)}" + (f" ({packed})" if packed else "")
        text += f", {self._confirmed} confirmed by a second source" if self._confirmed else ""
        certain = known == self.count and not self.problems
        return Basis(Certainty.CERTAIN if certain else Certainty.STRONG, text)

    def warnings(self) -> list[str]:
        """The problems of the code objects, as sentences."""
        found = [f"{_counted(count).capitalize()} {problem}." for problem, count in self.problems.items()]
        if self.are_mixed():
            found.append(f"No single device can run all code objects: they are for {', '.join(self.archs())}.")
        return found


def _counted(count: int) -> str:
    return "1 code object" if count == 1 else f"{count} code objects"
