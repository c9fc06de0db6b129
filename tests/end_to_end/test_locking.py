"""What was tested is written down, and deployed: exactly that, though the registry would choose another by now."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import Programs, unique
from .stack import Host, Registry

Hosts = Callable[..., Host]
REF = ("--kind", "ref", "--migraphx", "2.16", "--for", "python")
OTHERS = ("layout_gfx90a", "miopen_solution")


@pytest.fixture
def two(mxr: Host, model: Path, programs: Programs) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two programs of one key, the first of them the first choice."""
    said = ("--model", model, "--rocm", "7.2", "--for", "python", "--json")
    folder = programs.gfx908.parent
    files = (folder / "v7_gfx90a_sramecc+_xnack-.bundle.mxr", folder / "v7_layout_gfx90a.mxr")
    one, other = (mxr("push", file, *said).json for file in files)
    assert one["digest"] == other["digest"] and one["id"] != other["id"]
    return one, other


ASKED = ("--arch", "gfx90a:sramecc+:xnack-", "--rocm", "7.2", "--migraphx", "2.15", "--for", "python")


def shape(mxr: Host, programs: Programs) -> tuple[str, ...]:
    """The shape that the gfx90a programs are for."""
    found = mxr("inspect", programs.gfx908.parent / "v7_layout_gfx90a.mxr", "--json").json["inputs"]
    return tuple(f"--input={name}={','.join(map(str, row['dims']))}" for name, row in found.items())


def test_a_lock_pins_what_was_tested(
    mxr: Host, host: Hosts, model: Path, two: Any, programs: Programs, tmp_path: Path
) -> None:
    one, other = two
    asked = (*ASKED, *shape(mxr, programs))
    lock = tmp_path / "mxr.lock"
    said = mxr("lock", model, *asked, "-o", lock, "--json").json
    assert said["entries"] == [{"model": model.name, "digest": one["digest"], "id": one["id"], "sha256": one["sha256"]}]
    assert "all as locked" in mxr("lock", "--check", "-o", lock).out
    text = lock.read_text()

    mxr("promote", other["id"])
    drift = mxr("lock", "--check", "-o", lock, "--json", expect=6).error
    assert drift["code"] == "mismatch"
    assert [(each["id"], each["state"], each["first"]) for each in drift["context"]["entries"]] == [
        (one["id"], "other", other["id"])
    ]

    fresh = host("fresh")
    plain = fresh("fetch", model, *asked, "--json").json
    locked = fresh("fetch", model, "--locked", lock, *asked, "--json").json
    assert (plain["id"], locked["id"], locked["source"]) == (other["id"], one["id"], "registry")
    assert fresh("fetch", model, *asked, "--json").json["id"] == other["id"], "the lock pins for --locked alone"

    before = mxr("lock", model, *asked, "-o", lock).out
    assert before == f"{lock}: 1 entry, 1 artifact\n"
    changed = [row for row in lock.read_text().splitlines() if row not in text.splitlines()]
    assert [row.split('"')[1] for row in changed] == ["id", "sha256"]


def test_a_locked_fetch_asks_nobody_where_the_cache_has_it(
    own_registry: Callable[..., Registry], host: Hosts, model: Path, programs: Programs, gpu: tuple[str, ...]
) -> None:
    registry = own_registry()
    mxr = host("one", registry.url)
    mxr("push", programs.gfx908, "--model", model, "--rocm", "7.2", "--for", "python")
    mxr("lock", model, *gpu)
    first = mxr("fetch", "--locked", model, *gpu, "--json").json
    assert first["source"] == "registry" and registry.requests("POST /v1/resolve") == 1, "one, by mxr lock"
    registry.kill9()
    for words in ((), ("--offline",)):
        again = mxr("fetch", "--locked", model, *gpu, *words, "--json").json
        assert (again["source"], again["path"]) == ("cache", first["path"])
    elsewhere = host("two", registry.url)
    (elsewhere.home / "mxr.lock").write_bytes((mxr.home / "mxr.lock").read_bytes())
    assert elsewhere("fetch", "--locked", model, *gpu, "--json", expect=69).error["code"] == "unreachable"
    assert "--offline" in elsewhere("fetch", "--locked", model, *gpu, "--offline", expect=69).err


def test_a_host_that_knows_more_of_itself_finds_the_entry(
    mxr: Host, host: Hosts, model: Path, published: dict[str, Any], gpu: tuple[str, ...]
) -> None:
    """The lock was written with --arch and versions; the host adds its patches. What cannot serve is refused."""
    mxr("lock", model, *gpu)
    said = list(gpu)
    said[said.index("7.2")] = "7.2.1"
    found = mxr("fetch", "--locked", model, *said, "--json").json
    assert (found["id"], found["match"]["assumed"]) == (published["id"], {"rocm_patch": "7.2.1"})
    said[1] = "gfx908:sramecc-:xnack-"
    error = mxr("fetch", "--locked", model, *said, "--json", expect=6).error
    assert error["context"]["id"] == published["id"]
    assert [each["field"] for each in error["context"]["differences"]] == ["sramecc"]


def test_a_request_that_is_not_in_the_lock_is_refused_with_the_nearest(
    mxr: Host, model: Path, published: dict[str, Any], gpu: tuple[str, ...]
) -> None:
    mxr("lock", model, *gpu)
    error = mxr("fetch", "--locked", model, *gpu, "--batch", "8", "--json", expect=6).error
    assert (error["code"], error["detail"]) == ("mismatch", "This request is not in the lock.")
    (nearest,) = error["context"]["nearest"]
    assert nearest == {
        "id": published["id"],
        "differences": [{"field": "inputs.x", "asked": [8, 3, 32, 32], "found": [4, 3, 32, 32]}],
    }


def test_the_lock_completes_a_request_where_only_one_entry_fits(
    mxr: Host, model: Path, convnet: Path, published: dict[str, Any], programs: Programs, gpu: tuple[str, ...]
) -> None:
    """A host without a GPU needs no arch and no versions: the lock has them. Several entries are a choice."""
    mxr("lock", model, *gpu)
    for words in ((), ("--batch", 4), ("--arch", "gfx908"), ("--rocm", "7.2", "--for", "python")):
        done = mxr("fetch", "--locked", model, *words, "--json")
        assert done.json["id"] == published["id"], words
    assert "taken from the only entry of the lock that fits: --arch gfx908" in done.err
    error = mxr("fetch", "--locked", model, "--batch", 8, "--json", expect=6).error
    assert error["detail"] == "This request is not in the lock."
    (nearest,) = error["context"]["nearest"]
    assert [each["field"] for each in nearest["differences"]] == ["inputs.x"]
    assert "not in the lock" in mxr("fetch", "--locked", model, "--arch", "gfx90a", expect=6).err
    assert "not in the lock" in mxr("fetch", "--locked", convnet, expect=6).err
    assert "does not tell the arch" in mxr("fetch", "--locked", model, "--exact", expect=2).err

    mxr("push", programs.gfx942, "--model", model, "--rocm", "7.1", "--for", "amdinfer")
    mxr(
        "lock",
        model,
        "--add",
        "--arch",
        "gfx942",
        "--rocm",
        "7.1",
        "--migraphx",
        "2.15",
        "--batch",
        4,
        "--for",
        "amdinfer",
    )
    choice = mxr("fetch", "--locked", model, "--batch", 4, "--json", expect=2).error
    assert choice["detail"] == "2 entries of the lock fit this request."
    first, second = choice["hint"].removeprefix("Choose one of them: ").removesuffix(".").split("; ")
    assert "--arch gfx908" in first and "--for amdinfer" in second
    ids = [mxr("fetch", "--locked", model, *words.split(), "--json").json["id"] for words in (first, second)]
    assert ids == [each["id"] for each in choice["context"]["entries"]] and len(set(ids)) == 2


def test_what_is_gone_is_said(
    mxr: Host, host: Hosts, model: Path, published: dict[str, Any], gpu: tuple[str, ...]
) -> None:
    mxr("lock", model, *gpu)
    mxr("fetch", "--locked")
    mxr("rm", published["id"], "--yes", "--force")
    gone = mxr("lock", "--check", "--json", expect=3).error
    assert [(each["id"], each["state"]) for each in gone["context"]["entries"]] == [(published["id"], "gone")]
    assert mxr("fetch", "--locked", model, *gpu, "--json").json["source"] == "cache"
    other = host("other")
    (other.home / "mxr.lock").write_bytes((mxr.home / "mxr.lock").read_bytes())
    error = other("fetch", "--locked", model, *gpu, "--json", expect=3).error
    assert error["code"] == "no_such_artifact" and published["id"] in error["detail"]
    assert "gone from the registry" in error["detail"]
    warned = other("fetch", "--locked", model, *gpu, "--on-miss", "continue")
    assert warned.out == "" and "Nothing was placed" in warned.err


def test_a_changed_model_is_found(
    mxr: Host, model: Path, published: dict[str, Any], gpu: tuple[str, ...], tmp_path: Path
) -> None:
    lock = tmp_path / "mxr.lock"
    mxr("lock", model, *gpu, "-o", lock)
    unique(model, model, "it was trained again")
    entries = mxr("lock", "--check", "-o", lock, "--json", expect=6).error["context"]["entries"]
    assert [(each["state"], each["path"]) for each in entries] == [("other_model", str(model))]
    model.unlink()
    mxr("lock", "--check", "-o", lock)


def test_nothing_is_written_unless_all_are_there(
    mxr: Host, model: Path, convnet: Path, published: dict[str, Any], gpu: tuple[str, ...]
) -> None:
    mxr("lock", model, *gpu)
    before = (mxr.home / "mxr.lock").read_bytes()
    error = mxr("lock", model, convnet, *gpu, "--batch", "4,8", "--json", expect=3).error
    missing = error["context"]["missing"]
    assert [(row["model"], row["key"]["inputs"]["x"][0]) for row in missing] == [
        (str(model), 8),
        (str(convnet), 4),
        (str(convnet), 8),
    ]
    assert "3 of 4 requests" in error["detail"]
    assert f"{convnet} (gfx908, migraphx 2.15 rocm 7.2, x=8,3,32,32, fp32)" in error["detail"]
    assert (mxr.home / "mxr.lock").read_bytes() == before


@pytest.fixture
def locked(mxr: Host, model: Path, convnet: Path, programs: Programs, published: Any, gpu: tuple[str, ...]) -> Host:
    """A host with a lock of three entries: one for a GPU, two of one model for the reference target."""
    for precision, file in (("fp16", programs.ref), ("fp32", programs.ref32)):
        mxr("push", file, "--model", convnet, "--for", "python", "--precision", precision)
    mxr("lock", model, *gpu)
    for precision in ("fp16", "fp32"):
        mxr("lock", "--add", convnet, *REF, "--batch", "4", "--precision", precision)
    return mxr


def follow(host: Host, hint: str) -> str:
    """Run the command that a hint names; the command."""
    words = shlex.split(hint.split("`")[1])
    assert words[0] == "mxr"
    host(*words[1:])
    return " ".join(words)


def test_all_of_a_lock_in_a_folder_and_verified(locked: Host, host: Hosts) -> None:
    fresh = host("fresh")
    (fresh.home / "mxr.lock").write_bytes((locked.home / "mxr.lock").read_bytes())
    missing = fresh("verify", "--json", expect=3).error
    assert [each["state"] for each in missing["context"]["entries"]] == ["missing"] * 3
    assert follow(fresh, missing["hint"]) == "mxr fetch --locked"
    assert "all files as locked" in fresh("verify").out
    found = fresh("fetch", "--locked", "-o", "models/", "--json").json
    names = [Path(each["path"]).name for each in found["entries"]]
    assert sorted(names) == ["convnet_fp16.mxr", "convnet_fp32.mxr", "convrelu.mxr"]
    assert "all files as locked" in fresh("verify").out
    assert "all files as locked" in fresh("verify", "mxr.lock", "--in", "models").out

    damaged = fresh.home / "models" / "convrelu.mxr"
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    error = fresh("verify", "--in", "models", "--json", expect=65).error
    assert [(each["state"], each["path"]) for each in error["context"]["entries"]] == [
        ("changed", "models/convrelu.mxr")
    ]
    assert follow(fresh, error["hint"]) == "mxr fetch --locked -o models --force"
    assert "all files as locked" in fresh("verify", "--in", "models").out
    moved = fresh.home / "models" / names[0]
    moved.rename(moved.with_name("renamed.mxr"))
    damaged.unlink()
    error = fresh("verify", "--in", "models", "--json", expect=3).error
    assert [each["state"] for each in error["context"]["entries"]] == ["missing"]
    assert "models/convrelu.mxr" in fresh("verify", "--in", "models", expect=3).err
    assert follow(fresh, error["hint"]) == "mxr fetch --locked -o models"
    assert "all files as locked" in fresh("verify", "--in", "models").out


def test_nothing_is_downloaded_unless_all_of_a_lock_is_there(
    locked: Host, host: Hosts, published: dict[str, Any]
) -> None:
    """The last entry is gone: those before it are not downloaded for nothing."""
    locked("rm", published["id"], "--yes", "--force")
    fresh = host("fresh")
    (fresh.home / "mxr.lock").write_bytes((locked.home / "mxr.lock").read_bytes())
    assert json.loads((fresh.home / "mxr.lock").read_text())["entries"][-1]["id"] == published["id"]
    error = fresh("fetch", "--locked", "-o", "models/", "--json", expect=3).error
    assert published["id"] in error["detail"] and not (fresh.home / "models").exists()
    missing = fresh("verify", "--json", expect=3).error["context"]["entries"]
    assert [each["state"] for each in missing] == ["missing"] * 3


def test_a_lock_lays_out_for_the_consumer_of_each_entry(
    mxr: Host, host: Hosts, model: Path, published: dict[str, Any], programs: Programs, gpu: tuple[str, ...]
) -> None:
    words, lock, folder = gpu[:-2], model.parent / "mxr.lock", model.parent / "models"
    mxr("lock", model, *gpu, "-o", lock)
    mxr("lock", model, *words, "--for", "triton", "--add", "-o", lock)
    other = host("other")
    rows = other("fetch", "--locked", lock, "-o", folder, "--json").json["entries"]
    assert {row["path"] for row in rows} == {str(folder / "convrelu.mxr"), str(folder / "convrelu")}
    assert {row["id"] for row in rows} == {published["id"]}
    assert (folder / "convrelu" / "config.pbtxt").exists()
    assert "all files as locked" in other("verify", lock, "--in", folder).out
    one = other("fetch", model, *words, "--for", "triton", "--locked", lock, "-o", f"{folder}/one/").out
    assert one == f"{folder}/one/convrelu\n"
    for path in folder.rglob("*.mxr"):
        path.unlink()
    error = other("verify", lock, "--in", folder, "--json", expect=3).error
    follow(other, error["hint"])
    assert "all files as locked" in other("verify", lock, "--in", folder).out
    model.write_bytes(model.read_bytes() + b"\x32\x01x")
    assert "the ONNX file is another model now" in other("fetch", "--locked", lock, "-o", folder, expect=6).err


def test_verify_reads_the_cache_again(locked: Host) -> None:
    locked("fetch", "--locked")
    path = locked.held()[0]
    status = path.stat()
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    import os

    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert path.name in locked("verify", expect=65).err
    follow(locked, locked("verify", "--json", expect=65).error["hint"])
    assert "all files as locked" in locked("verify").out


def test_a_registered_lock_keeps_its_artifacts(locked: Host, published: dict[str, Any]) -> None:
    said = locked("lock", "--register", "prod", "--json").json
    assert said["registered"] == "prod" and len(said["entries"]) == 3
    rows = {row["name"]: row for row in locked("lock", "--registered", "--json").json["locks"]}
    assert len(rows["prod"]["artifacts"]) == 3
    assert "prod  3" in locked("lock", "--registered").out
    error = locked("rm", published["id"], "--yes", "--json", expect=7).error
    assert error["code"] == "not_allowed" and error["context"]["locks"] == ["prod"]
    assert "--unregister" in error["hint"]
    assert "--force" in error["hint"]
    locked("rm", published["id"], "--yes", "--force")
    said = locked("lock", "--check", expect=3)
    assert "gone from the registry" in said.out + said.err
    locked("lock", "--unregister", "prod")
    locked("lock", "--unregister", "prod", expect=3)
    absent = locked("lock", "--register", "prod", "--json", expect=3).error
    assert absent["context"]["ids"] == [published["id"]]


def test_the_lock_is_told_from_the_model_whatever_stands_after_locked(
    mxr: Host, model: Path, published: dict[str, Any], gpu: tuple[str, ...]
) -> None:
    mxr("lock", model, *gpu, "-o", "other.lock")
    mxr("lock", model, *gpu)
    for words in (
        ("--locked", model),
        (model, "--locked"),
        ("--locked", "other.lock", model),
        ("--locked=other.lock", model),
        ("--locked", published["key"]["model"]),
    ):
        assert mxr("fetch", *words, *gpu, "--json").json["id"] == published["id"]
    for words in (("--locked",), ("--locked", "other.lock"), ("--locked=other.lock",)):
        assert [row["id"] for row in mxr("fetch", *words, "--json").json["entries"]] == [published["id"]]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("lock", "--check", "-o", "broken.lock"), 65),
        (("lock", "--register", "a b", "-o", "mxr.lock"), 2),
    ],
)
def test_bad_words(mxr: Host, words: tuple[str, ...], code: int) -> None:
    (mxr.home / "mxr.lock").write_text('{"version": 1, "entries": []}')
    (mxr.home / "broken.lock").write_text('{"version": 1, "entries": [{"model": "a.onnx"}]}')
    error = mxr(*words, "--json", expect=code).error
    assert error["detail"] and error["hint"]


def test_a_lock_is_readable_json(locked: Host) -> None:
    document = json.loads((locked.home / "mxr.lock").read_text())
    assert document["version"] == 1
    assert [set(each) for each in document["entries"]] == [
        {"model", "consumer", "key", "constraints", "digest", "id", "sha256"}
    ] * 3


def test_a_lock_names_the_program_of_the_family_that_serves(
    mxr: Host, host: Hosts, model: Path, programs: Programs, tmp_path: Path
) -> None:
    """What a registry answers for gfx1100 can be a program for gfx11-generic: the lock has that key, and serves it."""
    pushed = mxr("push", programs.generic, "--model", model, "--rocm", "7.2", "--for", "python", "--json").json
    asked = ("--arch", "gfx1100", "--rocm", "7.2", "--migraphx", "2.15", "--for", "python")
    dims = [f"--input={name}={','.join(map(str, dims))}" for name, dims in pushed["key"]["inputs"].items()]
    lock = tmp_path / "mxr.lock"
    mxr("lock", model, *asked, *dims, "-o", lock)
    assert "all as locked" in mxr("lock", "--check", "-o", lock).out
    fresh = host("fresh")
    assert fresh("fetch", "--locked", lock, model, *asked, *dims, "--json").json["id"] == pushed["id"]
    fresh("fetch", "--locked", lock, "-o", f"{tmp_path}/out/", "--arch", "gfx1100")
    assert list((tmp_path / "out").glob("*.mxr"))
