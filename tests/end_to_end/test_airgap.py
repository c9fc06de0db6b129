"""From one registry by a bundle to another, and to hosts that have none: what was locked, and nothing else."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import Programs
from .large_program import MIB, write_program
from .relay import Relay
from .stack import PATIENCE, Host, Registry, Stack, finish

ON = ("embedded",)

Hosts = Callable[..., Host]
SIGNED = False
REF = ("--kind", "ref", "--migraphx", "2.16", "--for", "python", "--batch", "4")
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def inside(tmp_path_factory: pytest.TempPathFactory, stack: Stack) -> Iterator[Registry]:
    """The registry on the other side."""
    found = Registry(tmp_path_factory.mktemp("inside"), stack)
    yield found
    found.stop()


@pytest.fixture
def locked(mxr: Host, model: Path, convnet: Path, programs: Programs, published: Any, gpu: tuple[str, ...]) -> Path:
    """A lock of three entries, two of them of one model."""
    for precision, file in (("fp16", programs.ref), ("fp32", programs.ref32)):
        mxr("push", file, "--model", convnet, "--for", "python", "--precision", precision)
    mxr("lock", model, *gpu)
    for precision in ("fp16", "fp32"):
        mxr("lock", "--add", convnet, *REF, "--precision", precision)
    return mxr.home / "mxr.lock"


@pytest.fixture
def bundle(mxr: Host, locked: Path, tmp_path: Path) -> Path:
    mxr("export", locked, "-o", tmp_path / "bundle.tar")
    return tmp_path / "bundle.tar"


def test_a_host_without_a_registry(
    host: Hosts, bundle: Path, locked: Path, model: Path, convnet: Path, programs: Programs, gpu: tuple[str, ...]
) -> None:
    lonely = host("lonely", NOWHERE)
    said = lonely("import", bundle, "--lock", "mxr.lock", "--json").json
    assert [each["new"] for each in said["artifacts"]] == [True] * 3
    assert (lonely.home / "mxr.lock").read_bytes() == locked.read_bytes()
    assert "all files as locked" in lonely("verify").out
    for words in (("--offline",), ("--locked",), ("--locked", "--offline"), ()):
        found = lonely("fetch", model, *gpu, *words, "--json").json
        assert found["source"] == "cache" and found["match"]["exact"] is True
        assert Path(found["path"]).read_bytes() == programs.gfx908.read_bytes()
    for precision, program in (("fp16", programs.ref), ("fp32", programs.ref32)):
        path = lonely("fetch", "--offline", "--locked", convnet, *REF, "--precision", precision).out.strip()
        assert Path(path).read_bytes() == program.read_bytes()
    lonely("fetch", "--locked", "--offline", "-o", "out/")
    lonely("verify", "mxr.lock", "--in", "out")
    by_hash = lonely("key", model, *gpu, "--json").json["model"]
    assert lonely("fetch", by_hash, *gpu, "--offline", "--json").json["match"]["exact"] is True
    again = lonely("import", bundle, "--json").json
    assert [each["new"] for each in again["artifacts"]] == [False] * 3


def test_a_registry_on_the_other_side(
    host: Hosts, bundle: Path, locked: Path, inside: Registry, model: Path, gpu: tuple[str, ...], mxr: Host
) -> None:
    carrier, user = host("carrier", inside.url), host("user", inside.url)
    first = carrier("import", bundle, "--into", "registry", "--json").json
    again = carrier("import", bundle, "--into", "registry", "--json").json
    assert [each["new"] for each in first["artifacts"]] == [True] * 3
    assert [each["new"] for each in again["artifacts"]] == [False] * 3
    assert carrier.held() == []
    (user.home / "mxr.lock").write_bytes(locked.read_bytes())
    user("lock", "--check")
    assert user("fetch", "--locked", model, *gpu, "--json").json["source"] == "registry"
    user("lock", "--register", "deployed")
    for identity in [each["id"] for each in first["artifacts"]]:
        here, there = (side("show", identity, "--json").json for side in (mxr, user))
        assert {name: here[name] for name in here if name not in ("published_at", "promoted_at")} == {
            name: there[name] for name in there if name not in ("published_at", "promoted_at")
        }
    assert inside.fsck()["artifacts"] >= 3
    back = user("export", "mxr.lock", "-o", "back.tar", "--json").json
    assert set(back["artifacts"]) == {each["id"] for each in first["artifacts"]}


def test_the_same_lock_makes_the_same_bytes_from_anywhere(
    host: Hosts, bundle: Path, locked: Path, tmp_path: Path, registry: Registry
) -> None:
    warm = host("warm")
    (warm.home / "mxr.lock").write_bytes(locked.read_bytes())
    warm("fetch", "--locked")
    before = registry.requests("GET /v1/blobs/")
    warm("export", "mxr.lock", "-o", tmp_path / "again.tar")
    assert registry.requests("GET /v1/blobs/") == before, "what the cache holds is taken from there"
    assert (tmp_path / "again.tar").read_bytes() == bundle.read_bytes()
    with tarfile.open(bundle) as tar:
        names = tar.getnames()
        assert len(names) == len(set(names))
        assert names[:2] == ["oci-layout", "index.json"]


def test_by_ids(host: Hosts, published: dict[str, Any], model: Path, gpu: tuple[str, ...], mxr: Host) -> None:
    mxr("export", published["id"][:12], "-o", "one.tar")
    lonely = host("lonely", NOWHERE)
    assert "contains no lock" in lonely("import", mxr.home / "one.tar", "--lock", "mxr.lock", expect=2).err
    lonely("import", mxr.home / "one.tar")
    assert lonely("fetch", model, *gpu, "--offline", "--json").json["id"] == published["id"]


def test_what_is_gone_cannot_be_exported(host: Hosts, locked: Path, mxr: Host, published: dict[str, Any]) -> None:
    mxr("rm", published["id"], "--yes", "--force")
    other = host("other")
    error = other("export", locked, "-o", "bundle.tar", "--json", expect=3).error
    assert published["id"] == error["context"]["id"] and "was removed" in error["detail"]
    assert list(other.home.glob("*.tar")) == []


@pytest.mark.parametrize("into", ["cache", "registry"])
def test_a_bundle_cut_short_or_changed_leaves_nothing_behind(
    own_registry: Callable[..., Registry], host: Hosts, bundle: Path, tmp_path: Path, into: str
) -> None:
    target = own_registry()
    other = host("other", target.url)
    data = bundle.read_bytes()
    bad = tmp_path / "bad.tar"
    for at in (0, 700, len(data) // 2, len(data) - 2000):
        bad.write_bytes(data[:at])
        assert "is not a complete bundle" in other("import", bad, "--into", into, expect=65).err
    for at in (130, 1600, len(data) // 2, len(data) * 9 // 10):
        changed = bytearray(data)
        changed[at] ^= 4
        bad.write_bytes(changed)
        error = other("import", bad, "--into", into, "--json", expect=65).error
        assert error["code"] == "damaged" and str(bad) in error["detail"]
    assert other.held() == [] and other.leftovers() == []
    assert target.requests("PUT") == 0 and target.requests("POST /v1/artifacts") == 0
    other("import", bundle, "--into", into)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program of 48 MiB in blobs of 8 MiB and less."""
    return write_program(tmp_path_factory.mktemp("large") / "large.mxr", weights=6, size=8 * MIB, seed=7)


def test_an_export_that_was_killed_begins_again(
    registry: Registry, mxr: Host, host: Hosts, model: Path, large: Path, tmp_path: Path
) -> None:
    mxr("push", large, "--model", model, "--for", "python")
    mxr("lock", model, *REF)
    mxr("export", "mxr.lock", "-o", tmp_path / "whole.tar")
    other = host("other")
    words = ("export", mxr.home / "mxr.lock", "-o", "bundle.tar")
    with Relay(registry.url, after=34 * MIB, hold=True) as relay:
        running = other.start(*words, env={"MXR_REGISTRY": relay.url})
        assert relay.reached.wait(PATIENCE)
        running.kill()
        finish(running)
    assert not (other.home / "bundle.tar").exists() and len(other.leftovers()) == 1
    other(*words)
    assert (other.home / "bundle.tar").read_bytes() == (tmp_path / "whole.tar").read_bytes()


def test_an_import_that_was_killed_goes_on(
    mxr: Host, host: Hosts, model: Path, large: Path, own_registry: Callable[..., Registry]
) -> None:
    mxr("push", large, "--model", model, "--for", "python")
    mxr("lock", model, *REF)
    mxr("export", "mxr.lock", "-o", "bundle.tar")
    target = own_registry()
    with Relay(target.url, up=True, after=34 * MIB, hold=True) as relay:
        carrier = host("carrier", relay.url)
        running = carrier.start("import", mxr.home / "bundle.tar", "--into", "registry")
        assert relay.reached.wait(PATIENCE)
        running.kill()
        finish(running)
    assert target.fsck()["artifacts"] == 0
    with Relay(target.url) as counting:
        words = ("import", mxr.home / "bundle.tar", "--into", "registry")
        carrier(*words, env={"MXR_REGISTRY": counting.url})
        assert counting.bytes[True] < large.stat().st_size - 7 * MIB, "what had arrived whole is not sent again"
    found = host("user", target.url)("fetch", model, *REF).out.strip()
    assert Path(found).read_bytes() == large.read_bytes()


def test_an_import_into_a_cache_that_was_killed_goes_on(mxr: Host, host: Hosts, model: Path, large: Path) -> None:
    """Killed at the moment when the first bytes are in the cache, and not yet under their name."""
    mxr("push", large, "--model", model, "--for", "python")
    mxr("lock", model, *REF)
    mxr("export", "mxr.lock", "-o", "bundle.tar")
    lonely = host("lonely", NOWHERE)
    killed = """
import os, signal, sys
from mxr.bundle import image_layout
from mxr_cli.main import main
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
chunks, calls = image_layout.chunks, []
def some(layout, blob):
    for data in chunks(layout, blob):
        yield data
        if any(".mxr-partial-" in name for _, _, names in os.walk(os.environ["MXR_CACHE_DIR"]) for name in names):
            die()
image_layout.chunks = some
sys.argv = ["mxr", "import", sys.argv[1]]
main()
"""
    lonely.python(killed, mxr.home / "bundle.tar", expect=-9)
    assert lonely.held() == [] and len(lonely.leftovers()) == 1
    lonely("import", mxr.home / "bundle.tar")
    path = lonely("fetch", model, *REF, "--offline").out.strip()
    assert Path(path).read_bytes() == large.read_bytes()
    lonely("cache", "prune", "--older-than", "0")
    assert lonely.leftovers() == []


def test_memory_is_bounded(mxr: Host, host: Hosts, model: Path, tmp_path: Path) -> None:
    """Blobs of 64 MiB through export and import, by a process that never holds one whole."""
    program = write_program(tmp_path / "big.mxr", weights=2, size=64 * MIB, seed=8)
    mxr("push", program, "--model", model, "--for", "python")
    mxr("lock", model, *REF)
    measured = r"""
import re, sys
from pathlib import Path
from mxr_cli.main import main
sys.argv = ["mxr", *sys.argv[1:]]
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
print(re.search(r"VmHWM:\s+([0-9]+) kB", Path("/proc/self/status").read_text())[1], file=sys.stderr)
"""
    done = [mxr.python(measured, "export", "mxr.lock", "-o", "big.tar")]
    done.append(host("lonely", NOWHERE).python(measured, "import", mxr.home / "big.tar"))
    assert max(int(each.err.splitlines()[-1]) for each in done) < 64 << 10, "kilobytes"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("export", "absent.lock", "-o", "b.tar"), 2),
        (("export", "mxr.lock", "-o", "b.tar"), 2),
        (("export", "0" * 64, "-o", "b.tar"), 3),
        (("export", "mxr.lock", "mxr.lock", "-o", "b.tar"), 2),
        (("export",), 2),
        (("import", "absent.tar"), 2),
        (("import", "mxr.lock"), 65),
        (("import", "."), 65),
        (("import", "mxr.lock", "--into", "nowhere"), 2),
    ],
)
def test_bad_words(mxr: Host, words: tuple[str, ...], code: int) -> None:
    (mxr.home / "mxr.lock").write_text('{"version": 1, "entries": []}')
    error = mxr(*words, "--json", expect=code).error
    assert error["detail"] and error["hint"]
    assert not (mxr.home / "b.tar").exists() and mxr.leftovers() == []
