"""A program turns out to be bad: every host that has a copy of it refuses it, and says why."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .stack import Host, Registry

ON = ("embedded",)

Hosts = Callable[..., Host]
WHY = "wrong results for batches above 4"
ASKS = {"MXR_MAX_AGE": "0"}
"""The age of every answer is over."""


@pytest.fixture
def bundle(mxr: Host, model: Path, published: dict[str, Any], gpu: tuple[str, ...]) -> Path:
    """The program with its lock."""
    mxr("lock", model, *gpu)
    mxr("export", "mxr.lock", "-o", "bundle.tar")
    return mxr.home / "bundle.tar"


def test_a_quarantined_program_is_refused_by_who_has_a_copy(
    host: Hosts, mxr: Host, bundle: Path, model: Path, published: dict[str, Any], gpu: tuple[str, ...]
) -> None:
    """Who only has the cache, the lock, or the bundle, and who has the lock and never had the program."""
    cached, locked, brought, fresh = (host(name) for name in ("cached", "locked", "brought", "fresh"))
    cached("fetch", model, *gpu)
    for each in (locked, fresh):
        (each.home / "mxr.lock").write_bytes((mxr.home / "mxr.lock").read_bytes())
    locked("fetch", "--locked")
    brought("import", bundle, "--lock", "mxr.lock")
    assert brought("fetch", model, *gpu, "-o", "out/", "--json").json["source"] == "cache"
    assert "all files as locked" in locked("verify").out

    mxr("quarantine", published["id"][:12], "--reason", WHY)
    # What the registry confirmed a moment ago serves until its age is over.
    assert cached("fetch", model, *gpu, "--json").json["source"] == "cache"
    said = cached("fetch", model, *gpu, "--json", env=ASKS, expect=3).error
    assert said["context"]["reason"] == "recalled" and "was quarantined" in said["detail"]
    for each, words in ((locked, ("--locked",)), (fresh, ("--locked",)), (brought, ("--locked", model, *gpu))):
        refused = each("fetch", *words, "--json", env=ASKS, expect=6).error
        assert (refused["code"], refused["context"]["id"]) == ("recalled", published["id"])
        assert WHY in refused["detail"] and "mxr lock" in refused["hint"]
    assert "was quarantined" in brought("fetch", model, *gpu, env=ASKS, expect=3).err
    # From now on without a network and whatever the age, because they know.
    for each, words in ((cached, (model, *gpu)), (locked, ("--locked",)), (brought, (model, *gpu))):
        refused = each("fetch", *words, "--offline", "--json", expect=6).error
        assert refused["code"] == "recalled" and WHY in refused["detail"]
    assert [each["state"] for each in locked("verify", "--json", expect=6).error["context"]["entries"]] == [
        "quarantined"
    ]
    assert {each["gone"] for each in locked("cache", "ls", "--json").json["files"]} == {"quarantined"}
    assert locked("cache", "verify", "--json").json["recalled"] == [published["id"]]
    assert WHY in brought("verify", "out", expect=6).err
    assert "quarantined" in mxr("lock", "--check", expect=6).err
    assert mxr("export", published["id"], "-o", "again.tar", "--json", expect=6).error["code"] == "recalled"
    assert not (mxr.home / "again.tar").exists()

    mxr("unyank", published["id"][:12])
    for each in (locked, fresh):
        each("fetch", "--locked", env=ASKS)
    assert cached("fetch", model, *gpu, "--json").json["id"] == published["id"]


def test_a_yanked_program_is_chosen_no_more_and_locks_go_on(
    host: Hosts, mxr: Host, bundle: Path, model: Path, published: dict[str, Any], gpu: tuple[str, ...]
) -> None:
    locked = host("locked")
    (locked.home / "mxr.lock").write_bytes((mxr.home / "mxr.lock").read_bytes())
    mxr("yank", published["id"], "--reason", "half as fast")
    for each in (mxr, host("fresh")):
        assert "was yanked" in each("fetch", model, *gpu, env=ASKS, expect=3).err
    first = locked("fetch", "--locked", model, *gpu)
    assert "half as fast" in first.err and Path(first.out.strip()).is_file()
    again = locked("fetch", "--locked", model, *gpu, "--offline", "--json").json
    assert (again["source"], ["half as fast" in line for line in again["warnings"]]) == ("cache", [True])
    assert "yanked" in locked("verify").err
    shown = mxr("ls", "--model", model, "--state", "yanked").out
    assert published["id"][:12] in shown and "yanked" in shown
    assert "half as fast" in mxr("show", published["id"]).out
    assert "artifact.yank" in mxr("history", published["id"]).out
    # It ends again, before this host was told of it by more than the list.
    other = host("other")
    (other.home / "mxr.lock").write_bytes((mxr.home / "mxr.lock").read_bytes())
    mxr("unyank", published["id"])
    other("fetch", "--locked")
    mxr("yank", published["id"], "--reason", "half as fast")
    for path in other.cache.rglob("artifacts/*/*.json"):
        assert json.loads(path.read_text())["artifact"]["recall"] is None
    (lists,) = locked.cache.rglob("recalls/own.json")
    there = lists.relative_to(locked.cache)
    (other.cache / there).parent.mkdir(exist_ok=True)
    (other.cache / there).write_bytes(lists.read_bytes())
    assert "half as fast" in other("fetch", "--locked", "--offline").err
    mxr("unyank", published["id"])
    for _ in range(2):
        other("fetch", "--locked", env=ASKS)
    assert "half as fast" not in other("fetch", "--locked").err
    mxr("yank", published["id"], "--reason", "half as fast")
    mxr("rm", published["id"], "--yes")
    assert "half as fast" in locked("fetch", "--locked", "--offline").err


def test_what_was_used_is_recalled_before_it_is_removed(
    own_registry: Callable[..., Registry], host: Hosts, model: Path, programs: Any, gpu: tuple[str, ...]
) -> None:
    registry = own_registry()
    mxr = host("own", registry.url)
    id = mxr("push", programs.gfx908, "--model", model, "--rocm", "7.2", "--for", "python", "--json").json["id"]
    mxr("fetch", model, *gpu)
    refused = mxr("rm", id, "--yes", expect=6).err
    assert "mxr yank ID" in refused and "mxr quarantine ID" in refused
    mxr("quarantine", id, "--reason", WHY)
    mxr("rm", id, "--yes")
    mxr("fetch", model, *gpu, env=ASKS, expect=3)
    # It does not come back: neither from the cache nor when somebody publishes it again.
    mxr("push", programs.gfx908, "--model", model, "--rocm", "7.2", "--for", "python", "--restore")
    assert "was quarantined" in mxr("fetch", model, *gpu, env=ASKS, expect=3).err


def test_a_host_hears_of_programs_that_it_does_not_ask_for(
    own_registry: Callable[..., Registry], host: Hosts, model: Path, convnet: Path, programs: Any, gpu: tuple[str, ...]
) -> None:
    """The list comes with any answer about another program, and in every bundle."""
    registry = own_registry()
    mxr, other, lonely = host("own", registry.url), host("other", registry.url), host("lonely", "http://127.0.0.1:9")
    bad = mxr("push", programs.gfx908, "--model", model, "--rocm", "7.2", "--for", "python", "--json").json["id"]
    good = mxr("push", programs.ref, "--model", convnet, "--for", "python", "--precision", "fp16", "--json").json["id"]
    asked = (convnet, "--kind", "ref", "--migraphx", "2.16", "--for", "python", "--batch", "4", "--precision", "fp16")
    mxr("export", bad, good, "-o", "before.tar")
    lonely("import", mxr.home / "before.tar")
    for each in (other, lonely):
        each("fetch", model, *gpu)
    mxr("quarantine", bad, "--reason", WHY)
    mxr("export", good, "-o", "after.tar")
    other("fetch", *asked)
    assert WHY in other("fetch", model, *gpu, "--offline", expect=6).err
    lonely("import", mxr.home / "after.tar")
    assert WHY in lonely("fetch", model, *gpu, expect=69).err
    lonely("fetch", *asked)
    # An older bundle takes nothing back.
    for each in (other, lonely):
        each("import", mxr.home / "before.tar")
        assert WHY in each("fetch", model, *gpu, "--offline", expect=6).err
    mxr("unyank", bad)
    mxr("yank", good, "--reason", "slow")
    # Only the list knows by now that the one is good again, and the other is not.
    other("fetch", model, *gpu, env=ASKS)
    assert "slow" in other("fetch", *asked, "--offline", expect=6).err
