"""The first bytes of the blobs that arrived last: what a reader of programs needs of most of them."""

from __future__ import annotations

import threading
from collections import OrderedDict

MAX_HELD = 32 << 20
"""Bytes of all heads together."""


class RecentHeads:
    """The heads of blobs, which were verified with them. Thread-safe."""

    def __init__(self, most: int = MAX_HELD) -> None:
        self._most = most
        self._heads: OrderedDict[str, bytes] = OrderedDict()
        self._held = 0
        self._lock = threading.Lock()

    def add(self, sha256: str, head: bytes) -> None:
        """Keep the head of a blob, instead of those that arrived first where they become too many."""
        with self._lock:
            self._held += len(head) - len(self._heads.pop(sha256, b""))
            self._heads[sha256] = head
            while self._held > self._most:
                self._held -= len(self._heads.popitem(last=False)[1])

    def forget(self, sha256: str) -> None:
        """Drop the head of a blob."""
        with self._lock:
            self._held -= len(self._heads.pop(sha256, b""))

    def read(self, sha256: str, offset: int, length: int) -> bytes | None:
        """Return a range of a blob, None if its head does not hold all of it."""
        with self._lock:
            head = self._heads.get(sha256, b"")
        return head[offset : offset + length] if offset + length <= len(head) else None
