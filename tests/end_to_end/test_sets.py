"""Several variants of a model as one: all or none, a list of them beside, and shared weights moved once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import DATA, Programs
from .relay import Relay
from .stack import Host, Registry, finish

Hosts = Callable[..., Host]
LISTS = {"mxr-set.json", ".mxr-layout.json"}
PLACED = {"convnet_b1.mxr", "convnet_b4.mxr", *LISTS}
REF = ("--kind", "ref", "--migraphx", "2.16", "--for", "python")


@pytest.fixture
def variants(mxr: Host, convnet: Path, programs: Programs) -> dict[int, dict[str, Any]]:
    """Batch sizes 1 and 4 of one model, with the same weights in them; not 2."""
    files = {1: DATA / "mxr_real" / "convnet_b1_fp32_ref.mxr", 4: programs.ref32}
    return {
        batch: mxr("push", file, "--model", convnet, "--for", "python", "--precision", "fp32", "--json").json
        for batch, file in files.items()
    }


def test_a_set_is_a_folder_with_a_list(
    host: Hosts, convnet: Path, variants: dict[int, dict[str, Any]], tmp_path: Path
) -> None:
    other, folder = host("other"), tmp_path / "not" / "yet" / "set"
    said = other("fetch", convnet, *REF, "--batch", "4,1,4", "-o", f"{folder}/", "--json").json
    assert said["set"] == str(folder / "mxr-set.json")
    assert [(each["batch"], each["id"]) for each in said["entries"]] == [(at, variants[at]["id"]) for at in (1, 4)]
    assert {path.name for path in folder.iterdir()} == PLACED
    listed = json.loads((folder / "mxr-set.json").read_text())
    assert (listed["version"], listed["model"], list(listed["batches"])) == (1, said["model"], ["1", "4"])
    for batch, row in listed["batches"].items():
        path = folder / row["file"]
        assert hashlib.sha256(path.read_bytes()).hexdigest() == row["sha256"]
        told = variants[int(batch)]
        assert (row["id"], row["digest"], row["key"]) == (told["id"], told["digest"], told["key"])
        assert path.stat().st_nlink == 1 and path.stat().st_mode & 0o200
    assert [path for path in folder.parent.iterdir()] == [folder]


def test_one_missing_and_nothing_appears(
    host: Hosts, convnet: Path, variants: dict[int, dict[str, Any]], registry: Registry, tmp_path: Path
) -> None:
    other, folder = host("other"), tmp_path / "set"
    before = registry.requests("GET /v1/blobs")
    error = other("fetch", convnet, *REF, "--batch", "1,2,4", "-o", folder, "--json", expect=3).error
    assert error["code"] == "no_such_artifact" and "(batch 2)" in error["detail"]
    assert [row["batch"] for row in error["context"]["missing"]] == [2]
    assert error["context"]["nearest"]
    assert not folder.exists() and other.held() == []
    assert registry.requests("GET /v1/blobs") == before, "nothing moves before all are known to be there"
    kept = tmp_path / "there"
    kept.mkdir()
    other("fetch", convnet, *REF, "--batch", "1,2,4", "-o", kept, expect=3)
    assert list(kept.iterdir()) == []
    went_on = other("fetch", convnet, *REF, "--batch", "1,2,4", "-o", folder, "--on-miss", "continue")
    assert "Nothing was placed" in went_on.err and not folder.exists()


def test_weights_that_variants_share_move_once(
    own_registry: Callable[..., Registry], host: Hosts, convnet: Path, programs: Programs
) -> None:
    registry = own_registry()
    mxr = host("publisher", registry.url)
    blobs: set[str] = set()
    for file in (DATA / "mxr_real" / "convnet_b1_fp32_ref.mxr", programs.ref32):
        words = ("--model", convnet, "--for", "python", "--precision", "fp32", "--json")
        shown = mxr("show", mxr("push", file, *words).json["id"], "--json").json
        names = [blob["sha256"] for each in shown["manifest"]["files"] for blob in each["blobs"]]
        assert len(set(names)) == len(names)
        shared = blobs & set(names)
        blobs |= set(names)
    assert shared, "the variants have a weight in common"
    other = host("other", registry.url)
    other("fetch", convnet, *REF, "--batch", "1,4", "-o", "set/")
    assert registry.requests("GET /v1/blobs/") == len(blobs)
    for sha in shared:
        assert registry.requests(f"GET /v1/blobs/{sha}") == 1
    later = host("later", registry.url)
    for batch in (4, 1):
        later("fetch", convnet, *REF, "--batch", batch)
    assert registry.requests("GET /v1/blobs/") == 2 * len(blobs), "and so it is for two fetches, one after the other"


def test_a_damaged_neighbour_spoils_nothing(
    registry: Registry, host: Hosts, convnet: Path, variants: dict[int, dict[str, Any]]
) -> None:
    other = host("other")
    path = Path(other("fetch", convnet, *REF, "--batch", "1").out.strip())
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    for at in range(1000, len(data), 5000):
        data[at] ^= 1
    path.write_bytes(data)
    found = other("fetch", convnet, *REF, "--batch", "4").out.strip()
    assert hashlib.sha256(Path(found).read_bytes()).hexdigest() == variants[4]["sha256"]


def test_a_folder_that_is_there_is_renewed(
    host: Hosts, convnet: Path, variants: dict[int, dict[str, Any]], tmp_path: Path
) -> None:
    other, folder = host("other"), tmp_path / "set"
    folder.mkdir()
    (folder / "mine.txt").write_text("stays")
    (folder / "convnet_b1.mxr").write_text("of someone else")
    words = ("fetch", convnet, *REF, "--batch", "1,4", "-o", folder)
    assert "convnet_b1.mxr exists and is not what mxr placed" in other(*words, expect=7).err
    assert {path.name for path in folder.iterdir()} == {"mine.txt", "convnet_b1.mxr"}
    assert (folder / "convnet_b1.mxr").read_text() == "of someone else"
    other(*words, "--force")
    assert {path.name for path in folder.iterdir()} == {"mine.txt", *PLACED}
    assert hashlib.sha256((folder / "convnet_b1.mxr").read_bytes()).hexdigest() == variants[1]["sha256"]
    (folder / "convnet_b1.mxr").unlink()
    other(*words)
    assert hashlib.sha256((folder / "convnet_b1.mxr").read_bytes()).hexdigest() == variants[1]["sha256"]
    (folder / "convnet_b4.mxr").unlink()
    (folder / "convnet_b4.mxr").mkdir()
    listed = (folder / "mxr-set.json").read_bytes()
    for force in ((), ("--force",)):
        other(*words, *force, expect=2)
        assert hashlib.sha256((folder / "convnet_b1.mxr").read_bytes()).hexdigest() == variants[1]["sha256"]
        assert (folder / "mxr-set.json").read_bytes() == listed
    assert other.leftovers() == []


def test_a_set_for_a_consumer_that_names_by_batch(
    mxr: Host, host: Hosts, convnet: Path, variants: dict[int, dict[str, Any]], tmp_path: Path
) -> None:
    words = ("--kind", "ref", "--migraphx", "2.16", "--for", "amdinfer", "--batch", "1,4")
    host("other")("fetch", convnet, *words, "-o", tmp_path / "set")
    assert {path.name for path in (tmp_path / "set").iterdir()} == {"convnet_b1.mxr", "convnet_b4.mxr", *LISTS}
    (tmp_path / "set" / "convnet_b4.mxr").write_bytes(b"compiled here")
    refused = host("other")("fetch", convnet, *words, "-o", tmp_path / "set", expect=7).err
    assert "convnet_b4.mxr exists and is not what mxr placed" in refused
    host("other")("fetch", convnet, *words, "-o", tmp_path / "set", "--force")
    host("other")("fetch", convnet, *words, "-o", tmp_path / "set")
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "convnet_b1.mxr").write_bytes(b"compiled here")
    host("other")("fetch", convnet, *words, "-o", tmp_path / "theirs", expect=7)
    assert [path.name for path in (tmp_path / "theirs").iterdir()] == ["convnet_b1.mxr"]


@pytest.mark.parametrize(("consumer", "way"), [("ort", "mxr freeze MODEL --batch 1,4"), ("triton", "--batch N")])
def test_a_consumer_without_plain_files_takes_no_set(
    mxr: Host, convnet: Path, tmp_path: Path, consumer: str, way: str
) -> None:
    words = ("--kind", "ref", "--migraphx", "2.16", "--for", consumer, "--batch", "1,4", "-o", tmp_path / "set")
    refused = mxr("fetch", convnet, *words, "--json", expect=2).error
    assert "needs its own layout" in refused["detail"] and way in refused["hint"]
    assert not (tmp_path / "set").exists()


def test_a_set_is_verified_and_takes_another_name(
    host: Hosts, convnet: Path, variants: dict[int, dict[str, Any]], tmp_path: Path
) -> None:
    other, folder = host("other"), tmp_path / "set"
    words = ("fetch", convnet, *REF, "--batch", "1,4", "-o", folder)
    other(*words, "--name", "net")
    assert {path.name for path in folder.iterdir()} == {"net_b1.mxr", "net_b4.mxr", *LISTS}
    assert other("verify", folder, "--json").json["files"] == ["net_b1.mxr", "net_b4.mxr"]
    (folder / "net_b4.mxr").write_bytes(b"")
    (finding,) = other("verify", folder, "--json", expect=6).error["context"]["findings"]
    assert (finding["kind"], finding["path"]) == ("rewritten", str(folder / "net_b4.mxr"))
    (folder / "mxr-set.json").write_text("{}")
    assert "not a valid list of a set" in other("verify", folder, expect=65).err


def test_the_registry_dies_in_the_middle_and_nothing_appears(
    own_registry: Callable[..., Registry], host: Hosts, convnet: Path, programs: Programs, tmp_path: Path
) -> None:
    registry = own_registry(environ={"MXR_S3_SIGNED": "off"})
    mxr = host("publisher", registry.url)
    for file in (DATA / "mxr_real" / "convnet_b1_fp32_ref.mxr", programs.ref32):
        mxr("push", file, "--model", convnet, "--for", "python", "--precision", "fp32")
    folder = tmp_path / "set"
    with Relay(registry.url, after=200 << 10, then=registry.kill9) as relay:
        other = host("other", relay.url)
        other("fetch", convnet, *REF, "--batch", "1,4", "-o", folder, expect=69)
        assert relay.reached.is_set() and not folder.exists()
    registry.start()
    other("fetch", convnet, *REF, "--batch", "1,4", "-o", folder, env={"MXR_REGISTRY": registry.url})
    assert {path.name for path in folder.iterdir()} == PLACED
    registry.kill9()
    words = ("fetch", convnet, *REF, "--batch", "1,4", "--offline", "--json")
    offline = other(*words, env={"MXR_REGISTRY": registry.url}).json
    assert [each["source"] for each in offline["entries"]] == ["cache", "cache"] and offline["set"] is None


def test_two_hosts_write_one_folder(
    host: Hosts, convnet: Path, variants: dict[int, dict[str, Any]], tmp_path: Path
) -> None:
    folder = tmp_path / "set"
    words = ("fetch", convnet, *REF, "--batch", "1,4", "-o", folder)
    started = [host(f"h{number}").start(*words) for number in range(4)]
    codes = [finish(each).code for each in started]
    assert 0 in codes and set(codes) <= {0, 75}
    assert {path.name for path in folder.iterdir()} == PLACED
    listed = json.loads((folder / "mxr-set.json").read_text())
    for row in listed["batches"].values():
        assert hashlib.sha256((folder / row["file"]).read_bytes()).hexdigest() == row["sha256"]


def test_a_set_by_a_lock(
    mxr: Host, host: Hosts, convnet: Path, variants: dict[int, dict[str, Any]], tmp_path: Path
) -> None:
    mxr("lock", convnet, *REF, "--batch", "1,4")
    said = mxr("fetch", "--locked", convnet, *REF, "--batch", "1,4", "-o", tmp_path / "set", "--json").json
    assert [each["id"] for each in said["entries"]] == [variants[1]["id"], variants[4]["id"]]
    assert "not in the lock" in mxr("fetch", "--locked", convnet, *REF, "--batch", "1,2", expect=6).err
    # The lock says the rest, on any host.
    completed = mxr("fetch", "--locked", convnet, "--batch", "1,4", "--json").json
    assert [each["id"] for each in completed["entries"]] == [each["id"] for each in said["entries"]]


def test_a_set_from_a_program(host: Hosts, convnet: Path, variants: dict[int, dict[str, Any]], tmp_path: Path) -> None:
    program = """
import json, sys, mxr
words = dict(kind="ref", migraphx="2.16", consumer="python")
found = mxr.fetch_set(sys.argv[1], [1, 4], output=sys.argv[2], **words)
held = mxr.fetch_set(sys.argv[1], [1, 4], offline=True, **words)
try:
    mxr.fetch_set(sys.argv[1], [1, 2, 4], **words)
except mxr.NoSuchArtifactError as problem:
    missing = [row["batch"] for row in problem.context["missing"]]
files = {at: str(each.path) for at, each in found.items()}
print(json.dumps([files, [each.source for each in held.values()], missing]))
"""
    files, sources, missing = host("app").python(program, convnet, tmp_path / "set").json
    assert files == {str(at): str(tmp_path / "set" / f"convnet_b{at}.mxr") for at in (1, 4)}
    assert (sources, missing) == (["cache", "cache"], [2])
