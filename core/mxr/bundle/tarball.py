"""Reads and writes tars of plain files: the output is reproducible, the input is not trusted.

Writes POSIX ustar headers with mode 0644, owner 0 and time 0. Reads plain files and folders in the ustar and GNU
formats, and rejects everything else: links, devices, extended headers, names outside the folder, duplicate names.

Source: POSIX.1-2017, pax, "ustar Interchange Format"; sizes of 8 GiB and more in GNU's base-256 form (GNU tar manual,
"Extensions to the archive format").
"""

from __future__ import annotations

import os
from pathlib import Path

from mxr.artifact.manifest import check_name
from mxr.display.text import counted
from mxr.errors import DamagedError
from mxr.util.frozen import dataclass
from mxr.util.hashing import read_chunks

BLOCK = 512
MAX_MEMBERS = 200_000
END = bytes(2 * BLOCK)

FILE, OLD_FILE, FOLDER = b"0", b"\0", b"5"
MAX_OCTAL = 8**11 - 1


@dataclass(frozen=True, slots=True)
class TarMember:
    """A file in a tar: the offset and the size of its content in bytes."""

    name: str
    offset: int
    size: int


def header(name: str, size: int) -> bytes:
    """The header of a plain file. The name has at most 100 bytes."""
    encoded = name.encode()
    assert len(encoded) <= 100, name
    length = _octal(size, 12) if size <= MAX_OCTAL else b"\x80" + size.to_bytes(11, "big")
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
    """A number in a header: octal digits and a NUL."""
    return (b"%o" % value).rjust(width - 1, b"0") + b"\0"


def padded(size: int) -> int:
    """The bytes that the content of a file of this size takes in a tar, without its header."""
    return -(-size // BLOCK) * BLOCK


def members(descriptor: int, path: Path) -> dict[str, TarMember]:
    """The files of a tar, by name. Reads only the headers and the padding of the last blocks.

    Raises `DamagedError` with the position at which the tar is truncated, modified, or uses a format that mxr rejects.
    """
    total, at = os.fstat(descriptor).st_size, 0
    found: dict[str, TarMember] = {}
    while True:
        head = os.pread(descriptor, BLOCK, at)
        if len(head) < BLOCK:
            raise _damaged(path, f"it is truncated at byte {at + len(head)}: its end is missing")
        if not any(head):
            _check_end(descriptor, path, at, total)
            return found
        member = _member(head, at, path)
        if at + BLOCK + padded(member.size) > total:
            raise _damaged(path, f"it is truncated in {member.name}: it has only {counted(total, 'byte')}")
        if member.name in found or len(found) >= MAX_MEMBERS:
            raise _damaged(path, f"it contains {member.name} twice, or too many files")
        _check_padding(descriptor, path, member)
        if head[156:157] != FOLDER:
            found[member.name] = member
        at = member.offset + padded(member.size)


def _member(head: bytes, at: int, path: Path) -> TarMember:
    if not _checksum_matches(head):
        raise _damaged(path, f"the header at byte {at} is corrupt, or it is not a tar")
    kind, magic = head[156:157], head[257:265]
    if magic not in (b"ustar\x0000", b"ustar  \0") or kind not in (FILE, OLD_FILE, FOLDER):
        raise _damaged(path, f"the entry at byte {at} is not a plain file (pack it with tar --format=ustar)")
    prefix = head[345:500].split(b"\0")[0] if magic == b"ustar\x0000" else b""
    raw = b"/".join(part for part in (prefix, head[:100].split(b"\0")[0]) if part)
    size = _number(head[124:136])
    try:
        name = raw.decode().removeprefix("./").rstrip("/") or "."
        if name != ".":
            check_name(name)
    except Exception:
        raise _damaged(path, f"the file name at byte {at} is invalid") from None
    if size is None or (kind == FOLDER and size):
        raise _damaged(path, f"the file size at byte {at} is invalid")
    return TarMember(name, at + BLOCK, size)


def _checksum_matches(head: bytes) -> bool:
    """Whether the checksum of the header is correct, in one of the notations that common tars write."""
    total = sum(head) - sum(head[148:156]) + 8 * ord(" ")
    return head[148:156] in (b"%06o\0 " % total, b"%06o \0" % total, b"%07o\0" % total)


def _number(data: bytes) -> int | None:
    if data[:1] == b"\x80":
        found = int.from_bytes(data[1:], "big")
        return found if found < 2**53 else None
    digits = data.strip(b" \0")
    return int(digits, 8) if digits and all(each in b"01234567" for each in digits) else None


def _check_padding(descriptor: int, path: Path, member: TarMember) -> None:
    end = member.offset + member.size
    if any(os.pread(descriptor, padded(member.size) - member.size, end)):
        raise _damaged(path, f"the padding after {member.name} is not empty")


def _check_end(descriptor: int, path: Path, at: int, total: int) -> None:
    if total - at < len(END):
        raise _damaged(path, f"it is truncated at byte {total}: its end is missing")
    for data in read_chunks(descriptor, at):
        if any(data):
            raise _damaged(path, f"it has data after its end, at byte {at}")
        at += len(data)


def _damaged(path: Path, what: str) -> DamagedError:
    return DamagedError(
        f"{path} is not a complete bundle: {what}.", hint="Copy it again from the host that exported it."
    )
