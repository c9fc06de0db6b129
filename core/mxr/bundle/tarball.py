"""A tar of plain files, written so that the same files are the same bytes, and read with no trust at all.

Written: POSIX ustar headers with mode 0644, owner 0 and time 0. Read: plain files and folders in the ustar and GNU
forms; everything else (links, devices, extended headers, names that leave the folder, names twice) is refused.

Source: POSIX.1-2017, pax, "ustar Interchange Format"; sizes of 8 GiB and more in GNU's base-256 form (GNU tar manual,
"Extensions to the archive format").
"""

from __future__ import annotations

import os
from pathlib import Path

from mxr.artifact.manifest import check_name
from mxr.errors import Damaged
from mxr.util.frozen import dataclass

BLOCK = 512
MOST_MEMBERS = 200_000
CHUNK = 1 << 20
END = bytes(2 * BLOCK)

FILE, OLD_FILE, FOLDER = b"0", b"\0", b"5"
LARGEST_OCTAL = 8**11 - 1


@dataclass(frozen=True, slots=True)
class TarMember:
    """A file in a tar: where its bytes begin, and how many there are."""

    name: str
    offset: int
    size: int


def header(name: str, size: int) -> bytes:
    """The header of a plain file. Names have at most 100 bytes."""
    encoded = name.encode()
    assert len(encoded) <= 100, name
    length = _octal(size, 12) if size <= LARGEST_OCTAL else b"\x80" + size.to_bytes(11, "big")
    head = b"".join(
        (
            encoded.ljust(100, b"\0"),
            _octal(0o644, 8) + _octal(0, 8) + _octal(0, 8),
            length,
            _octal(0, 12),
            b" " * 8,
            FILE,
            bytes(100),
            b"ustar\x0000",
            bytes(64),
            _octal(0, 8) + _octal(0, 8),
        )
    ).ljust(BLOCK, b"\0")
    return head[:148] + b"%06o\0 " % sum(head) + head[156:]


def _octal(value: int, width: int) -> bytes:
    """A number as a header spells it: octal digits and a NUL."""
    return (b"%o" % value).rjust(width - 1, b"0") + b"\0"


def padded(size: int) -> int:
    """Bytes that a file of this size takes in a tar, without its header."""
    return -(-size // BLOCK) * BLOCK


def members(descriptor: int, path: Path) -> dict[str, TarMember]:
    """The files of a tar by name. Only headers and what fills up the last blocks are read.

    Raises `Damaged` that says where the tar is cut short, changed, or not as mxr takes it.
    """
    total, at = os.fstat(descriptor).st_size, 0
    found: dict[str, TarMember] = {}
    while True:
        head = os.pread(descriptor, BLOCK, at)
        if len(head) < BLOCK:
            raise _damaged(path, f"it is cut short at byte {at + len(head)}: its end is missing")
        if not any(head):
            _check_end(descriptor, path, at, total)
            return found
        member = _member(head, at, path)
        if at + BLOCK + padded(member.size) > total:
            raise _damaged(path, f"it is cut short in {member.name}: {total} bytes are there")
        if member.name in found or len(found) >= MOST_MEMBERS:
            raise _damaged(path, f"it has {member.name} twice, or too many files")
        _check_fill(descriptor, path, member)
        if head[156:157] != FOLDER:
            found[member.name] = member
        at = member.offset + padded(member.size)


def _member(head: bytes, at: int, path: Path) -> TarMember:
    if not _summed(head):
        raise _damaged(path, f"the header at byte {at} is changed, or it is no tar")
    kind, magic = head[156:157], head[257:265]
    if magic not in (b"ustar\x0000", b"ustar  \0") or kind not in (FILE, OLD_FILE, FOLDER):
        raise _damaged(path, f"at byte {at} is something other than a plain file (pack it with tar --format=ustar)")
    prefix = head[345:500].split(b"\0")[0] if magic == b"ustar\x0000" else b""
    raw = b"/".join(part for part in (prefix, head[:100].split(b"\0")[0]) if part)
    size = _number(head[124:136])
    try:
        name = raw.decode().removeprefix("./").rstrip("/") or "."
        if name != ".":
            check_name(name)
    except Exception:
        raise _damaged(path, f"the name at byte {at} is no name of a file in it") from None
    if size is None or (kind == FOLDER and size):
        raise _damaged(path, f"the size at byte {at} is none")
    return TarMember(name, at + BLOCK, size)


def _summed(head: bytes) -> bool:
    """Whether the header's checksum, spelt as the usual tars spell it, is that of the rest."""
    total = sum(head) - sum(head[148:156]) + 8 * ord(" ")
    return head[148:156] in (b"%06o\0 " % total, b"%06o \0" % total, b"%07o\0" % total)


def _number(data: bytes) -> int | None:
    if data[:1] == b"\x80":
        found = int.from_bytes(data[1:], "big")
        return found if found < 2**53 else None
    digits = data.strip(b" \0")
    return int(digits, 8) if digits and all(each in b"01234567" for each in digits) else None


def _check_fill(descriptor: int, path: Path, member: TarMember) -> None:
    end = member.offset + member.size
    if any(os.pread(descriptor, padded(member.size) - member.size, end)):
        raise _damaged(path, f"there is something behind the end of {member.name}")


def _check_end(descriptor: int, path: Path, at: int, total: int) -> None:
    if total - at < len(END):
        raise _damaged(path, f"it is cut short at byte {total}: its end is missing")
    while data := os.pread(descriptor, CHUNK, at):
        if any(data):
            raise _damaged(path, f"there is something behind its end, after byte {at}")
        at += len(data)


def _damaged(path: Path, what: str) -> Damaged:
    return Damaged(f"{path} is not a whole bundle: {what}.", hint="Copy it again from where it was exported.")
