"""The local cache: it serves alone where it may, survives damage, and needs no right to be written to serve."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import tokens
from harness.scale import SOAK

from .conftest import Programs
from .stack import STACKS, Host, Registry

ON = STACKS if SOAK else ("embedded",)

Hosts = Callable[..., Host]
Published = dict[str, Any]


def test_without_a_registry_the_cache_serves_what_was_exact(
    own_registry: Callable[..., Registry], host: Hosts, model: Path, programs: Programs, gpu: tuple[str, ...]
) -> None:
    registry = own_registry()
    mxr = host("own", registry.url)
    mxr("push", programs.gfx908, "--model", model, "--rocm", "7.2", "--for", "python")
    exact = ("fetch", model, *gpu, "--json")
    loose = ("fetch", model, *gpu[2:], "--arch", "gfx908", "--json")
    path = mxr(*exact).json["path"]
    assert mxr(*loose).json["match"]["assumed"] == {"sramecc": "+", "xnack": "-"}
    registry.stop()
    assert mxr(*exact).json["path"] == path
    # What can mean only this program needs no registry, also if it was never asked about: nothing of the key is open.
    for words in (loose, (*loose, "--rocm", "7.2.1"), (*loose, "--num-cu", 120), (*loose, "--offline")):
        assert mxr(*words).json["path"] == path
    age(mxr, 8 * DAY)
    refused = mxr(*loose, expect=69).error
    assert "has not confirmed for longer than max_stale" in refused["detail"]
    assert "--offline" in refused["hint"]
    assert mxr(*loose, "--offline").json["path"] == path
    age(mxr, -16 * DAY)
    assert "the clock of this host is wrong, or was" in mxr(*loose, expect=69).error["detail"]
    age(mxr, 8 * DAY)
    never_asked = mxr("fetch", model, *gpu, "--rocm", "7.2.1", "--offline", "--json").json
    assert never_asked["path"] == path
    by_hash = mxr("fetch", mxr("key", model, *gpu, "--json").json["model"], *gpu, "--json").json
    assert by_hash["path"] == path
    mxr(*exact, "--refresh", expect=69)
    mxr(*exact[:-1], "--batch", "8", "--offline", expect=69)


def age(mxr: Host, seconds: float) -> None:
    """What the registry confirmed was confirmed so many seconds earlier."""
    for path in mxr.cache.glob("v2/registries/*/*/artifacts/*/*.json"):
        row = json.loads(path.read_text())
        path.write_text(json.dumps(row | {"confirmed_at": row["confirmed_at"] - seconds}))


HOUR, DAY = 3600.0, 86400.0


def test_an_old_answer_is_confirmed_by_one_conditional_request(
    mxr: Host, registry: Registry, model: Path, published: Published, gpu: tuple[str, ...]
) -> None:
    mxr("fetch", model, *gpu)
    confirmed, resolved = f"GET /v1/artifacts/{published['id']}", "POST /v1/resolve"
    before = registry.requests(confirmed), registry.requests(resolved)
    for seconds, more in ((HOUR / 2, 0), (HOUR, 1), (0, 1), (-2 * DAY, 2), (2 * DAY, 3)):
        age(mxr, seconds)
        assert mxr("fetch", model, *gpu, "--json").json["source"] == "cache"
        assert (registry.requests(confirmed), registry.requests(resolved)) == (before[0] + more, before[1])
    mxr("fetch", model, *gpu, env={"MXR_MAX_AGE": "0"})
    assert registry.requests(confirmed) == before[0] + 4
    mxr("promote", published["id"])
    age(mxr, 2 * HOUR)
    assert mxr("fetch", model, *gpu, "--json").json["source"] == "cache"
    assert registry.requests(resolved) == before[1] + 1, "it changed, so the registry chooses anew"


def test_while_the_registry_is_away_old_answers_serve_with_a_warning_up_to_max_stale(
    own_registry: Callable[..., Registry], host: Hosts, model: Path, programs: Programs, gpu: tuple[str, ...]
) -> None:
    registry = own_registry()
    mxr = host("away", registry.url)
    mxr("push", programs.gfx908, "--model", model, "--rocm", "7.2", "--for", "python")
    exact = ("fetch", model, *gpu, "--json")
    path = mxr(*exact).json["path"]
    assert path in mxr.python(LIBRARY, model).out
    mxr("lock", model, *gpu)
    locked = ("fetch", model, *gpu, "--locked", "--json")
    registry.stop()
    for words in (exact, locked):
        assert mxr(*words).json["warnings"] == []
    age(mxr, 3 * DAY)
    for words in (exact, locked):
        found = mxr(*words)
        assert found.json["path"] == path and "3 days" in found.json["warnings"][0] and "warning" in found.err
    library = mxr.python(LIBRARY, model)
    assert path in library.out and "has not confirmed" in library.err
    age(mxr, 5 * DAY)
    for words in (exact, locked):
        assert mxr(*words, expect=69).error["hint"]
        assert mxr(*words, "--offline").json["path"] == path
    age(mxr, 1000 * DAY)
    assert mxr(*exact, "--offline").json["path"] == path
    assert mxr(*exact, env={"MXR_MAX_STALE": "2000d"}).json["path"] == path


LIBRARY = """
import sys, mxr
print(mxr.fetch(sys.argv[1], arch="gfx908:sramecc+:xnack-", rocm="7.2", migraphx="2.15", batch=4).path)
"""


def test_a_removed_artifact_is_not_served_after_max_age_neither_online_nor_away_nor_offline(
    own_registry: Callable[..., Registry], host: Hosts, model: Path, programs: Programs, gpu: tuple[str, ...]
) -> None:
    registry = own_registry()
    mxr, other = host("one", registry.url), host("two", registry.url)
    mxr("push", programs.gfx908, "--model", model, "--rocm", "7.2", "--for", "python")
    exact = ("fetch", model, *gpu, "--json")
    mxr("lock", model, *gpu)
    identity = mxr(*exact).json["id"]
    other(*exact)
    other("rm", identity, "--yes", "--force")
    assert mxr(*exact).json["id"] == identity, "within max_age nobody asks"
    age(mxr, 2 * HOUR)
    mxr("fetch", model, *gpu, "--locked", expect=3)
    for words in (exact, exact, (*exact, "--refresh")):
        mxr(*words, expect=3)
    age(other, 2 * HOUR)
    other(*exact, expect=3)
    registry.stop()
    for each in (mxr, other):
        each(*exact, expect=69)
        each(*exact, "--offline", expect=69)
        each(*exact, "--offline", "--allow", "cu", expect=69)
    mxr("fetch", model, *gpu, "--locked", "--offline", expect=3)
    registry.start()
    mxr("push", programs.gfx908, "--model", model, "--rocm", "7.2", "--for", "python", "--restore")
    assert mxr(*exact).json["id"] == identity, "published again, it serves again"
    registry.stop()
    assert mxr(*exact, "--offline").json["id"] == identity


def test_a_removed_artifact_is_not_served_from_a_bundle_either(
    own_registry: Callable[..., Registry], host: Hosts, model: Path, programs: Programs, gpu: tuple[str, ...]
) -> None:
    registry = own_registry()
    mxr, carried, late = (host(name, registry.url) for name in ("one", "carried", "late"))
    mxr("push", programs.gfx908, "--model", model, "--rocm", "7.2", "--for", "python")
    exact, locked = ("fetch", model, *gpu, "--json"), ("fetch", model, *gpu, "--locked", "--json")
    mxr("lock", model, *gpu)
    mxr("export", "mxr.lock", "-o", "bundle.tar")
    for each in (mxr, carried, late):
        each("import", mxr.home / "bundle.tar", "--lock", "mxr.lock")
    identity = mxr(*exact).json["id"]
    before = registry.requests("GET /v1/artifacts/")
    for words in (exact, locked, exact, locked):
        assert carried(*words).json["id"] == identity
    assert registry.requests("GET /v1/artifacts/") == before + 1, "what was only imported is asked about once"
    mxr("rm", identity, "--yes", "--force")
    age(mxr, 2 * HOUR)
    age(carried, 2 * HOUR)
    for each, first, second in ((mxr, exact, locked), (carried, locked, exact), (late, locked, exact)):
        each(*first, expect=3)
        each(*second, expect=3)
    registry.stop()
    for each in (mxr, carried, late):
        each(*exact, "--offline", expect=69)
        each(*locked, "--offline", expect=3)
        each(*exact, "--offline", "--allow", "cu", expect=69)


def test_another_registry_at_the_same_url_does_not_get_what_the_first_one_answered(
    own_registry: Callable[..., Registry], host: Hosts, model: Path, programs: Programs, gpu: tuple[str, ...]
) -> None:
    first = own_registry()
    mxr = host("own", first.url)
    mxr("push", programs.gfx908, "--model", model, "--rocm", "7.2", "--for", "python")
    exact = ("fetch", model, *gpu, "--json")
    path = mxr(*exact).json["path"]
    mxr("lock", model, *gpu)
    first.stop()
    second = own_registry(port=first.port)
    # Accepted: test_other_registry has what is served before.
    accepted = {"MXR_REGISTRY_ID": second.request("GET", "/healthz").headers["mxr-registry"]}
    mxr.environ |= tokens.variable(second.url) | accepted
    assert mxr(*exact).json["path"] == path, "within max_age nobody asks"
    age(mxr, 2 * HOUR)
    mxr(*exact, expect=3)
    for words in (exact, (*exact[:-1], "--locked", "--json")):
        mxr(*words, "--offline", expect=69)
    mxr("fetch", model, *gpu, "--locked", expect=3)
    second.stop()
    mxr(*exact, expect=69)
    first.start()
    mxr.environ |= tokens.variable(first.url)
    mxr.environ["MXR_REGISTRY_ID"] = first.request("GET", "/healthz").headers["mxr-registry"]
    assert mxr(*exact).json["path"] == path, "the first one confirms what it answered"
    elsewhere = mxr(*exact, "--offline", env={"MXR_REGISTRY": "http://127.0.0.1:1"}, expect=69)
    assert "no program for this request" in elsewhere.error["detail"]


def test_refresh_asks_where_the_cache_would_answer(
    mxr: Host, registry: Registry, model: Path, published: Published, gpu: tuple[str, ...]
) -> None:
    asked = registry.requests("POST /v1/resolve")
    for words, more in ((("fetch",), 1), (("fetch",), 1), (("fetch", "--refresh"), 2)):
        assert mxr(*words, model, *gpu, "--json").json["id"] == published["id"]
        assert registry.requests("POST /v1/resolve") == asked + more


def test_a_damaged_file_in_the_cache_is_fetched_again(
    mxr: Host, registry: Registry, model: Path, published: Published, programs: Programs, gpu: tuple[str, ...]
) -> None:
    mxr("fetch", model, *gpu)
    (held,) = mxr.held()
    for spoilt in (b"", programs.gfx908.read_bytes()[:-1], programs.gfx908.read_bytes()[:-1] + b"\0"):
        held.chmod(0o644)
        held.write_bytes(spoilt)
        assert mxr("fetch", model, *gpu, "--json").json["source"] == "registry"
        assert held.read_bytes() == programs.gfx908.read_bytes()


def test_a_damaged_file_is_never_taken_offline_and_verify_finds_it(
    mxr: Host, model: Path, published: Published, gpu: tuple[str, ...]
) -> None:
    mxr("fetch", model, *gpu)
    (held,) = mxr.held()
    held.chmod(0o644)
    held.write_bytes(b"x" * held.stat().st_size)
    found = mxr("cache", "verify", "--json", expect=65).error
    assert found["context"]["damaged"] == [published["sha256"]]
    mxr("fetch", model, *gpu, "--offline", expect=69)
    assert mxr("fetch", model, *gpu, "--json").json["source"] == "registry"


def test_damaged_notes_in_the_cache_do_no_harm(
    mxr: Host, model: Path, published: Published, gpu: tuple[str, ...]
) -> None:
    path = mxr("fetch", model, *gpu, "--json").json["path"]
    notes = [each for each in mxr.cache.rglob("*") if each.is_file() and each not in mxr.held()]
    assert len(notes) >= 3
    for text in (b"", b"{", b"[]", b"\xff\xfe", b'{"digest": 1, "id": {}}'):
        for each in notes:
            each.write_bytes(text)
        assert mxr("fetch", model, *gpu, "--json").json["path"] == path
    mxr("cache", "ls")


def test_removing_the_cache_is_safe(mxr: Host, model: Path, published: Published, gpu: tuple[str, ...]) -> None:
    mxr("fetch", model, *gpu)
    shutil.rmtree(mxr.cache)
    assert mxr("fetch", model, *gpu, "--json").json["source"] == "registry"


def test_programs_are_removed_by_id_or_all_at_once(
    mxr: Host, model: Path, published: Published, gpu: tuple[str, ...], tmp_path: Path
) -> None:
    """What others have in the folders stays."""
    mxr("fetch", model, *gpu)
    (held,) = mxr.held()
    assert mxr("cache", "rm", expect=2).err and mxr("cache", "rm", held.name[:12], "--all", expect=2).err
    for wrong in (held.name[:7], "0" * 12):
        assert wrong in mxr("cache", "rm", wrong, expect=3).err
    assert mxr("cache", "rm", published["id"][:12], "--json").json == {"removed": [str(held)]}
    assert mxr("fetch", model, *gpu, "--json").json["source"] == "registry"
    state = {"MXR_STATE_DIR": str(tmp_path / "state")}
    (tmp_path / "state" / "memo").mkdir(parents=True)
    for folder in (tmp_path / "state", mxr.cache):
        (folder / "mine.txt").write_text("mine")
    removed = mxr("cache", "rm", "--all", "--json", env=state).json["removed"]
    assert removed == [str(mxr.cache / "v2"), str(tmp_path / "state" / "memo")]
    assert (tmp_path / "state" / "mine.txt").exists() and (mxr.cache / "mine.txt").exists()
    assert mxr("cache", "rm", "--all", "--json", env=state).json["removed"] == []


def test_a_cache_under_a_file_is_a_clear_error(
    mxr: Host, model: Path, published: Published, gpu: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    error = mxr("fetch", model, *gpu, "--json", env={"MXR_CACHE_DIR": f"{tmp_path}/file/cache"}, expect=2).error
    assert f"{tmp_path}/file" in error["detail"]
    assert error["hint"]


@pytest.fixture
def read_only() -> Callable[[Path], tuple[str, ...]]:
    """Makes a folder read-only, for root too; gives the command through which that is so."""
    if os.geteuid() != 0:
        return _without_the_right

    probe = subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False)
    if probe.returncode != 0:
        pytest.skip("root without the right to mount can write everywhere")
    script = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
    return lambda folder: ("unshare", "-m", "sh", "-c", script, str(folder))


def _without_the_right(folder: Path) -> tuple[str, ...]:
    for each in [folder, *folder.rglob("*")]:
        if each.is_dir():
            each.chmod(0o555)
    return ()


def test_a_read_only_cache_serves_what_it_holds(
    mxr: Host,
    registry: Registry,
    model: Path,
    published: Published,
    programs: Programs,
    gpu: tuple[str, ...],
    read_only: Callable[[Path], tuple[str, ...]],
) -> None:
    exact = ("fetch", model, *gpu, "--json")
    loose = ("fetch", model, *gpu[2:], "--arch", "gfx908", "--json")
    path = mxr(*exact).json["path"]
    through = read_only(mxr.cache)
    assert mxr(*exact, through=through).json["path"] == path
    assert mxr(*exact, "--refresh", through=through).json["path"] == path
    assert mxr(*loose, through=through).json["path"] == path
    assert mxr(*exact, "--offline", through=through).json["path"] == path
    output = mxr.home / "model.mxr"
    mxr(*exact, "-o", output, through=through)
    assert output.read_bytes() == programs.gfx908.read_bytes()
    mxr("push", programs.gfx942, "--model", model, "--rocm", "7.2", "--for", "python", through=through)
    error = mxr("fetch", model, *gpu[2:], "--arch", "gfx942", "--json", through=through, expect=7).error
    assert error["code"] == "not_allowed"
    assert str(mxr.cache) in error["detail"]
