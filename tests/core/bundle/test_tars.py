"""The tar of a bundle: those of other programs are read, and a hostile one is refused without taking memory."""

from __future__ import annotations

import resource
import tarfile
from contextlib import closing
from pathlib import Path

import pytest
from core.bundle.tars import packed

from mxr.bundle import image_layout
from mxr.bundle.exporter import _header
from mxr.bundle.image_layout import MAX_MEMBERS, TarLayout
from mxr.errors import DamagedError

FILE = tarfile.REGTYPE
USUAL = (("oci-layout", FILE, b"{}"), ("blobs/a", FILE, b"x" * 512), ("blobs/b", FILE, b"y" * 700))


def read(data: bytes, folder: Path) -> dict[str, bytes]:
    path = folder / "a.tar"
    path.write_bytes(data)
    with closing(TarLayout(path)) as layout:
        return {name: layout.read_at(name, 0, size + 1) for name, size in layout.sizes().items()}


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_tars_of_other_programs_are_read(form: int, tmp_path: Path) -> None:
    rows = [("./", tarfile.DIRTYPE, b""), ("./blobs/", tarfile.DIRTYPE, b""), ("./blobs/a", FILE, b"1")]
    found = read(packed(*rows, ("index.json", FILE, b"22"), form=form), tmp_path)
    assert found == {"blobs/a": b"1", "index.json": b"22"}


@pytest.mark.parametrize("size", [8**11 - 1, 8**11, 5 * 2**40])
def test_headers_have_sizes_beyond_eight_gigabytes(size: int) -> None:
    found = tarfile.TarInfo.frombuf(_header("large", size), "utf-8", "strict")
    assert (found.size, found.mtime, found.mode, found.uid, found.gid, found.type) == (size, 0, 0o644, 0, 0, FILE)


def sized(size: int, kind: bytes = FILE) -> bytes:
    """A tar whose first header says a size that is not there."""
    info = tarfile.TarInfo("a")
    info.size, info.type = size, kind
    return info.tobuf(tarfile.GNU_FORMAT) + bytes(1 << 20)


def endless_map() -> bytes:
    """A sparse file of the old form of GNU: each block of its map says that there is another one."""
    info = tarfile.TarInfo("a")
    info.type = tarfile.GNUTYPE_SPARSE
    head = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    head[482] = 1
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    block = (b"00000000001\0" * 42)[:504] + b"\1" + bytes(7)
    return bytes(head) + block * 2000


ODD = {
    "a symbolic link": packed(("a", tarfile.SYMTYPE, b"")),
    "a hard link": packed(("a", tarfile.LNKTYPE, b"")),
    "a device": packed(("a", tarfile.CHRTYPE, b"")),
    "a pipe": packed(("a", tarfile.FIFOTYPE, b"")),
    "a sparse file": packed(
        ("a", FILE, b"x" * 512),
        form=tarfile.PAX_FORMAT,
        pax_headers={"GNU.sparse.size": "999", "GNU.sparse.map": "0,1", "GNU.sparse.major": "0"},
    ),
    "a name twice": packed(("a", FILE, b"x"), ("./a", FILE, b"y")),
    "a large extension": packed(("a", FILE, b""), form=tarfile.PAX_FORMAT, pax_headers={"comment": "x" * (1 << 20)}),
    "an extension without an end": sized(8**12, tarfile.XHDTYPE),
    "a long name without an end": sized(8**12, tarfile.GNUTYPE_LONGNAME),
    "extensions that have extensions": b"".join(sized(0, tarfile.XHDTYPE)[:512] for _ in range(5000)) + bytes(1024),
    "a sparse file whose map has no end": endless_map(),
    "folders without end": packed(*((f"{at}/", tarfile.DIRTYPE, b"") for at in range(MAX_MEMBERS // 1000 + 1))),
    "a size below nothing": sized(-1024),
    "an extension below nothing": sized(-1024, tarfile.XHDTYPE),
    "a file without its content": sized(8**12),
    "not a tar": b"not a tar at all" * 100,
    "nothing": b"",
    "an ONNX file": b"\x08\x07" * 600,
}


@pytest.mark.parametrize("name", ODD)
def test_invalid_tars_are_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_layout, "MAX_MEMBERS", MAX_MEMBERS // 1000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DamagedError, match="is not a complete bundle: ") as caught:
        read(ODD[name], tmp_path)
    assert caught.value.hint
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


def test_a_file_without_its_whole_content_is_refused(tmp_path: Path) -> None:
    data = packed(*USUAL)
    assert len(read(data, tmp_path)) == 3
    for at in (1, 511, 600, 1600, 2561, 3000):
        with pytest.raises(DamagedError):
            read(data[:at], tmp_path)
