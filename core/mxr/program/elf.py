"""AMDGPU code objects in ELF form: the ISA in the header's flags, and the metadata note as second witness.

Source for the layout: LLVM's docs/AMDGPUUsage, "Code Object"; the ELF-64 object file format.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from mxr.artifact.target import SRAMECC, XNACK, GfxArch
from mxr.errors import Damaged
from mxr.program.container import Walker
from mxr.program.isa import MACHINES, meet, read_isa
from mxr.program.source import BytesSource, Source, Span

MAGIC = b"\x7fELF"
_AMDGPU = 224
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_NOTE_SEGMENT, _NOTE_SECTION = 4, 7
_METADATA, _OLD_ISA_VERSION, _OLD_ISA_NAME = 32, 3, 11
_MOST_TABLE_ROWS, _MOST_NOTES, _LONGEST_NOTES = 64, 64, 1 << 20
_TARGET_KEY = b"\xadamdhsa.target"
_SWITCH = (None, None, "-", "+")


@dataclass(slots=True)
class Allowance:
    """What may still be spent on one program's code objects, so that crafted ones cost no more than their bytes."""

    notes: int
    inflated: int


@dataclass(frozen=True, slots=True)
class CodeObject:
    """What one code object says of itself.

    `isas` are alternatives, any of which may be loaded; `packing` is `ELF`, `bundle`, `compressed bundle` or
    `unknown`; `version` is the code object version, 2 to 6, or None; `problem` says what was found wrong.
    """

    isas: frozenset[GfxArch]
    packing: str
    version: int | None = None
    confirmed: bool = False
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class _Header:
    abi: int
    flags: int
    segments: tuple[int, int, int]
    sections: tuple[int, int, int]


def read_elf(source: Source, allowance: Allowance) -> CodeObject:
    """The code object in `source`, which begins with the ELF magic. Never raises: what is wrong is its `problem`."""
    header = _read_header(source.read_at(0, 64))
    if header is None:
        return CodeObject(frozenset(), "ELF", problem="is an ELF file, but not an AMDGPU code object")
    version = header.abi + 2 if header.abi <= 4 else None
    told = _isa_of_flags(header)
    witness = _witness(source, header, allowance)
    isa = told or witness
    if isa is None:
        return CodeObject(
            frozenset(), "ELF", version, problem=f"is for a processor mxr does not know (e_flags {header.flags:#x})"
        )
    agrees = witness is not None and told is not None and meet(told, witness) is not None
    problem = None
    if told is not None and witness is not None and not agrees:
        problem = f"says {told} in its ELF flags and {witness} in its metadata note"
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
    # Before version 4 a clear bit is "off" where the processor has the switch, and nothing where it has none.
    sramecc = "+" if flags & 0x200 else "-"
    xnack = "+" if flags & 0x100 else "-"
    return GfxArch(processor, sramecc if processor in SRAMECC else None, xnack if processor in XNACK else None)


def _witness(source: Source, header: _Header, allowance: Allowance) -> GfxArch | None:
    left = source.size
    for span in _note_spans(source, header):
        length = min(span.size, _LONGEST_NOTES, left, allowance.notes)
        left, allowance.notes = left - length, allowance.notes - length
        for kind, owner, text in _notes(source.read_at(span.offset, length)):
            isa = _isa_of_note(kind, owner, text)
            if isa is not None:
                return isa
    return None


def _note_spans(source: Source, header: _Header) -> list[Span]:
    """Where the tables say that notes lie, each stretch once; tables that lie past the end say nothing."""
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
    rows = source.read_at(offset, width * min(count, _MOST_TABLE_ROWS))
    for start in range(0, len(rows) - form.size + 1, width):
        yield form.unpack_from(rows, start)


def _notes(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Kind, owner and text of each note, as far as they lie within `data`."""
    at = 0
    for _ in range(_MOST_NOTES):
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
    """The ISA of a version 2 note, in which gfx901, 903, 905 and 907 are 900, 902, 904 and 906 with xnack.

    Source: LLVM's docs/AMDGPUUsage, "Code Object V2 Note Records".
    """
    if max(major, minor, stepping) > 99:
        return None
    if (major, minor) == (9, 0) and stepping in (1, 3, 5, 7):
        return GfxArch(f"gfx90{stepping - 1}", xnack="+")
    return read_isa(f"gfx{major}{minor:x}{stepping:x}")


def _isa_of_metadata(text: bytes) -> GfxArch | None:
    """The target that the metadata map names.

    Its key is looked for by its bytes, not by walking the kernels before it: that would cost more than all else.
    """
    at = text.rfind(_TARGET_KEY)
    if at < 0:
        return None
    try:
        return read_isa(Walker(BytesSource(text[at + len(_TARGET_KEY) :][:256])).key())
    except Damaged:
        return None
