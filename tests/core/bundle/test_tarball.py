"""The tar of a bundle: other programs can read it, and invalid tars are refused."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from mxr.bundle import tarball
from mxr.errors import DamagedError

FILES = {"oci-layout": b"{}", "blobs/sha256/" + "a" * 64: b"x" * 512, "blobs/sha256/" + "b" * 64: b"y" * 700}


def packed(files: dict[str, bytes]) -> bytes:
    body = b"".join(
        tarball.header(name, len(data)) + data.ljust(tarball.padded(len(data)), b"\0") for name, data in files.items()
    )
    return body + tarball.END


def read(data: bytes) -> dict[str, bytes]:
    descriptor = os.memfd_create("a.tar")
    try:
        os.write(descriptor, data)
        found = tarball.members(descriptor, Path("a.tar"))
        return {name: os.pread(descriptor, each.size, each.offset) for name, each in found.items()}
    finally:
        os.close(descriptor)


def test_python_reads_what_is_written() -> None:
    with tarfile.open(fileobj=io.BytesIO(packed(FILES))) as found:
        members = found.getmembers()
        assert {each.name: found.extractfile(each).read() for each in members} == FILES  # type: ignore[union-attr]
        assert {(each.mtime, each.mode, each.uid, each.gid, each.type) for each in members} == {
            (0, 0o644, 0, 0, tarfile.REGTYPE)
        }


@pytest.mark.parametrize("size", [8**11 - 1, 8**11, 5 * 2**40])
def test_sizes_beyond_eight_gigabytes(size: int) -> None:
    head = tarball.header("large", size)
    assert tarfile.TarInfo.frombuf(head, "utf-8", "strict").size == size
    assert tarball._number(head[124:136]) == size


def made(form: int, *rows: Any) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=form) as found:
        for name, kind, data in rows:
            info = tarfile.TarInfo(name)
            info.type, info.size, info.linkname, info.mtime = kind, len(data), "target", 1_700_000_000
            found.addfile(info, io.BytesIO(data))
    return stream.getvalue()


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT])
def test_tars_of_other_programs_are_read(form: int) -> None:
    rows = [("./", tarfile.DIRTYPE, b""), ("./blobs/", tarfile.DIRTYPE, b""), ("./blobs/a", tarfile.REGTYPE, b"1")]
    assert read(made(form, *rows, ("index.json", tarfile.REGTYPE, b"22"))) == {
        "blobs/a": b"1",
        "index.json": b"22",
    }


FILE = tarfile.REGTYPE
ODD = {
    "a symbolic link": made(tarfile.USTAR_FORMAT, ("a", tarfile.SYMTYPE, b"")),
    "a hard link": made(tarfile.USTAR_FORMAT, ("a", tarfile.LNKTYPE, b"")),
    "a device": made(tarfile.USTAR_FORMAT, ("a", tarfile.CHRTYPE, b"")),
    "a pipe": made(tarfile.USTAR_FORMAT, ("a", tarfile.FIFOTYPE, b"")),
    "an extended header": made(tarfile.PAX_FORMAT, ("ü" * 120, FILE, b"")),
    "a long name of GNU's": made(tarfile.GNU_FORMAT, ("n" * 120, FILE, b"")),
    "an absolute name": made(tarfile.USTAR_FORMAT, ("/etc/passwd", FILE, b"x")),
    "a name outside the folder": made(tarfile.USTAR_FORMAT, ("../a", FILE, b"x")),
    "a name that leaves the folder later": made(tarfile.USTAR_FORMAT, ("a/../../b", FILE, b"x")),
    "a name twice": made(tarfile.USTAR_FORMAT, ("a", FILE, b"x"), ("./a", FILE, b"y")),
    "data after the end": packed(FILES) + b"x" * 512,
    "not a tar": b"not a tar at all" * 100,
    "nothing": b"",
    "an ONNX file": b"\x08\x07" * 600,
}


@pytest.mark.parametrize("name", ODD)
def test_invalid_tars_are_refused(name: str) -> None:
    with pytest.raises(DamagedError, match="is not a complete bundle: ") as caught:
        read(ODD[name])
    assert caught.value.hint


def test_a_truncated_tar_is_refused() -> None:
    data = packed(FILES)
    for at in range(len(data)):
        with pytest.raises(DamagedError):
            read(data[:at])


def test_every_changed_byte_outside_of_files_is_detected() -> None:
    data = packed(FILES)
    for at in range(len(data)):
        for bit in (1, 0x20, 0x80):
            changed = bytearray(data)
            changed[at] ^= bit
            try:
                found = read(bytes(changed))
            except DamagedError:
                continue
            differing = [name for name in FILES if found[name] != FILES[name]]
            assert len(differing) == 1 and set(found) == set(FILES), at
