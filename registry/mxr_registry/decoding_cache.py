"""Caches of what was decoded from texts of clients, bounded in bytes, whatever clients send."""

from __future__ import annotations

import threading
from collections.abc import Callable
from hashlib import blake2b
from typing import Generic, TypeVar

from cachetools import LRUCache

T = TypeVar("T")

DIGEST = 16
"""Bytes of the digest that stands for a text."""


def digest_of(*texts: bytes) -> bytes:
    """Return a digest that two different lists of texts do not share."""
    found = blake2b(digest_size=DIGEST)
    for text in texts:
        found.update(b"%d " % len(text))
        found.update(text)
    return found.digest()


class DecodingCache(Generic[T]):
    """The latest results of decoding texts of at most `most` bytes together. Can be used from several threads.

    A text above a sixteenth of that is decoded each time. The decoded objects take about `OBJECT_FACTOR` times as much.
    """

    def __init__(self, decode: Callable[[bytes], T], most: int) -> None:
        self._decode, self._most = decode, most
        self._found: LRUCache[bytes, tuple[int, T]] = LRUCache(most, getsizeof=lambda each: each[0])
        self._guard = threading.Lock()

    def get(self, text: bytes) -> T:
        """Return what was decoded from this text. Raises as the function that decodes."""
        if len(text) > self._most // 16:
            return self._decode(text)
        key = digest_of(text)
        with self._guard:
            known = self._found.get(key)
        if known is None:
            known = (len(text), self._decode(text))
            with self._guard:
                self._found[key] = known
        return known[1]


OBJECT_FACTOR = 10
"""Bytes of memory of the objects for each byte of their text: measured 3.3 for the capabilities of workers."""
