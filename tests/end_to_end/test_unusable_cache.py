"""`mxr fetch -o` where no cache can be had: containers of arbitrary users, read-only and full volumes."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from servers.debian import missing

from .conftest import Programs
from .large_program import MIB, write_program
from .stack import Host

ON = ("embedded",)

USER = 65532
TOOLS = ("--rocm", "7.2", "--migraphx", "2.15", "--batch", "4", "--for", "python")


@pytest.fixture
def pod(mxr: Host, host: Callable[..., Host], tmp_path: Path) -> Host:
    """A container without a home, whose user is in no list; use it with `through=AS_USER`."""
    if os.geteuid() != 0:
        missing("Only root can run a program as another user.")
    for path in (tmp_path, *tmp_path.parents):
        if path.stat().st_uid == 0 and not path.stat().st_mode & stat.S_ISVTX:
            path.chmod(path.stat().st_mode | 0o011)
    found = host("pod")
    found.environ |= {"HOME": "/", "MXR_CONFIG_DIR": "/nonexistent"}
    for name in ("MXR_CACHE_DIR", *[each for each in found.environ if each.startswith("XDG_")]):
        found.environ.pop(name, None)
    return found


AS_USER = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups")


def volume(path: Path, mode: int, group: int = 0) -> Path:
    """An emptyDir: root's, and open as Kubernetes makes it."""
    path.mkdir()
    os.chown(path, 0, group)
    path.chmod(mode)
    return path


@pytest.mark.parametrize(("mode", "group"), [(0o777, 0), (0o2777, USER), (0o2775, USER)])
def test_an_empty_dir_as_cache(
    mxr: Host, pod: Host, model: Path, published: object, programs: Programs, tmp_path: Path, mode: int, group: int
) -> None:
    cache, models = volume(tmp_path / "cache", mode, group), volume(tmp_path / "models", mode, group)
    words = ("fetch", model, "--arch", "gfx908:sramecc+:xnack-", *TOOLS)
    env = {"MXR_CACHE_DIR": str(cache)}
    said = pod(*words, "-o", f"{models}/", "--json", env=env, through=AS_USER)
    assert (said.json["source"], said.json["warnings"], said.err) == ("registry", [], "")
    (placed,) = models.glob("*.mxr")
    assert placed.read_bytes() == programs.gfx908.read_bytes()
    own = cache / f"mxr-{USER}"
    assert (own.stat().st_uid, stat.S_IMODE(own.stat().st_mode) & 0o777) == (USER, 0o700)
    found = pod(*words, "--json", env=env, through=AS_USER).json
    assert found["source"] == "cache" and found["path"].startswith(f"{own}/v2/files/")
    # A second user on the same volume has a folder of its own, and takes nothing from the first.
    other = mxr(*words, "--json", env=env).json
    assert other["source"] == "registry" and other["path"].startswith(f"{cache}/mxr-0/v2/files/")


def test_no_home_and_no_cache(
    pod: Host, model: Path, published: object, programs: Programs, tmp_path: Path, gpu: tuple[str, ...]
) -> None:
    """An arbitrary user id with HOME=/, as OpenShift gives one."""
    models = volume(tmp_path / "models", 0o777)
    words = ("fetch", model, *gpu, "--json")
    said = pod(*words, "-o", f"{models}/", through=AS_USER).json
    assert said["source"] == "registry" and Path(said["path"]).read_bytes() == programs.gfx908.read_bytes()
    assert said["path"].startswith(f"{models}/")
    (warning,) = said["warnings"]
    assert warning.startswith("not cached: ") and "no home folder" in warning and "MXR_CACHE_DIR=" in warning
    assert not [path for path in models.iterdir() if ".mxr-partial-" in path.name]
    assert Path(said["path"]).stat().st_mode & 0o777 == 0o644
    # A second time the file is there; a new folder appears complete.
    pod(*words, "-o", f"{models}/", through=AS_USER)
    new = pod(*words, "-o", f"{models}/a/b/", through=AS_USER).json
    assert Path(new["path"]).parent == models / "a" / "b"

    error = pod(*words, through=AS_USER, expect=7).error
    assert "no home folder" in error["detail"]
    assert "MXR_CACHE_DIR=" in error["hint"] and "--output FOLDER/" in error["hint"]
    named = error["hint"].partition("MXR_CACHE_DIR=")[2].partition(",")[0]
    try:
        again = pod(*words, env={"MXR_CACHE_DIR": named}, through=AS_USER).json
        assert again["path"].startswith(f"{named}/mxr-{USER}/")
    finally:
        shutil.rmtree(f"{named}/mxr-{USER}", ignore_errors=True)


def test_a_node_cache_that_lacks_one_program(
    mxr: Host, pod: Host, model: Path, published: object, programs: Programs, tmp_path: Path, gpu: tuple[str, ...]
) -> None:
    """The node's cache belongs to root: what it has is served from there, and what it lacks goes to its place."""
    models, cache = volume(tmp_path / "models", 0o777), tmp_path / "node"
    env = {"MXR_CACHE_DIR": str(cache)}
    mxr("fetch", model, *gpu, env=env)
    held = pod("fetch", model, *gpu, "-o", f"{models}/held/", "--json", env=env, through=AS_USER).json
    assert (held["source"], held["warnings"]) == ("cache", [])
    mxr("push", programs.gfx942, "--model", model, "--rocm", "7.2", "--for", "python")
    lacking = ("fetch", model, "--arch", "gfx942", *TOOLS, "--json")
    said = pod(*lacking, "-o", f"{models}/lacking/", env=env, through=AS_USER).json
    assert Path(said["path"]).read_bytes() == programs.gfx942.read_bytes()
    assert said["source"] == "registry" and "only reads it" in said["warnings"][0]
    error = pod(*lacking, env=env, through=AS_USER, expect=7).error
    assert "only reads it" in error["detail"] and "MXR_CACHE_DIR=" in error["hint"]


def test_a_full_cache_disk(mxr: Host, model: Path, tmp_path: Path) -> None:
    program = write_program(tmp_path / "large.mxr", weights=2, size=2 * MIB, seed=23)
    mxr("push", program, "--model", model, "--for", "python")
    words = ("fetch", model, "--kind", "ref", "--migraphx", "2.16", "--batch", "4", "--for", "python", "--json")
    mxr.cache.mkdir(exist_ok=True)
    script = 'mount -t tmpfs -o size=1m,mode=755 none "$0" && exec "$@"'
    small = ("unshare", "--mount", "--propagation=private", "sh", "-c", script, str(mxr.cache))
    if os.geteuid() != 0 or os.system("unshare --mount true 2>/dev/null"):
        missing("Only root with the right to mount can run this test.")
    said = mxr(*words, "-o", f"{tmp_path}/out/", through=small).json
    assert Path(said["path"]).read_bytes() == program.read_bytes()
    assert "No space left" in said["warnings"][0] and "/proc/" not in said["warnings"][0]
    assert [path.name for path in (tmp_path / "out").iterdir() if ".mxr-partial-" in path.name] == []
    error = mxr(*words, through=small, expect=75).error
    assert error["code"] == "disk_full" and "MXR_CACHE_DIR" in error["hint"]


@pytest.mark.parametrize("consumer", ["triton", "amdinfer"])
def test_layouts_and_locks(
    pod: Host, mxr: Host, model: Path, published: object, tmp_path: Path, gpu: tuple[str, ...], consumer: str
) -> None:
    """More ways of `-o`: the layout of a consumer, a plain file of another folder, and a lock."""
    models = volume(tmp_path / "models", 0o777)
    words = (model, *gpu[:-2])
    layout = pod("fetch", *words, "--for", consumer, "-o", f"{models}/{consumer}/", "--json", through=AS_USER).json
    assert all(Path(each).is_file() for each in layout["files"]) and layout["warnings"]
    some = pod("fetch", *words[:-2], "--batch", "4", "--for", "python", "-o", f"{models}/set/", through=AS_USER)
    assert some.err.count("warning: not cached") == 1
    lock = tmp_path / "mxr.lock"
    mxr("lock", model, *gpu, "-o", lock)
    pinned = pod("fetch", "--locked", lock, "-o", f"{models}/locked/", through=AS_USER)
    assert pinned.err.count("warning: not cached") == 1
    assert list((models / "locked").glob("*.mxr"))
    assert not [path for path in models.rglob("*") if ".mxr-partial-" in path.name]


def test_the_library_says_it_once(
    mxr: Host, model: Path, published: object, programs: Programs, tmp_path: Path
) -> None:
    """`mxr.fetch(output=...)` with a file where the cache should be."""
    (tmp_path / "file").write_text("")
    mxr.environ |= {"MXR_CACHE_DIR": f"{tmp_path}/file/cache"}
    code = (
        "import sys, mxr\n"
        "found = mxr.fetch(sys.argv[1], arch='gfx908', rocm='7.2', migraphx='2.15', batch=4, output=sys.argv[2])\n"
        "print(found.path)"
    )
    done = mxr.python(code, model, f"{tmp_path}/out/")
    assert Path(done.out.strip()).read_bytes() == programs.gfx908.read_bytes()
    assert done.err.count("not cached: ") == 1
