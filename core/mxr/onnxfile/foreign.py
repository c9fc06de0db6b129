"""Identifies files that are not ONNX models by their first bytes."""

from __future__ import annotations

_MARKS: tuple[tuple[int, bytes, str, str], ...] = (
    # offset, bytes at that offset, type of the file, hint
    (0, b"version https://git-lfs", "a Git LFS pointer", "Run `git lfs pull` in its repository."),
    (0, b"\x1f\x8b", "a gzip file", "Unpack it first."),
    (0, b"\x28\xb5\x2f\xfd", "a Zstandard file", "Unpack it first."),
    (0, b"PK\x03\x04", "a zip archive or a PyTorch file", "Unpack it, or export the model to ONNX."),
    (0, b"\x80\x02", "a Python pickle", "Export the model to ONNX."),
    (0, b"\x7fELF", "an executable (ELF)", "Pass the ONNX file."),
    (0, b"\x89HDF", "an HDF5 file", "Export the model to ONNX."),
    (0, b"GGUF", "a GGUF file", "Export the model to ONNX."),
    (4, b"ORTM", "a model in the ORT format", "Pass the ONNX file that it was created from."),
    (4, b"TFL3", "a TensorFlow Lite model", "Export the model to ONNX."),
    (1, b"\xa7version", "a compiled program (.mxr)", "Pass the ONNX file that it was compiled from."),
)


def identify(head: bytes) -> tuple[str, str | None]:
    """Return the type of a file that begins with `head`, and a hint. The type is empty if it is unknown."""
    for at, mark, what, hint in _MARKS:
        if head.startswith(mark, at):
            return what, hint
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:9].lower()
    if start.startswith((b"<!doctype", b"<html", b"<?xml")):
        return (
            "a web page (HTML or XML)",
            "Open the URL in a browser: the download is a page, not the model.",
        )
    if start[:1] in (b"{", b"["):
        return "JSON", None
    return ("plain text", None) if all(byte > 31 or byte in b"\t\r\n\f" for byte in head) else ("", None)
