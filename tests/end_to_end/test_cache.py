"""The local cache: it serves alone where it may, survives damage, and needs no right to be written to serve."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import Programs
from .stack import Host, Registry

ON = ("embedded", "engines")

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
    refused = mxr(*loose, expect=69).error
    assert "not an exact match" in refused["message"]
    assert "--offline" in refused["hint"]
    assert mxr(*loose, "--offline").json["path"] == path
    never_asked = mxr("fetch", model, *gpu, "--rocm", "7.2.1", "--offline", "--json").json
    assert never_asked["path"] == path
    by_hash = mxr("fetch", mxr("key", model, *gpu, "--json").json["model"], *gpu, "--json").json
    assert by_hash["path"] == path
    mxr(*exact, "--refresh", expect=69)
    mxr(*exact[:-1], "--batch", "8", "--offline", expect=69)


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
    assert found["detail"]["damaged"] == [published["sha256"]]
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


def test_a_cache_under_a_file_is_a_clear_error(
    mxr: Host, model: Path, published: Published, gpu: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    error = mxr("fetch", model, *gpu, "--json", env={"MXR_CACHE_DIR": f"{tmp_path}/file/cache"}, expect=2).error
    assert f"{tmp_path}/file" in error["message"]
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
    assert str(mxr.cache) in error["message"]
