"""The first bytes of blobs: exact, and bounded in all."""

from __future__ import annotations

from mxr_registry.storage.objects import RecentHeads


def test_a_range_is_given_only_where_all_of_it_is_held() -> None:
    heads = RecentHeads(100)
    heads.add("a", b"0123456789")
    assert heads.read("a", 2, 3) == b"234" and heads.read("a", 0, 10) == b"0123456789"
    assert heads.read("a", 2, 9) is None and heads.read("b", 0, 1) is None
    heads.forget("a")
    heads.forget("a")
    assert heads.read("a", 0, 1) is None


def test_those_that_came_first_make_room() -> None:
    heads = RecentHeads(25)
    for name in "abc":
        heads.add(name, name.encode() * 10)
    assert [heads.read(name, 0, 1) for name in "abc"] == [None, b"b", b"c"]
    # The same blob once more takes no more room.
    for _ in range(5):
        heads.add("c", b"c" * 10)
    assert heads.read("b", 0, 1) == b"b"
    heads.forget("b")
    heads.add("d", b"d" * 15)
    assert [heads.read(name, 0, 1) for name in "cd"] == [b"c", b"d"]
