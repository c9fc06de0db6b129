"""Refuse files that are not MIGraphX programs, by their first bytes."""

from __future__ import annotations

from mxr.errors import DamagedError
from mxr.onnxfile import file_types
from mxr.program.source import Source

_DOWNLOAD = "The download failed: check the URL and the token, and download the file again."
_HINTS = {
    file_types.PAGE: _DOWNLOAD,
    file_types.XML: _DOWNLOAD,
    file_types.POINTER: "Run `git lfs pull` to download the file that the pointer refers to.",
    file_types.MODEL: "Pass the .mxr file that was compiled from it, or compile it first.",
    **dict.fromkeys(file_types.PACKED, "Unpack the archive and pass the .mxr file in it."),
    **dict.fromkeys(file_types.GPU_CODE, "Pass the .mxr file, not the code object or library."),
}


def refuse_foreign(source: Source) -> None:
    """Raise `DamagedError` with the type of the file if its first bytes show that it is not a program."""
    head = source.read_at(0, file_types.HEAD)
    if not head:
        raise DamagedError("The file is empty.", context={"offset": 0, "looks_like": "an empty file"})
    what = file_types.file_type(head)
    if what in ("", file_types.PROGRAM):
        return
    hint = _HINTS.get(what, "Pass an .mxr file written by MIGraphX's save().")
    if what == file_types.JSON:
        what = "JSON other than a program"
    raise DamagedError(f"This is {what}, not a MIGraphX program.", hint=hint, context={"offset": 0, "looks_like": what})
