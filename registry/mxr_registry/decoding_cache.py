"""Caches of what was decoded from texts of clients, bounded in bytes, whatever clients send."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from typing import Generic, TypeVar

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
        self._decode, self._most, self._size = decode, most, 0
        self._found: OrderedDict[bytes, tuple[int, T]] = OrderedDict()
        self._guard = threading.Lock()

    def get(self, text: bytes) -> T:
        """Return what was decoded from this text. Raises as the function that decodes."""
        if len(text) > self._most // 16:
            return self._decode(text)
        key = digest_of(text)
        with self._guard:
            if (known := self._found.get(key)) is not None:
                self._found.move_to_end(key)
                return known[1]
        value = self._decode(text)
        with self._guard:
            if key not in self._found:
                self._found[key] = (len(text), value)
                self._size += len(text)
            while self._size > self._most:
                _, (size, _) = self._found.popitem(last=False)
                self._size -= size
        return value


OBJECT_FACTOR = 10
"""Bytes of memory of the objects for each byte of their text: measured 3.3 for the capabilities of workers."""
