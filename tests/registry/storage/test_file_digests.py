"""What is known of whole files from the blobs that arrived: exact, bounded, and nothing on a client's word."""

from __future__ import annotations

from hashlib import sha256

from mxr.artifact.manifest import NO_CHAIN, next_chain
from mxr_registry.storage.store import FileDigests

BLOBS = [b"one", b"two", b"three", b"four"]
NAMES = [sha256(blob).hexdigest() for blob in BLOBS]


def arrived(digests: FileDigests, count: int) -> None:
    """So many of the blobs arrived in order."""
    state, chain = sha256(), NO_CHAIN
    for blob, name in zip(BLOBS[:count], NAMES, strict=False):
        state.update(blob)
        digests.add([chain], name, state.copy())
        chain = next_chain(chain, name)


def test_a_file_that_arrived_in_order_is_known() -> None:
    digests = FileDigests()
    arrived(digests, 4)
    for count in range(5):
        state, found = digests.longest(NAMES[:count])
        assert (state.hexdigest(), found) == (sha256(b"".join(BLOBS[:count])).hexdigest(), count)


def test_what_did_not_arrive_is_left_to_be_read() -> None:
    digests = FileDigests()
    arrived(digests, 2)
    state, found = digests.longest(NAMES)
    assert (state.hexdigest(), found) == (sha256(b"onetwo").hexdigest(), 2)
    for names in ([*reversed(NAMES)], [NAMES[1], NAMES[0]], [NAMES[0], NAMES[0]][1:] * 2):
        state, found = digests.longest(names)
        assert found == (1 if names[0] == NAMES[0] else 0)


def test_a_chain_that_never_arrived_gives_nothing() -> None:
    digests = FileDigests()
    arrived(digests, 4)
    for chain in ("0" * 64, NAMES[0], next_chain(NAMES[0], NAMES[1])):
        assert digests.longest(NAMES, chain) == (None, 0)


def test_a_state_is_not_changed_by_who_gets_it() -> None:
    digests = FileDigests()
    arrived(digests, 2)
    digests.longest(NAMES[:2])[0].update(b"more")
    assert digests.longest(NAMES[:2])[0].hexdigest() == sha256(b"onetwo").hexdigest()


def test_they_are_bounded() -> None:
    digests = FileDigests(3)
    arrived(digests, 4)
    assert len(digests._states) == 3
    assert digests.longest(NAMES[:1])[1] == 0 and digests.longest(NAMES)[1] == 4
