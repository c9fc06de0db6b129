"""The iteration order of a `std::unordered_map<std::string, ...>` in GNU's C++ library.

Providers iterate over such a map when they compute a file name. Source: gcc, libstdc++-v3: include/bits/hashtable.h,
libsupc++/hash_bytes.cc, src/c++11/hashtable_c++0x.cc; the tests compare with orders recorded from g++.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

_MASK = 2**64 - 1
_MULTIPLIER = 0xC6A4A7935BD1E995
_SEED = 0xC70F6907

# fmt: off
_PRIMES = (
    2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97, 103, 109, 113, 127,
    137, 139, 149, 157, 167, 179, 193, 199, 211, 227, 241, 257, 277, 293, 313, 337, 359, 383, 409, 439, 467, 503, 541,
    577, 619, 661, 709, 761, 823, 887, 953, 1031, 1109, 1193, 1289, 1381, 1493, 1613, 1741, 1879, 2029,
)
# fmt: on
_SMALL = (1, 2, 2, 3, 5, 5, 7, 7, 11, 11, 11, 11, 13, 13)
MOST_NAMES = 1_000


def hash_of(name: bytes) -> int:
    """`std::hash<std::string>` on a 64-bit machine."""
    state = _SEED ^ (len(name) * _MULTIPLIER & _MASK)
    whole = len(name) & ~7
    for at in range(0, whole, 8):
        word = int.from_bytes(name[at : at + 8], "little")
        word = _mixed(word * _MULTIPLIER & _MASK) * _MULTIPLIER & _MASK
        state = (state ^ word) * _MULTIPLIER & _MASK
    if whole < len(name):
        state = (state ^ int.from_bytes(name[whole:], "little")) * _MULTIPLIER & _MASK
    return _mixed(_mixed(state) * _MULTIPLIER & _MASK)


def _mixed(value: int) -> int:
    return value ^ (value >> 47)


def _buckets_for(count: int) -> int:
    return _SMALL[count] if count < len(_SMALL) else _PRIMES[bisect_left(_PRIMES, count)]


class _Table:
    """A hash table as libstdc++ has it: one linked list, in which the elements of a bucket are adjacent."""

    def __init__(self) -> None:
        self.order: list[bytes] = []
        self.buckets = 1
        self.limit = 0

    def rehash(self, buckets: int) -> None:
        """Rebuilds the list for this many buckets, from its front."""
        before, self.order, self.buckets, self.limit = self.order, [], buckets, buckets
        for name in before:
            self._link(name)

    def insert(self, name: bytes) -> None:
        """Inserts a name."""
        if len(self.order) + 1 > self.limit:
            least = max(len(self.order) + 1, 0 if self.limit else 11)
            self.rehash(_buckets_for(max(least + 1, self.buckets * 2)))
        self._link(name)

    def _link(self, name: bytes) -> None:
        home = hash_of(name) % self.buckets
        place = next((at for at, other in enumerate(self.order) if hash_of(other) % self.buckets == home), None)
        self.order.insert(0 if place is None else place, name)


def map_order(names: Sequence[str], reserved: int | None = None) -> list[str]:
    """The names in iteration order after they were inserted in the given order, without duplicates.

    `reserved` is the argument of an earlier call of `reserve()`. Raises `ValueError` for more names than the table of
    primes covers.
    """
    if max(len(names), reserved or 0) > MOST_NAMES:
        raise ValueError("it has more inputs than mxr can order")
    table = _Table()
    if reserved:
        buckets = _buckets_for(reserved)
        if buckets != table.buckets:
            table.rehash(buckets)
    for name in dict.fromkeys(names):
        table.insert(name.encode())
    return [name.decode() for name in table.order]
