"""A bounded log: keeps the beginning and the end of a child's output, and the size and digest of all of it."""

from __future__ import annotations

from hashlib import sha256

HEAD, TAIL = 1 << 20, 3 << 20
"""Bytes kept of the beginning, which shows the context, and of the end, which shows the error."""


class ChildLog:
    """Accepts output of any size and keeps at most `head` + `tail` bytes of it (up to twice `tail` in memory)."""

    def __init__(self, head: int = HEAD, tail: int = TAIL) -> None:
        self._max_head, self._max_tail = head, tail
        self._head, self._tail = bytearray(), bytearray()
        self._digest = sha256()
        self.size = 0
        """Bytes of the whole output."""

    def add(self, data: bytes) -> None:
        """Append output."""
        self.size += len(data)
        self._digest.update(data)
        free = max(0, self._max_head - len(self._head))
        self._head += data[:free]
        self._tail += data[free:]
        if len(self._tail) > 2 * self._max_tail:
            del self._tail[: -self._max_tail]

    @property
    def sha256(self) -> str:
        """The digest of the whole output, including what was dropped."""
        return self._digest.copy().hexdigest()

    @property
    def tail(self) -> bytes:
        """The last bytes, for error classification."""
        missing = max(0, self._max_tail - len(self._tail))
        return bytes(self._head[-missing:] if missing else b"") + bytes(self._tail[-self._max_tail :])

    @property
    def kept(self) -> bytes:
        """The beginning and the end, with a line between them that counts the dropped bytes, if any."""
        tail = bytes(self._tail[-self._max_tail :])
        missing = self.size - len(self._head) - len(tail)
        gap = f"\n[{missing} bytes omitted]\n".encode() if missing else b""
        return bytes(self._head) + gap + tail
