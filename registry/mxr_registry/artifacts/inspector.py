"""The child process that parses published programs and models and returns their descriptions.

    registry  ── one line: the order ───────────────────────────────────>  child
    registry  <─ one line: [file, offset, length] ──────────────────────  child
    registry  ── that many bytes ───────────────────────────────────────>  child
              ...
    registry  <─ one line: {"descriptions": [...]} or {"error": {...}} ──  child

The child has no access to the store or the database: the registry sends it the bytes that it requests. It runs as
`python -m mxr_registry.artifacts.inspector`; `inspection` is the other end of the pipe.
"""

from __future__ import annotations

import bisect
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from mxr.artifact.limits import MAX_DESCRIPTION_BYTES
from mxr.errors import DamagedError, MxrError
from mxr.sandbox.policy import close_reader
from mxr.util.codec import encode

MAX_FILE_SIZE = 64 << 10
"""Maximum size in bytes of any file that the child writes. It writes only error output."""

CACHED_PAGES = 4
"""Number of pages that a source keeps in memory."""

ReadRange = Callable[[int, int], bytes]


class PagedSource:
    """Random access to a file that is read in pages. `read_range` returns the bytes for an offset and a length.

    `edges`: where the blobs of the file begin. No page goes beyond its blob, so that one page is one request of the
    store.
    """

    def __init__(self, size: int, page: int, read_range: ReadRange, edges: Sequence[int] = (0,)) -> None:
        self.size = size
        self._page_size = page
        self._read_range = read_range
        self._edges = edges
        self._pages: dict[int, bytes] = {}

    def read_at(self, offset: int, length: int) -> bytes:
        """Return `length` bytes from `offset`, or fewer at the end of the file."""
        end = min(offset + length, self.size)
        if end - offset >= self._page_size:
            return self._read_range(offset, end - offset)
        parts = []
        while offset < end:
            start, data = self._page(offset)
            part = data[offset - start : end - start]
            parts.append(part)
            offset += len(part)
        return b"".join(parts)

    def _page(self, offset: int) -> tuple[int, bytes]:
        """The page with the byte at `offset`: where it begins, and its bytes."""
        index = bisect.bisect_right(self._edges, offset)
        blob, end = self._edges[index - 1], self._edges[index] if index < len(self._edges) else self.size
        start = offset - (offset - blob) % self._page_size
        found = self._pages.pop(start, None)
        if found is None:
            found = self._read_range(start, min(self._page_size, end - start))
        # The least recently used page is the first one.
        self._pages[start] = found
        if len(self._pages) > CACHED_PAGES:
            del self._pages[next(iter(self._pages))]
        return start, found


class ParentProcess:
    """The pipe to the registry: the order, and ranges of the files in it."""

    def __init__(self, reader: BinaryIO, writer: BinaryIO) -> None:
        self._reader, self._writer = reader, writer
        self.order: Mapping[str, Any] = json.loads(reader.readline())

    def source(self, index: int) -> PagedSource:
        """Return the file with this index in the order."""

        def read_range(offset: int, length: int) -> bytes:
            self.send([index, offset, length])
            data = self._reader.read(length)
            if len(data) < length:
                raise SystemExit("the registry closed the connection")
            return data

        file = self.order["files"][index]
        return PagedSource(file["size"], self.order["page"], read_range, file["edges"])

    def send(self, message: Any) -> None:
        """Send one line of JSON."""
        line = json.dumps(message)
        self._writer.write(line.encode() + b"\n")
        self._writer.flush()


def unreadable(reason: str) -> DamagedError:
    """Return the error for a file that cannot be read within the limits."""
    return DamagedError(
        f"The registry cannot read this file: {reason}.",
        hint="Check a program with `mxr inspect FILE`, and a model with onnx.checker.",
        context={"offset": None},
    )


def main() -> None:
    """Limit the resources of this process, read the order, describe each file, and send the reply."""
    registry = ParentProcess(sys.stdin.buffer, os.fdopen(os.dup(1), "wb"))
    # Keep output of libraries out of the reply.
    os.dup2(2, 1)
    close_reader(Path(__file__).parents[1])
    _limit_resources(registry.order["memory"], registry.order["cpu"])
    try:
        describe_files = {"programs": _describe_programs, "model": _describe_model}[registry.order["what"]]
        reply: Mapping[str, Any] = {"descriptions": describe_files(registry)}
        if len(json.dumps(reply)) > MAX_DESCRIPTION_BYTES:
            raise unreadable("its description is too long")
    except MxrError as problem:
        reply = {"error": problem.to_json()}
    except (MemoryError, RecursionError):
        reply = {"error": unreadable("it needs more memory than the registry allows").to_json()}
    registry.send(reply)


def _limit_resources(memory: int, cpu: int) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE_SIZE, MAX_FILE_SIZE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _describe_programs(registry: ParentProcess) -> list[Mapping[str, Any]]:
    from mxr.program import describe

    found: list[Mapping[str, Any]] = []
    for index, file in enumerate(registry.order["files"]):
        try:
            found.append(describe(registry.source(index)).to_json())
        except MxrError as problem:
            problem.message = f"{file['name']}: {problem.message}"
            raise
    return found


def _describe_model(registry: ParentProcess) -> list[Mapping[str, Any]]:
    from mxr.artifact.model_evidence import COMPUTED_IN_FP16
    from mxr.onnxfile.protobuf import Window
    from mxr.onnxfile.reader import structure_of, walk_model

    (file,) = registry.order["files"]
    source = registry.source(0)
    data = Window(source.size, source.read_at)
    model = walk_model(Path(file["name"]), data)
    ends = {name: [encode(each) for each in getattr(model, name)] for name in ("inputs", "outputs")}
    return [
        {
            "graph": structure_of(data),
            "types": sorted(model.types or ()),
            "operators": sorted(COMPUTED_IN_FP16 & (model.operators or frozenset())),
            "weight_dims": {name: [dim.axis, dim.size, dim.rank] for name, dim in model.weight_dims},
            "external": model.external,
            **ends,
        }
    ]


if __name__ == "__main__":
    main()
