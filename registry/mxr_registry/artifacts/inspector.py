"""The child that reads a published program, or a model, for what it says of itself.

    registry  ── a line: the order ─────────────────────────────────────>  child
    registry  <─ a line: [file, offset, length] ────────────────────────  child
    registry  ── that many bytes ───────────────────────────────────────>  child
              ...
    registry  <─ a line: {"descriptions": [...]} or {"error": {...}} ────  child

It knows neither store nor database, and needs no key to either: it is given bytes. Run as
`python -m mxr_registry.artifacts.inspector`; `inspection` is the other end.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from mxr.errors import Damaged, MxrError
from mxr.util.codec import encode

MOST_SAID = 16 << 20
"""Bytes of JSON that the descriptions of one artifact may have."""

MOST_WRITTEN = 64 << 10
"""Bytes of any file that the child may write: what it says on its way down."""

PAGES = 4
"""Pages that are held of what was read ahead."""

Asking = Callable[[int, int], bytes]


class PagedSource:
    """A source of bytes that are asked for a page at a time: `ask` gives the bytes from an offset, so many."""

    def __init__(self, size: int, page: int, ask: Asking) -> None:
        self.size = size
        self._page_size = page
        self._ask = ask
        self._pages: dict[int, bytes] = {}

    def read_at(self, offset: int, length: int) -> bytes:
        """The bytes from `offset`, fewer than `length` only at the end of the file."""
        length = max(0, min(length, self.size - offset))
        page = self._page_size
        if length >= page:
            return self._ask(offset, length) if length else b""
        start = offset - offset % page
        both = self._page(start) + (self._page(start + page) if offset + length > start + page else b"")
        return both[offset - start : offset - start + length]

    def _page(self, start: int) -> bytes:
        found = self._pages.pop(start, None)
        if found is None:
            length = min(self._page_size, self.size - start)
            found = self._ask(start, length) if length > 0 else b""
        # The one that was not asked for longest stands first.
        self._pages[start] = found
        if len(self._pages) > PAGES:
            del self._pages[next(iter(self._pages))]
        return found


class ParentProcess:
    """The other end: what this child is to do, and the bytes to do it with."""

    def __init__(self, heard: BinaryIO, said: BinaryIO) -> None:
        self._heard, self._said = heard, said
        self.order: Mapping[str, Any] = json.loads(heard.readline())

    def source(self, index: int) -> PagedSource:
        """The file of this place in the order."""

        def ask(offset: int, length: int) -> bytes:
            self.say([index, offset, length])
            data = self._heard.read(length)
            if len(data) < length:
                raise SystemExit("the registry went away")
            return data

        return PagedSource(self.order["files"][index]["size"], self.order["page"], ask)

    def say(self, words: Any) -> None:
        """One line of JSON."""
        line = json.dumps(words)
        self._said.write(line.encode() + b"\n")
        self._said.flush()


def too_far(how: str) -> Damaged:
    """The error for a file that no reader should be given."""
    return Damaged(
        f"The registry could not read this file as a program: {how}.",
        hint="See what `mxr inspect FILE` says of it.",
        detail={"offset": None},
    )


def main() -> None:
    """The child: bound itself, read the order, describe each file, answer."""
    registry = ParentProcess(sys.stdin.buffer, os.fdopen(os.dup(1), "wb"))
    # Whatever a library prints is no answer.
    os.dup2(2, 1)
    _bound(registry.order["memory"], registry.order["cpu"])
    try:
        said_of = {"programs": _describe, "model": _walk}[registry.order["what"]]
        answer: Mapping[str, Any] = {"descriptions": said_of(registry)}
        if len(json.dumps(answer)) > MOST_SAID:
            raise too_far("it says too much")
    except MxrError as problem:
        answer = problem.to_json()
    except (MemoryError, RecursionError):
        answer = too_far("it takes more memory than the registry gives it").to_json()
    registry.say(answer)


def _bound(memory: int, cpu: int) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_WRITTEN, MOST_WRITTEN))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _describe(registry: ParentProcess) -> list[Mapping[str, Any]]:
    from mxr.program import describe

    found: list[Mapping[str, Any]] = []
    for index, file in enumerate(registry.order["files"]):
        try:
            found.append(describe(registry.source(index)).to_json())
        except MxrError as problem:
            problem.message = f"{file['name']}: {problem.message}"
            raise
    return found


def _walk(registry: ParentProcess) -> list[Mapping[str, Any]]:
    from mxr.onnxfile.reader import walk_model
    from mxr.onnxfile.structure import structure_of
    from mxr.onnxfile.window import Window

    (file,) = registry.order["files"]
    source = registry.source(0)
    data = Window(source.size, source.read_at)
    model = walk_model(Path(file["name"]), data)
    ends = {name: [encode(each) for each in getattr(model, name)] for name in ("inputs", "outputs")}
    return [{"graph": structure_of(data), "types": sorted(model.types or ()), **ends}]


if __name__ == "__main__":
    main()
