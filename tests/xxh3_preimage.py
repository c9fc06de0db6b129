"""Second preimages of XXH3-128: other bytes of the same length and hash, computed in microseconds.

XXH3 reads inputs above 240 bytes in stripes of 8 words. In a block of 16 stripes (1 KiB), word `d` of lane `i` adds `d`
to accumulator `i ^ 1`, and low32(d ^ k) * high32(d ^ k) to accumulator `i`, where `k` is a word of the public default
secret. A word whose low (or high) half equals that of `k` has the product 0, and its other half is free. So two
stripes per block set the sum of each accumulator to any value; the other 14 stripes are whatever the attacker likes.

Source: XXH3_accumulate_512 and XXH3_kSecret in github.com/Cyan4973/xxHash, xxhash.h.
"""

from __future__ import annotations

import struct

BLOCK = 1024
STRIPES, LANES = 16, 8
FREE = (14, 15)
"""The stripes of a block that the construction needs: the last 128 bytes."""

LOW, WORD = 2**32 - 1, 2**64 - 1

SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)


def second_preimage(data: bytes, at: int, wanted: bytes) -> bytes:
    """Returns bytes with the XXH3-128 of `data` whose block at offset `at` begins with `wanted`, 896 bytes."""
    assert at % BLOCK == 0 and len(data) > at + BLOCK + 64 and len(wanted) == BLOCK - 128
    goal = _sums(_stripes(data[at : at + BLOCK]))
    stripes = [*_stripes(wanted), [0] * LANES, [0] * LANES]
    have = _sums(stripes[: FREE[0]])
    for lane in range(LANES):
        first, second = _key(FREE[0], lane), _key(FREE[1], lane)
        # The first word has the low half of its key, the second the high half of its key: both products are 0.
        rest = (goal[lane ^ 1] - have[lane ^ 1] - (first & LOW) - (second & ~LOW)) & WORD
        stripes[FREE[0]][lane] = (rest & ~LOW) | (first & LOW)
        stripes[FREE[1]][lane] = (second & ~LOW & WORD) | (rest & LOW)
    return data[:at] + b"".join(struct.pack("<8Q", *stripe) for stripe in stripes) + data[at + BLOCK :]


def _stripes(block: bytes) -> list[list[int]]:
    return [list(struct.unpack_from("<8Q", block, at)) for at in range(0, len(block), 64)]


def _key(stripe: int, lane: int) -> int:
    return int(struct.unpack_from("<Q", SECRET, 8 * (stripe + lane))[0])


def _sums(stripes: list[list[int]]) -> list[int]:
    sums = [0] * LANES
    for number, stripe in enumerate(stripes):
        for lane, word in enumerate(stripe):
            mixed = word ^ _key(number, lane)
            sums[lane ^ 1] = (sums[lane ^ 1] + word) & WORD
            sums[lane] = (sums[lane] + (mixed & LOW) * (mixed >> 32)) & WORD
    return sums
