"""Describe published programs and models in a child process with limited memory and time.

The parser is written to handle arbitrary bytes; the child process (`inspector`) contains it should that fail. The child
gets no credentials and does not import the registry's large dependencies. It requests ranges of the files, which this
module reads for it.

Reading a hostile file can take an inspector up to its limits of time. The result depends on the bytes only, so
`RefusalMemory` remembers which files could not be read: sending them again costs nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from cachetools import TLRUCache

from mxr.artifact.limits import MAX_DESCRIPTION_BYTES
from mxr.artifact.manifest import File
from mxr.errors import DamagedError, TemporaryError, from_json
from mxr.util.codec import canonical
from mxr_registry.config.limits import RequestLimits
from mxr_registry.storage import Store

from .inspector import unreadable

T = TypeVar("T")

SECONDS = 3600.0
"""How long a refusal is remembered. A newer registry may read what an older one could not."""

SECONDS_AFTER_TIMEOUT = 300.0
"""The same where the time on the clock was the reason: the registry may have been busy with something else."""

TIMED_OUT = "timed_out"
"""The field in the details of such a refusal."""

MAX_REFUSALS = 1_000


class RefusalMemory:
    """Refusals by the sha256 of the refused files. Can be used from several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._found: TLRUCache[str, DamagedError] = TLRUCache(MAX_REFUSALS, self._until, clock)
        self._guard = threading.Lock()

    @staticmethod
    def _until(_name: str, problem: DamagedError, moment: float) -> float:
        return moment + (SECONDS_AFTER_TIMEOUT if TIMED_OUT in problem.context else SECONDS)

    def run(self, name: str, read: Callable[[], T]) -> T:
        """Return what `read` returns for the files that `name` identifies.

        Raises a remembered `DamagedError` at once.
        """
        with self._guard:
            known = self._found.get(name)
        if known is not None:
            raise from_json(known.to_json())
        try:
            return read()
        except DamagedError as problem:
            # Not its subclasses: the bytes in the store can be damaged, and then sent again.
            if type(problem) is DamagedError:
                with self._guard:
                    self._found[name] = DamagedError(problem.message, hint=problem.hint, context=problem.context)
            raise


Description = Mapping[str, Any]

MODEL_SECONDS = 20
"""Maximum seconds for describing a model. The client that uploads it waits for this."""

PAGE = 64 << 10
"""Bytes per request of the child, unless the page size of the store is larger."""

COMMAND = (sys.executable, "-m", "mxr_registry.artifacts.inspector")

ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONHOME", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
"""The variables of the child: what Python needs to start and to find its modules. All others stay here."""


def inspect(
    store: Store, files: Sequence[File], limits: RequestLimits, refusals: RefusalMemory
) -> tuple[Description, ...]:
    """Return the description of each program (the document of `mxr inspect --json`), in order.

    Raises `DamagedError` for a file that is not a program or exceeds the limits, also for one that was refused before,
    and `TemporaryError` if the child cannot be started or the store does not answer.
    """

    def read() -> tuple[Description, ...]:
        reply = _run(store, "programs", files, limits.inspect_memory, limits.inspect_cpu, limits.inspect_wall)
        return tuple(reply["descriptions"])

    return refusals.run(_names(files), read)


def describe_model(store: Store, onnx: File, limits: RequestLimits, refusals: RefusalMemory) -> Description:
    """Return the description of an ONNX file.

    It has `graph` (see `structure_of`), `inputs`, `outputs`, `types`, and `external`, the locations of external data.
    Raises `DamagedError` for a file that is not a model, names external data that no program may read, or exceeds the
    limits, and `TemporaryError` as `inspect` does.
    """
    cpu, wall = min(MODEL_SECONDS, limits.inspect_cpu), min(float(MODEL_SECONDS), limits.inspect_wall)

    def read() -> Description:
        return dict(_run(store, "model", [onnx], limits.inspect_memory, cpu, wall)["descriptions"][0])

    return refusals.run(_names([onnx]), read)


def _names(files: Sequence[File]) -> str:
    """What identifies the content of these files, whose sha256 was checked."""
    return canonical([[file.name, file.sha256] for file in files])


class BlobSource:
    """Random access to the bytes of a file that consists of blobs."""

    def __init__(self, store: Store, file: File) -> None:
        self._store = store
        self._spans = file.spans()
        self.size = file.size
        self.edges = [offset for offset, _ in self._spans]

    def read(self, offset: int, length: int) -> Iterator[bytes]:
        """Yield `length` bytes from `offset` in chunks. The range must lie within the file."""
        for part in self._spans.ranges(offset, length):
            held = self._store.held(part.blob.sha256, part.offset, part.length)
            yield from self._store.read(part.blob.sha256, part.offset, part.length) if held is None else (held,)


def _run(store: Store, what: str, files: Sequence[File], memory: int, cpu: int, wall: float) -> dict[str, Any]:
    sources = [BlobSource(store, file) for file in files]
    names = [
        {"name": file.name, "size": source.size, "edges": source.edges}
        for file, source in zip(files, sources, strict=True)
    ]
    order = {"what": what, "files": names, "page": max(store.page, PAGE), "memory": memory, "cpu": cpu}
    with tempfile.TemporaryFile() as stderr, _start_child(stderr) as child:
        timed_out = threading.Event()

        def on_timeout() -> None:
            timed_out.set()
            _kill(child)

        timer = threading.Timer(wall, on_timeout)
        timer.start()
        try:
            reply = _serve(child, order, sources)
            if reply is not None and "error" in reply:
                raise from_json(reply["error"])
            if reply is not None:
                return reply
            child.wait()
        finally:
            timer.cancel()
            _kill(child)
        if timed_out.is_set():
            problem = unreadable(f"reading it took more than {wall:g} seconds")
            problem.context = {**problem.context, TIMED_OUT: True}
            raise problem
        stderr.seek(0)
        raise unreadable(_exit_reason(child.returncode, stderr.read()))


def _start_child(stderr: Any) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
            start_new_session=True,
            close_fds=True,
        )
    except OSError as problem:
        raise TemporaryError(f"The registry cannot start the inspector process: {problem.strerror}.") from problem


def _serve(child: subprocess.Popen[bytes], order: object, sources: Sequence[BlobSource]) -> dict[str, Any] | None:
    """Send the ranges that the child requests until it replies. None if it ends earlier or sends an invalid line."""
    stdout: Any = child.stdout
    with contextlib.suppress(BrokenPipeError):
        _write(child, json.dumps(order).encode() + b"\n")
        while (line := stdout.readline(2 * MAX_DESCRIPTION_BYTES)).endswith(b"\n"):
            message = _parse(line)
            if isinstance(message, dict):
                return message
            chunks = _requested_bytes(message, sources)
            if chunks is None:
                _kill(child)
                break
            for data in chunks:
                _write(child, data)
    return None


def _parse(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _requested_bytes(message: Any, sources: Sequence[BlobSource]) -> Iterator[bytes] | None:
    """The bytes for a request [file, offset, length], or None if the message is not a valid request."""
    if not (isinstance(message, list) and len(message) == 3 and all(type(each) is int for each in message)):
        return None
    index, offset, length = message
    if not (0 <= index < len(sources) and offset >= 0 and 0 < length <= sources[index].size - offset):
        return None
    return sources[index].read(offset, length)


def _write(child: Any, data: bytes) -> None:
    """Write without buffering: after an error, closing a buffered pipe would raise a second time."""
    view = memoryview(data)
    while view:
        view = view[child.stdin.raw.write(view) :]


def _kill(child: subprocess.Popen[bytes]) -> None:
    """Kill the process group of the child, unless the child has ended."""
    if child.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)


def _exit_reason(code: int, stderr: bytes) -> str:
    last_line = stderr.decode(errors="replace").strip().rpartition("\n")[2][:200]
    if code < 0:
        return f"the inspector process was killed by signal {-code}"
    return f"the inspector process exited with status {code}{': ' + last_line if last_line else ''}"
