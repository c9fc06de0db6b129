"""Identifies files that are not MIGraphX programs by their first bytes."""

from __future__ import annotations

from mxr.errors import DamagedError
from mxr.program.source import Source

_HINTS = {
    "page": "The download failed: check the URL and the token, and download the file again.",
    "pointer": "Run `git lfs pull` to download the file that the pointer refers to.",
    "packed": "Unpack the archive and pass the .mxr file in it.",
    "onnx": "Pass the .mxr file that was compiled from it, or compile it first.",
    "code": "Pass the .mxr file, not the code object or library.",
    "other": "Pass an .mxr file written by MIGraphX's save().",
}

_MAGICS = (
    (b"version https://git-lfs", "a git-lfs pointer", "pointer"),
    (b"\x1f\x8b", "a gzip archive", "packed"),
    (b"PK\x03\x04", "a zip archive (or a PyTorch file)", "packed"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive", "packed"),
    (b"\xfd7zXZ", "an xz archive", "packed"),
    (b"BZh", "a bzip2 archive", "packed"),
    (b"\x7fELF", "an ELF file (a library, or a GPU code object)", "code"),
    (b"__CLANG_OFFLOAD_BUNDLE__", "a bundle of GPU code objects", "code"),
    (b"CCOB", "a compressed bundle of GPU code objects", "code"),
    (b"\x93NUMPY", "a NumPy array", "other"),
    (b"\x80\x02", "a Python pickle", "other"),
    (b"\x80\x04", "a Python pickle", "other"),
    (b"\x80\x05", "a Python pickle", "other"),
    (b"%PDF", "a PDF", "other"),
    (b"SQLite format 3", "a SQLite database", "other"),
    (b"#!", "a script", "other"),
)
_ONNX_FIELDS = b"\x12\x1a\x22\x28\x32\x3a\x42"


def refuse_foreign(source: Source) -> None:
    """Raise `DamagedError` with the type of the file if its first bytes show that it is not a program."""
    head = source.read_at(0, 512)
    if not head:
        raise DamagedError("The file is empty.", detail={"offset": 0, "looks_like": "an empty file"})
    found = _by_magic(head) or _by_text(head)
    if found is not None:
        what, hint = found
        raise DamagedError(
            f"This is {what}, not a MIGraphX program.", hint=_HINTS[hint], detail={"offset": 0, "looks_like": what}
        )


def _by_magic(head: bytes) -> tuple[str, str] | None:
    for magic, what, hint in _MAGICS:
        if head.startswith(magic):
            return what, hint
    if head[0] == 8 and len(head) > 2 and head[1] < 32 and head[2] in _ONNX_FIELDS:
        return "an ONNX model", "onnx"
    if head[257:262] == b"ustar":
        return "a tar archive", "packed"
    if head[8:9] == b"{" and head[2:8].strip(b"\0") == b"" and b'"' in head[9:12]:
        return "a safetensors file", "other"
    return None


def _by_text(head: bytes) -> tuple[str, str] | None:
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if text.startswith((b"<!doctype html", b"<html", b"<head", b"<body")):
        return "an HTML page", "page"
    if text.startswith(b"<"):
        return "an XML document, such as the error reply of an object store", "page"
    if text.startswith((b"{", b"[")):
        return "JSON other than a program", "other"
    if all(32 <= byte < 127 or byte in b"\t\r\n" for byte in head):
        return "a text file", "other"
    return None
