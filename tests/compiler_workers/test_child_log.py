"""The bounded log keeps the beginning and the end of the output, however it arrives."""

from __future__ import annotations

from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from mxr_workers.sandbox import ChildLog


@given(st.lists(st.binary(max_size=40), max_size=40), st.integers(0, 50), st.integers(1, 50))
def test_it_keeps_both_ends_and_the_digest_of_everything(pieces: list[bytes], head: int, tail: int) -> None:
    log, whole = ChildLog(head, tail), b"".join(pieces)
    for piece in pieces:
        log.add(piece)
    assert log.sha256 == sha256(whole).hexdigest() and log.size == len(whole)
    if len(whole) <= head + tail:
        assert log.kept == whole
    else:
        gap = f"\n[{len(whole) - head - tail} bytes omitted]\n".encode()
        assert log.kept == whole[:head] + gap + whole[-tail:]
    assert log.tail == whole[-tail:]
    assert len(log._head) + len(log._tail) <= head + 2 * tail + 40
