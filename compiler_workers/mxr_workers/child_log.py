"""What a child printed: its beginning and its end are kept, the rest is counted, and all of it is digested."""

from __future__ import annotations

from hashlib import sha256

HEAD, TAIL = 1 << 20, 3 << 20
"""Bytes kept of the beginning and of the end: a fault shows at the end, its surroundings at the beginning."""


class ChildLog:
    """A log that grows without end and takes little room."""

    def __init__(self, head: int = HEAD, tail: int = TAIL) -> None:
        self._room, self._most = head, tail
        self._head, self._tail = bytearray(), bytearray()
        self._digest = sha256()
        self.size = 0
        """Bytes that were printed in all."""

    def add(self, data: bytes) -> None:
        """What came next."""
        self.size += len(data)
        self._digest.update(data)
        room = max(0, self._room - len(self._head))
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * self._most:
            del self._tail[: -self._most]

    @property
    def sha256(self) -> str:
        """The digest of all that was printed, kept or not."""
        return self._digest.copy().hexdigest()

    @property
    def tail(self) -> bytes:
        """The end, for a look at what went wrong."""
        missing = max(0, self._most - len(self._tail))
        return bytes(self._head[-missing:] if missing else b"") + bytes(self._tail[-self._most :])

    @property
    def kept(self) -> bytes:
        """Beginning and end, with a line between them where something was left out."""
        tail = bytes(self._tail[-self._most :])
        missing = self.size - len(self._head) - len(tail)
        gap = f"\n[{missing} bytes are left out here]\n".encode() if missing else b""
        return bytes(self._head) + gap + tail
