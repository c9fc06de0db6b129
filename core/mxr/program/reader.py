"""Reads the header or the whole description of a program, without MIGraphX and without a GPU."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from mxr.errors import DamagedError, UsageError
from mxr.onnxfile import file_types
from mxr.program import header, json_form
from mxr.program.container import Walker
from mxr.program.derivation import derive_description
from mxr.program.description import Description, Header
from mxr.program.messagepack import damaged
from mxr.program.nodes import MODULE_FIELDS, Nodes
from mxr.program.shapes import shape_folding
from mxr.program.source import FileSource, Source

_MODULES = "modules"

_DOWNLOAD = "The download failed: check the URL and the token, and download the file again."
_HINTS = {
    file_types.PAGE: _DOWNLOAD,
    file_types.XML: _DOWNLOAD,
    file_types.POINTER: "Run `git lfs pull` to download the file that the pointer refers to.",
    file_types.MODEL: "Pass the .mxr file that was compiled from it, or compile it first.",
    **dict.fromkeys(file_types.PACKED, "Unpack the archive and pass the .mxr file in it."),
    **dict.fromkeys(file_types.GPU_CODE, "Pass the .mxr file, not the code object or library."),
}


def read_header(source: Source) -> Header:
    """Return the header of a program after reading a few kilobytes. Raises `DamagedError`."""
    if json_form.is_json(source):
        return _json_header(source)[1]

    def stop(_: Walker) -> bool:
        return False

    return _unless_foreign(source, lambda: header.read_fields(_walk(Walker(source), stop), "msgpack"))


def describe(source: Source) -> Description:
    """Return the description of a program without reading its weights. Raises `DamagedError` with `context.offset`."""
    if json_form.is_json(source):
        return _describe_json(source)
    read_header(source)
    nodes = Nodes(source, source.size)
    walker = Walker(source, shape_folding())

    def read_modules(walker: Walker) -> bool:
        _read_modules(walker, nodes)
        return True

    found = header.read_fields(_walk(walker, read_modules), "msgpack")
    return derive_description(found, nodes, source.size, source.size - walker.position)


def describe_file(path: str | os.PathLike[str]) -> Description:
    """Describe the program in a file.

    Raises `DamagedError` with the path, and `UsageError` if the file cannot be opened.
    """
    try:
        if not Path(path).is_file():
            raise UsageError(f"{path} is not a file.", hint="Pass the path of an .mxr file.")
        with FileSource(path) as source:
            return describe(source)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}.", hint="Check the path and its permissions."
        ) from error
    except DamagedError as error:
        raise DamagedError(
            f"{path}: {error.message}", hint=error.hint, context={**error.context, "path": str(path)}
        ) from error


def _unless_foreign(source: Source, read: Callable[[], Header]) -> Header:
    """Return the result of `read`. If it fails, prefer an error that identifies the file to one that names a byte."""
    try:
        return read()
    except DamagedError:
        refuse_foreign(source)
        raise


def _walk(walker: Walker, modules: Callable[[Walker], bool]) -> dict[str, object]:
    """The fields next to the modules. If `modules` returns False and the version is known, the walk ends there."""
    fields: dict[str, object] = {}
    for _ in range(walker.map_size()):
        start = walker.position
        key = walker.key()
        if key in fields:
            raise damaged(f"The key {key!r} is duplicated", start)
        if key != _MODULES:
            fields[key] = _field(walker, key)
            continue
        fields[key] = None
        if not modules(walker):
            if "version" in fields:
                return fields
            walker.skip(depth=1)
    if _MODULES not in fields:
        raise damaged("Not a MIGraphX program: 'modules' is missing", 0)
    return fields


def _field(walker: Walker, key: str) -> object:
    if key in header.KEYS:
        return walker.tree(1)
    walker.skip(depth=1)
    return None


def _read_modules(walker: Walker, nodes: Nodes) -> None:
    start = walker.position
    seen = set()
    for _ in range(walker.map_size()):
        name = walker.key()
        if name in seen:
            raise damaged(f"The module {name!r} is duplicated", walker.position)
        seen.add(name)
        nodes.begin_module(name)
        _read_module(walker, nodes)
    if "main" not in seen:
        raise damaged("The program has no module called 'main'", start)


def _read_module(walker: Walker, nodes: Nodes) -> None:
    seen = False
    for _ in range(walker.map_size()):
        key = walker.key()
        if key in MODULE_FIELDS:
            nodes.see_module_field(key, walker.tree(3))
            continue
        if key != "nodes":
            walker.skip(depth=3)
            continue
        if seen:
            raise damaged("The nodes of a module are duplicated", walker.position)
        seen = True
        for _ in range(walker.array_size()):
            start = walker.position
            nodes.add(walker.tree(4), start)


def _json_header(source: Source) -> tuple[dict[str, object], Header, Source]:
    try:
        tree, blobs = json_form.load_json_program(source)
        if _MODULES not in tree:
            raise damaged("JSON other than a program: 'modules' is missing", 0)
        return tree, header.read_fields(tree, "json"), blobs
    except DamagedError as error:
        if error.hint == DamagedError.usual_hint:
            error.hint = "Pass an .mxr file written by MIGraphX's save()."
        raise


def _describe_json(source: Source) -> Description:
    tree, found, blobs = _json_header(source)
    modules = tree[_MODULES]
    if not isinstance(modules, dict) or "main" not in modules:
        raise damaged("The program has no module called 'main'", 0)
    nodes = Nodes(blobs, source.size)
    for name, module in modules.items():
        nodes.begin_module(name)
        fields = module if isinstance(module, dict) else {}
        for key in MODULE_FIELDS:
            nodes.see_module_field(key, fields.get(key))
        rows = fields.get("nodes")
        for node in rows if isinstance(rows, list) else []:
            nodes.add(node, 0)
    return derive_description(found, nodes, source.size, 0)


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
