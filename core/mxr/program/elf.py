"""Reads AMDGPU code objects in ELF form: the ISA from the header flags, confirmed by the metadata note.

Source for the layout: LLVM's docs/AMDGPUUsage, "Code Object"; the ELF-64 object file format.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from mxr.artifact.target import SRAMECC, XNACK, GfxArch
from mxr.errors import DamagedError
from mxr.program.container import Walker
from mxr.program.isa import MACHINES, intersect, read_isa
from mxr.program.source import BytesSource, Source, Span

MAGIC = b"\x7fELF"
_AMDGPU = 224
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_NOTE_SEGMENT, _NOTE_SECTION = 4, 7
_METADATA, _OLD_ISA_VERSION, _OLD_ISA_NAME = 32, 3, 11
_MAX_TABLE_ROWS, _MAX_NOTES, _MAX_NOTE_BYTES = 64, 64, 1 << 20
_TARGET_KEY = b"\xadamdhsa.target"
_SWITCH = (None, None, "-", "+")


@dataclass(slots=True)
class Allowance:
    """Bytes that may still be read (`notes`) and decompressed (`inflated`) for the code objects of one program.

    The limits keep the cost of crafted code objects proportional to their size.
    """

    notes: int
    inflated: int


@dataclass(frozen=True, slots=True)
class CodeObject:
    """The facts of one code object.

    `isas` are alternatives: the code object runs on any of them. `packing` is `ELF`, `bundle`, `compressed bundle` or
    `unknown`. `version` is the code object version, 2 to 6, or None. `confirmed` is true if a second source in the file
    agrees with the ISA. `problem` completes a sentence that begins with "the code object". `unread` is true if some of
    the code could not be read, so that it may be for other ISAs, too.
    """

    isas: frozenset[GfxArch]
    packing: str
    version: int | None = None
    confirmed: bool = False
    problem: str | None = None
    unread: bool = False


@dataclass(frozen=True, slots=True)
class _Header:
    abi: int
    flags: int
    segments: tuple[int, int, int]
    sections: tuple[int, int, int]


def read_elf(source: Source, allowance: Allowance) -> CodeObject:
    """Read the code object in `source`, which begins with the ELF magic.

    Never raises for bad content: `problem` describes what is wrong.
    """
    header = _read_header(source.read_at(0, 64))
    if header is None:
        return CodeObject(frozenset(), "ELF", problem="is an ELF file, but not an AMDGPU code object", unread=True)
    version = header.abi + 2 if header.abi <= 4 else None
    in_flags = _isa_of_flags(header)
    in_note = _isa_of_notes(source, header, allowance)
    isa = in_flags or in_note
    if isa is None:
        return CodeObject(
            frozenset(), "ELF", version, problem=f"is for an unknown processor (e_flags {header.flags:#x})", unread=True
        )
    agrees = in_note is not None and in_flags is not None and intersect(in_flags, in_note) is not None
    problem = None
    if in_flags is not None and in_note is not None and not agrees:
        problem = f"has {in_flags} in its ELF flags and {in_note} in its metadata note"
    return CodeObject(frozenset({isa}), "ELF", version, confirmed=agrees, problem=problem)


def _read_header(head: bytes) -> _Header | None:
    if len(head) < 64 or head[4:6] != b"\x02\x01":
        return None
    ident, _, machine, _, _, phoff, shoff, flags, _, phentsize, phnum, shentsize, shnum, _ = _HEADER.unpack(head)
    if machine != _AMDGPU:
        return None
    return _Header(ident[8], flags, (phoff, phentsize, phnum), (shoff, shentsize, shnum))


def _isa_of_flags(header: _Header) -> GfxArch | None:
    flags = header.flags
    processor = MACHINES.get(flags & 0xFF)
    if processor is None:
        return None
    if header.abi >= 2:
        return GfxArch(processor, sramecc=_SWITCH[flags >> 10 & 3], xnack=_SWITCH[flags >> 8 & 3])
    # Before version 4 a clear bit means "off" if the processor has the feature, and nothing if it does not.
    sramecc = "+" if flags & 0x200 else "-"
    xnack = "+" if flags & 0x100 else "-"
    return GfxArch(processor, sramecc if processor in SRAMECC else None, xnack if processor in XNACK else None)


def _isa_of_notes(source: Source, header: _Header, allowance: Allowance) -> GfxArch | None:
    left = source.size
    for span in _note_spans(source, header):
        length = min(span.size, _MAX_NOTE_BYTES, left, allowance.notes)
        left, allowance.notes = left - length, allowance.notes - length
        for kind, owner, text in _notes(source.read_at(span.offset, length)):
            isa = _isa_of_note(kind, owner, text)
            if isa is not None:
                return isa
    return None


def _note_spans(source: Source, header: _Header) -> list[Span]:
    """The distinct spans of notes according to the segment or section table, without those beyond the end."""
    found: dict[Span, None] = {}
    for row in _rows(source, header.segments, _SEGMENT):
        if row[0] == _NOTE_SEGMENT:
            found[Span(row[2], row[5])] = None
    if not found:
        for row in _rows(source, header.sections, _SECTION):
            if row[1] == _NOTE_SECTION:
                found[Span(row[4], row[5])] = None
    return [span for span in found if span.offset < source.size]


def _rows(source: Source, table: tuple[int, int, int], form: struct.Struct) -> Iterator[tuple[int, ...]]:
    offset, width, count = table
    if width < form.size or not offset:
        return
    rows = source.read_at(offset, width * min(count, _MAX_TABLE_ROWS))
    for start in range(0, len(rows) - form.size + 1, width):
        yield form.unpack_from(rows, start)


def _notes(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """The kind, owner and content of each note that lies completely within `data`."""
    at = 0
    for _ in range(_MAX_NOTES):
        if at + 12 > len(data):
            return
        owner_size, text_size, kind = struct.unpack_from("<III", data, at)
        text_at = at + 12 + (owner_size + 3 & ~3)
        if text_at + text_size > len(data):
            return
        yield kind, data[at + 12 : at + 12 + owner_size].rstrip(b"\0"), data[text_at : text_at + text_size]
        at = text_at + (text_size + 3 & ~3)


def _isa_of_note(kind: int, owner: bytes, text: bytes) -> GfxArch | None:
    if owner == b"AMDGPU" and kind == _METADATA:
        return _isa_of_metadata(text)
    if owner == b"AMD" and kind == _OLD_ISA_NAME:
        return read_isa(text.rstrip(b"\0").decode("ascii", "replace"))
    if owner == b"AMD" and kind == _OLD_ISA_VERSION and len(text) >= 16:
        return _isa_of_version(*struct.unpack_from("<III", text, 4))
    return None


def _isa_of_version(major: int, minor: int, stepping: int) -> GfxArch | None:
    """The ISA of a version 2 note. In it, gfx901, 903, 905 and 907 mean gfx900, 902, 904 and 906 with xnack.

    Source: LLVM's docs/AMDGPUUsage, "Code Object V2 Note Records".
    """
    if max(major, minor, stepping) > 99:
        return None
    if (major, minor) == (9, 0) and stepping in (1, 3, 5, 7):
        return GfxArch(f"gfx90{stepping - 1}", xnack="+")
    return read_isa(f"gfx{major}{minor:x}{stepping:x}")


def _isa_of_metadata(text: bytes) -> GfxArch | None:
    """The ISA of the target in the metadata map.

    The function searches for the bytes of the key. To walk over the kernels before it would dominate the running time.
    """
    at = text.rfind(_TARGET_KEY)
    if at < 0:
        return None
    try:
        return read_isa(Walker(BytesSource(text[at + len(_TARGET_KEY) :][:256])).key())
    except DamagedError:
        return None
