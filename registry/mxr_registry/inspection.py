"""Reading a published program for what it says of itself, in a child process that is bounded in memory and time.

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
from itertools import accumulate
from typing import Any

from mxr.errors import Damaged, MxrError, Temporary, from_json
from mxr.manifest import File

from .settings import Limits
from .storage import Store, open_store

Description = Mapping[str, Any]
MOST_SAID = 16 * 2**20
"""Bytes of JSON that the descriptions of one artifact may have."""


def inspect(store_url: str, files: Sequence[File], limits: Limits) -> tuple[Description, ...]:
    """What each file says of itself (the document of `mxr inspect --json`), in order.

    Raises `Damaged` for what is no program, or takes the reader too far, and `Temporary` when no child could be run.
    """
    order = {
        "store": store_url,
        "memory": limits.inspect_memory,
        "cpu": limits.inspect_cpu,
        "files": [{"name": file.name, "blobs": [[blob.sha256, blob.size] for blob in file.blobs]} for file in files],
    }
    reply = _run(json.dumps(order).encode(), limits.inspect_wall)
    if "error" in reply:
        raise from_json(reply)
    return tuple(reply["descriptions"])


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
    """The bytes of a file that is made of blobs, read by offset."""

    def __init__(self, store: Store, blobs: Sequence[tuple[str, int]]) -> None:
        self._store = store
        self._names = [name for name, _ in blobs]
        self._ends = list(accumulate(size for _, size in blobs))

    @property
    def size(self) -> int:
        """Bytes of the whole file."""
        return self._ends[-1] if self._ends else 0

    def read_at(self, offset: int, length: int) -> bytes:
        """The bytes from `offset`, fewer than `length` only at the end of the file."""
        parts: list[bytes] = []
        length = max(0, min(length, self.size - offset))
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
        answer: Mapping[str, Any] = {"descriptions": _describe(order)}
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


def _describe(order: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    from mxr.program import describe

    store = open_store(order["store"])
    found: list[Mapping[str, Any]] = []
    for file in order["files"]:
        try:
            found.append(describe(BlobSource(store, file["blobs"])).to_json())
        except MxrError as problem:
            problem.message = f"{file['name']}: {problem.message}"
            raise
    return found


if __name__ == "__main__":
    main()
