"""Reading a published program, or a model, for what it says of itself, in a child bounded in memory and time.

The reader is made to survive any bytes; the child is for the day when it does not. It reads through the store by
ranges, and is run as `python -m mxr_registry.inspection` with JSON on both ends, so that it starts without the
registry's heavy parts.
"""

from __future__ import annotations

import bisect
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import accumulate
from typing import Any

from mxr.errors import Damaged, MxrError, Temporary, from_json
from mxr.fields import encode
from mxr.manifest import File

from .settings import Limits
from .storage import S3Place, Store, open_store

Description = Mapping[str, Any]
MOST_SAID = 16 * 2**20
"""Bytes of JSON that the descriptions of one artifact may have."""

LOOKING = 20
"""Seconds, at most, for a look at a model: whoever uploads it waits for this."""

PAGES = 4
"""Pages that are held of what was read ahead."""


def inspect(
    store_url: str, files: Sequence[File], limits: Limits, place: S3Place | None = None
) -> tuple[Description, ...]:
    """What each file says of itself (the document of `mxr inspect --json`), in order; `place` as for `open_store`.

    Raises `Damaged` for what is no program, or takes the reader too far, and `Temporary` when no child could be run.
    """
    order = {
        "what": "programs",
        "store": store_url,
        "place": asdict(place or S3Place()),
        "memory": limits.inspect_memory,
        "cpu": limits.inspect_cpu,
        "files": [_written(file) for file in files],
    }
    reply = _run(json.dumps(order).encode(), limits.inspect_wall)
    if "error" in reply:
        raise from_json(reply)
    return tuple(reply["descriptions"])


def look(store_url: str, onnx: File, limits: Limits, place: S3Place | None = None) -> Description | None:
    """What an ONNX file says of itself: its `graph` (see `structure_of`), `inputs`, `outputs` and `types`.

    None where it cannot be read, or takes the reader too far: nothing that must be right rests on it.
    """
    cpu, wall = min(LOOKING, limits.inspect_cpu), min(float(LOOKING), limits.inspect_wall)
    order = {
        "what": "model",
        "store": store_url,
        "place": asdict(place or S3Place()),
        "memory": limits.inspect_memory,
        "cpu": cpu,
        "files": [_written(onnx)],
    }
    try:
        reply = _run(json.dumps(order).encode(), wall)
    except MxrError:
        return None
    return None if "error" in reply else reply["descriptions"][0]


def _written(file: File) -> dict[str, Any]:
    return {"name": file.name, "blobs": [[blob.sha256, blob.size] for blob in file.blobs]}


def _run(order: bytes, wall: float) -> dict[str, Any]:
    import subprocess

    command = [sys.executable, "-m", "mxr_registry.inspection"]
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            close_fds=True,
        )
    except OSError as problem:
        raise Temporary(f"The registry cannot start the reader of programs: {problem.strerror}.") from problem
    with child:
        try:
            said, noise = child.communicate(order, timeout=wall)
        except subprocess.TimeoutExpired:
            _kill(child.pid)
            raise too_far(f"reading it took more than {wall:g} seconds") from None
        except BaseException:
            _kill(child.pid)
            raise
    if child.returncode != 0:
        raise too_far(_ending(child.returncode, noise))
    answer = json.loads(said)
    assert isinstance(answer, dict)
    return answer


def _kill(pid: int) -> None:
    """The whole group, which has the number of its first process."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _ending(code: int, noise: bytes) -> str:
    last = noise.decode(errors="replace").strip().rpartition("\n")[2][:200]
    if code < 0:
        return f"the reader was ended by signal {-code}"
    return f"the reader ended with {code}{': ' + last if last else ''}"


def too_far(how: str) -> Damaged:
    """The error for a file that no reader should be given."""
    return Damaged(
        f"The registry could not read this file as a program: {how}.",
        hint="See what `mxr inspect FILE` says of it.",
        detail={"offset": None},
    )


class BlobSource:
    """The bytes of a file that is made of blobs, read by offset, in pages where the store is a way off."""

    def __init__(self, store: Store, blobs: Sequence[tuple[str, int]]) -> None:
        self._store = store
        self._pages: dict[int, bytes] = {}
        self._names = [name for name, _ in blobs]
        self._ends = list(accumulate(size for _, size in blobs))

    @property
    def size(self) -> int:
        """Bytes of the whole file."""
        return self._ends[-1] if self._ends else 0

    def read_at(self, offset: int, length: int) -> bytes:
        """The bytes from `offset`, fewer than `length` only at the end of the file."""
        length = max(0, min(length, self.size - offset))
        page = self._store.page
        if length >= page:
            return self._read(offset, length)
        start = offset - offset % page
        both = self._page(start) + (self._page(start + page) if offset + length > start + page else b"")
        return both[offset - start : offset - start + length]

    def _page(self, start: int) -> bytes:
        found = self._pages.pop(start, None)
        if found is None:
            found = self._read(start, min(self._store.page, self.size - start))
        # The one that was not asked for longest stands first.
        self._pages[start] = found
        if len(self._pages) > PAGES:
            del self._pages[next(iter(self._pages))]
        return found

    def _read(self, offset: int, length: int) -> bytes:
        parts: list[bytes] = []
        index = bisect.bisect_right(self._ends, offset)
        while length > 0:
            inside = offset - (self._ends[index - 1] if index else 0)
            here = min(length, self._ends[index] - offset)
            parts.append(b"".join(self._store.read(self._names[index], inside, here)))
            offset, length, index = offset + here, length - here, index + 1
        return b"".join(parts)


def main() -> None:
    """The child: bound itself, read the order, describe each file, answer."""
    order = json.loads(sys.stdin.buffer.read())
    _bound(order["memory"], order["cpu"])
    try:
        said_of = {"programs": _describe, "model": _walk}[order["what"]]
        answer: Mapping[str, Any] = {"descriptions": said_of(order)}
    except MxrError as problem:
        answer = problem.to_json()
    except (MemoryError, RecursionError):
        answer = too_far("it takes more memory than the registry gives it").to_json()
    said = json.dumps(answer)
    sys.stdout.write(said if len(said) <= MOST_SAID else json.dumps(too_far("it says too much").to_json()))


def _bound(memory: int, cpu: int) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _store(order: Mapping[str, Any]) -> Store:
    return open_store(order["store"], S3Place(**order["place"]))


def _describe(order: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    from mxr.program import describe

    store = _store(order)
    found: list[Mapping[str, Any]] = []
    for file in order["files"]:
        try:
            found.append(describe(BlobSource(store, file["blobs"])).to_json())
        except MxrError as problem:
            problem.message = f"{file['name']}: {problem.message}"
            raise
    return found


def _walk(order: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    from pathlib import Path

    from mxr.onnxfile.reader import walk_model
    from mxr.onnxfile.structure import structure_of
    from mxr.onnxfile.window import Window

    (file,) = order["files"]
    source = BlobSource(_store(order), file["blobs"])
    data = Window(source.size, source.read_at)
    model = walk_model(Path(file["name"]), data)
    ends = {name: [encode(each) for each in getattr(model, name)] for name in ("inputs", "outputs")}
    return [{"graph": structure_of(data), "types": sorted(model.types or ()), **ends}]


if __name__ == "__main__":
    main()
