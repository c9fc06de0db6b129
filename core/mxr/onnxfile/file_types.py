"""Identify a file by its first bytes, for the error about a file that is not of the expected type."""

from __future__ import annotations

HEAD = 512
"""Bytes that are enough for all types."""

POINTER, PROGRAM, MODEL, PAGE, JSON, TEXT = (
    "a Git LFS pointer",
    "a compiled program (.mxr)",
    "an ONNX model",
    "an HTML page",
    "JSON",
    "a text file",
)
AS_JSON, AS_TEXT = "an ONNX model in JSON", "an ONNX model in text form"
GPU_CODE = ("an ELF file (a library, or a GPU code object)", "a bundle of GPU code objects")
ZIP = "a zip archive (or a PyTorch file)"
PACKED = ("a gzip archive", "a zstd archive", "an xz archive", "a bzip2 archive", "a tar archive", ZIP)
XML = "an XML document, such as the error reply of an object store"
ORT = "a model in the ORT format"

_MARKS: tuple[tuple[int, bytes, str], ...] = (
    # offset, bytes at that offset, type of the file
    (0, b"version https://git-lfs", POINTER),
    (0, b"\x1f\x8b", PACKED[0]),
    (0, b"\x28\xb5\x2f\xfd", PACKED[1]),
    (0, b"\xfd7zXZ", PACKED[2]),
    (0, b"BZh", PACKED[3]),
    (257, b"ustar", PACKED[4]),
    (0, b"PK\x03\x04", ZIP),
    (0, b"\x7fELF", GPU_CODE[0]),
    (0, b"__CLANG_OFFLOAD_BUNDLE__", GPU_CODE[1]),
    (0, b"CCOB", GPU_CODE[1]),
    (0, b"\x93NUMPY", "a NumPy array"),
    (0, b"\x80\x02", "a Python pickle"),
    (0, b"\x80\x04", "a Python pickle"),
    (0, b"\x80\x05", "a Python pickle"),
    (0, b"\x89HDF", "an HDF5 file"),
    (0, b"GGUF", "a GGUF file"),
    (4, b"ORTM", ORT),
    (4, b"TFL3", "a TensorFlow Lite model"),
    (0, b"%PDF", "a PDF"),
    (0, b"SQLite format 3", "a SQLite database"),
    (0, b"#!", "a script"),
    (1, b"\xa7version", PROGRAM),
)
_PAGE = "Open the URL in a browser: the download is a page, not the model."
HINTS = {
    PAGE: _PAGE,
    AS_JSON: "Convert it: onnx.save(onnx.load(FILE, format='json'), 'model.onnx').",
    AS_TEXT: "Convert it with onnx.load(FILE, format='textproto') or onnx.parser.parse_model, and onnx.save.",
    JSON: "Pass the ONNX file itself, which is binary.",
    TEXT: "Pass the ONNX file itself, which is binary.",
    XML: _PAGE,
    POINTER: "Run `git lfs pull` in its repository.",
    PROGRAM: "Pass the ONNX file that it was compiled from.",
    ORT: "Pass the ONNX file that it was created from.",
    **dict.fromkeys(PACKED, "Unpack it first."),
    ZIP: "Unpack it, or export the model to ONNX.",
    **dict.fromkeys(GPU_CODE, "Pass the ONNX file."),
    **dict.fromkeys(
        ("a Python pickle", "an HDF5 file", "a GGUF file", "a TensorFlow Lite model", "a safetensors file"),
        "Export the model to ONNX.",
    ),
}
"""What to do with a file of another type."""

_ONNX_FIELDS = b"\x12\x1a\x22\x28\x32\x3a\x42"


def file_type(head: bytes) -> str:
    """Return the type of a file that begins with `head`, with its article; empty if it is unknown."""
    for at, mark, what in _MARKS:
        if head.startswith(mark, at):
            return what
    if head[:1] == b"\x08" and len(head) > 2 and head[1] < 32 and head[2] in _ONNX_FIELDS:
        return MODEL
    if head[8:9] == b"{" and head[2:8].strip(b"\0") == b"" and b'"' in head[9:12]:
        return "a safetensors file"
    return _text_type(head)


def _text_type(head: bytes) -> str:
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if b"ir_version" in text or b"irversion" in text:
        return AS_JSON if text.startswith(b"{") else AS_TEXT
    if text.startswith((b"<!doctype html", b"<html", b"<head", b"<body")):
        return PAGE
    if text.startswith(b"<"):
        return XML
    if text.startswith((b"{", b"[")):
        return JSON
    return TEXT if head and all(32 <= byte < 127 or byte in b"\t\r\n\f" for byte in head) else ""
