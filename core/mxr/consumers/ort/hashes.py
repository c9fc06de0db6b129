"""The hash function of ONNX Runtime's file names: chained MurmurHash3 x86 128, of which names contain 64 bits.

Source: MurmurHash3 (public domain, Austin Appleby), as microsoft/onnxruntime uses it in
onnxruntime/core/framework/murmurhash3.cc; the hex notation is ToHex in the MIGraphX provider.
"""

from __future__ import annotations

from struct import unpack_from

FIELDS = ("version", "graph", "arch", "shape")
"""The fields of a file name, in order."""

_C = (0x239B961B, 0xAB0E9789, 0x38B34AE5, 0xA1E38B93)
_ROTATE_KEY = (15, 16, 17, 18)
_ROTATE_STATE = (19, 17, 15, 13)
_ADD = (0x561CCD1B, 0x0BCAA747, 0x96CD1C35, 0x32AC3B17)
_MASK = 0xFFFFFFFF


def murmur128(data: bytes, seed: int = 0) -> tuple[int, int, int, int]:
    """MurmurHash3_x86_128 as four 32-bit words."""
    state = [seed] * 4
    whole = len(data) // 16
    for block in range(whole):
        keys = unpack_from("<4I", data, block * 16)
        for at in range(4):
            mixed = state[at] ^ _key(keys[at], at)
            spin = _ROTATE_STATE[at]
            mixed = ((mixed << spin) | (mixed >> (32 - spin))) & _MASK
            state[at] = ((mixed + state[(at + 1) & 3]) * 5 + _ADD[at]) & _MASK
    tail = data[whole * 16 :]
    if tail:
        keys = unpack_from("<4I", tail.ljust(16, b"\0"))
        for at in range((len(tail) + 3) // 4):
            state[at] ^= _key(keys[at], at)
    return _finish([each ^ len(data) for each in state])


def _key(key: int, at: int) -> int:
    key = (key * _C[at]) & _MASK
    spin = _ROTATE_KEY[at]
    key = ((key << spin) | (key >> (32 - spin))) & _MASK
    return (key * _C[(at + 1) & 3]) & _MASK


def _finish(state: list[int]) -> tuple[int, int, int, int]:
    one, two, three, four = map(_avalanche, _spread(state))
    one, two, three, four = _spread([one, two, three, four])
    return one, two, three, four


def _spread(state: list[int]) -> list[int]:
    first = sum(state) & _MASK
    return [first, *((each + first) & _MASK for each in state[1:])]


def _avalanche(word: int) -> int:
    word ^= word >> 16
    word = (word * 0x85EBCA6B) & _MASK
    word ^= word >> 13
    word = (word * 0xC2B2AE35) & _MASK
    return word ^ (word >> 16)


def hashed(data: bytes, seed: int = 0) -> int:
    """The 64 bits that a name contains: the first word as the low half, the second as the high half."""
    words = murmur128(data, seed)
    return words[0] | words[1] << 32


class Chain:
    """A hash over several pieces: the first 32 bits of each hash are the seed of the next."""

    def __init__(self) -> None:
        self._words = (0, 0, 0, 0)

    def update(self, piece: bytes | str) -> None:
        """Add a piece; an empty piece changes the hash as well."""
        self._words = murmur128(piece.encode() if isinstance(piece, str) else piece, self._words[0])

    @property
    def value(self) -> int:
        """The 64 bits that a name contains."""
        return self._words[0] | self._words[1] << 32


def joined(*fields: int) -> str:
    """The file name of these fields: lower-case hex without padding, joined by `-`, with the suffix `.mxr`."""
    return "-".join(f"{field:x}" for field in fields) + ".mxr"
