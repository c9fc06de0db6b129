"""Reading a published program, or a model, for what it says of itself, in a child bounded in memory and time.

The reader is made to survive any bytes; the child (`inspector`) is for the day when it does not. It holds no key and
starts without the registry's heavy parts: it asks for ranges of the files, and they are read for it here.
"""

from __future__ import annotations

import bisect
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from mxr.artifact.manifest import File
from mxr.errors import MxrError, Temporary, from_json
from mxr_registry.config.settings import RequestLimits
from mxr_registry.storage import Store

from .inspector import MOST_SAID, too_far

Description = Mapping[str, Any]

LOOKING = 20
"""Seconds, at most, for a look at a model: whoever uploads it waits for this."""

PAGE = 64 << 10
"""Bytes that the child asks for at once, where a store's page is not larger."""

COMMAND = (sys.executable, "-m", "mxr_registry.artifacts.inspector")

SECRETS = ("AWS_", "MXR_", "PG")
"""How variables begin that are none of the child's business."""


def inspect(store: Store, files: Sequence[File], limits: RequestLimits) -> tuple[Description, ...]:
    """What each file says of itself (the document of `mxr inspect --json`), in order.

    Raises `Damaged` for what is no program, or takes the reader too far, and `Temporary` when no child could be run,
    or the store does not answer.
    """
    reply = _run(store, "programs", files, limits.inspect_memory, limits.inspect_cpu, limits.inspect_wall)
    if "error" in reply:
        raise from_json(reply)
    return tuple(reply["descriptions"])


def look(store: Store, onnx: File, limits: RequestLimits) -> Description | None:
    """What an ONNX file says of itself: its `graph` (see `structure_of`), `inputs`, `outputs` and `types`.

    None where it cannot be read, or takes the reader too far: nothing that must be right rests on it.
    """
    cpu, wall = min(LOOKING, limits.inspect_cpu), min(float(LOOKING), limits.inspect_wall)
    try:
        reply = _run(store, "model", [onnx], limits.inspect_memory, cpu, wall)
    except MxrError:
        return None
    return None if "error" in reply else reply["descriptions"][0]


class BlobSource:
    """The bytes of a file that is made of blobs, by offset."""

    def __init__(self, store: Store, file: File) -> None:
        self._store = store
        self._names = [blob.sha256 for blob in file.blobs]
        self._ends = list(accumulate(blob.size for blob in file.blobs))
        self.size = self._ends[-1] if self._ends else 0

    def read(self, offset: int, length: int) -> Iterator[bytes]:
        """The bytes from `offset`, all of them within the file, in chunks."""
        index = bisect.bisect_right(self._ends, offset)
        while length > 0:
            inside = offset - (self._ends[index - 1] if index else 0)
            here = min(length, self._ends[index] - offset)
            yield from self._store.read(self._names[index], inside, here)
            offset, length, index = offset + here, length - here, index + 1


def _run(store: Store, what: str, files: Sequence[File], memory: int, cpu: int, wall: float) -> dict[str, Any]:
    sources = [BlobSource(store, file) for file in files]
    stated = [{"name": file.name, "size": source.size} for file, source in zip(files, sources, strict=True)]
    order = {"what": what, "files": stated, "page": max(store.page, PAGE), "memory": memory, "cpu": cpu}
    with tempfile.TemporaryFile() as noise, _child(noise) as child:
        late = threading.Event()

        def end() -> None:
            late.set()
            _kill(child)

        timer = threading.Timer(wall, end)
        timer.start()
        try:
            answer = _serve(child, order, sources)
            if answer is not None:
                return answer
            child.wait()
        finally:
            timer.cancel()
            _kill(child)
        if late.is_set():
            raise too_far(f"reading it took more than {wall:g} seconds")
        noise.seek(0)
        raise too_far(_ending(child.returncode, noise.read()))


def _child(noise: Any) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=noise,
            env={name: value for name, value in os.environ.items() if not name.startswith(SECRETS)},
            start_new_session=True,
            close_fds=True,
        )
    except OSError as problem:
        raise Temporary(f"The registry cannot start the reader of programs: {problem.strerror}.") from problem


def _serve(child: subprocess.Popen[bytes], order: object, sources: Sequence[BlobSource]) -> dict[str, Any] | None:
    """Give the child what it asks for until it answers; None where it ended before that, or what it says is nothing."""
    heard: Any = child.stdout
    with contextlib.suppress(BrokenPipeError):
        _write(child, json.dumps(order).encode() + b"\n")
        while (line := heard.readline(2 * MOST_SAID)).endswith(b"\n"):
            words = _words(line)
            if isinstance(words, dict):
                return words
            wanted = _wanted(words, sources)
            if wanted is None:
                _kill(child)
                break
            for data in wanted:
                _write(child, data)
    return None


def _words(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _wanted(words: Any, sources: Sequence[BlobSource]) -> Iterator[bytes] | None:
    """The bytes for a line [file, offset, length]; None for any other."""
    if not (isinstance(words, list) and len(words) == 3 and all(type(each) is int for each in words)):
        return None
    index, offset, length = words
    if not (0 <= index < len(sources) and offset >= 0 and 0 < length <= sources[index].size - offset):
        return None
    return sources[index].read(offset, length)


def _write(child: Any, data: bytes) -> None:
    """Past the buffer, which would raise once more when it is closed."""
    view = memoryview(data)
    while view:
        view = view[child.stdin.raw.write(view) :]


def _kill(child: subprocess.Popen[bytes]) -> None:
    """The whole group, which has the number of its first process, unless that has ended."""
    if child.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)


def _ending(code: int, noise: bytes) -> str:
    last = noise.decode(errors="replace").strip().rpartition("\n")[2][:200]
    if code < 0:
        return f"the reader was ended by signal {-code}"
    return f"the reader ended with {code}{': ' + last if last else ''}"
