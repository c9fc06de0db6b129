"""The sha256 of files whose blobs arrived in order, so that nothing is read back only to hash a whole file.

A client says after which blobs of its file a blob comes, by their chain (`mxr.artifact.manifest.next_chain`). A chain
stands for exactly these bytes, each blob of which was verified here when it arrived; it is no claim of the client.
Where the chain is unknown (other order, another registry, blobs that were there already, a restart), the file is read
from the store instead.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from functools import reduce
from hashlib import sha256
from itertools import accumulate
from typing import Any

from mxr.artifact.manifest import NO_CHAIN, next_chain

MAX_CHAINS = 10_000
"""Chains that are remembered, about 700 bytes each: those of the blobs that arrived last."""


class FileDigests:
    """States of sha256 by chain. Thread-safe."""

    def __init__(self, most: int = MAX_CHAINS) -> None:
        self._most = most
        self._states: OrderedDict[str, Any] = OrderedDict()
        self._lock = threading.Lock()

    def longest(self, names: Sequence[str], chain: str = NO_CHAIN) -> tuple[Any, int]:
        """Return a sha256 that has hashed as many of the blobs after a chain as possible, and their number.

        `names`: the sha256 of each blob. Returns None for the sha256 if not even the chain is known.
        """
        chains = list(accumulate(names, next_chain, initial=chain))
        with self._lock:
            for count in range(len(names), -1, -1):
                state = self._states.get(chains[count])
                if state is not None:
                    return state.copy(), count
        return (sha256() if chain == NO_CHAIN else None), 0

    def add(self, follows: Sequence[str], blob: str, state: Any) -> None:
        """Remember the sha256 that has hashed a blob, whose bytes were verified, and what is before it in its file."""
        chain = reduce(next_chain, [*follows, blob])
        with self._lock:
            self._states[chain] = state
            self._states.move_to_end(chain)
            if len(self._states) > self._most:
                self._states.popitem(last=False)
