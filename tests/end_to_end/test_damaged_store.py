"""A damaged blob in the store: found, reported, never handed out, and repaired by pushing again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from .conftest import Programs
from .large_program import MIB, write_program
from .stack import Host, Registry

ON = ("embedded", "engines")

Hosts = Callable[..., Host]


def test_a_damaged_blob_is_found_reported_and_repaired(
    own_registry: Callable[..., Registry], host: Hosts, model: Path, programs: Programs, gpu: tuple[str, ...]
) -> None:
    registry = own_registry()
    publisher, other = host("publisher", registry.url), host("other", registry.url)
    push = ("push", programs.gfx908, "--model", model, "--rocm", "7.2", "--for", "python", "--json")
    published = publisher(*push).json
    registry.fsck()
    registry.spoil(published["sha256"])

    error = other("fetch", model, *gpu, "--json", expect=65).error
    assert error["code"] == "damaged_blob"
    assert "Push the file again" in error["hint"]
    assert (other.held(), other.leftovers()) == ([], [])
    assert f"blob {published['sha256']} is damaged" in registry.log.read_text()

    reply = registry.ask("GET", f"/v1/artifacts/{published['id']}/files/model.mxr")
    assert (reply.status, reply.json()["code"]) == (500, "damaged_blob")
    (lost,) = [each for each in registry.fsck(expect=65)["findings"] if each["damage"]]
    assert published["sha256"] in lost["name"]

    assert publisher(*push).json["id"] == published["id"]
    assert Path(other("fetch", model, *gpu).out.strip()).read_bytes() == programs.gfx908.read_bytes()
    assert registry.fsck()["artifacts"] == 1


def test_fsck_finds_damage_before_anyone_fetches(
    own_registry: Callable[..., Registry], host: Hosts, model: Path, programs: Programs
) -> None:
    registry = own_registry()
    publisher = host("publisher", registry.url)
    push = ("push", programs.gfx908, "--model", model, "--rocm", "7.2", "--for", "python", "--json")
    published = publisher(*push).json
    registry.spoil(published["sha256"])
    (found,) = registry.fsck(expect=65)["findings"]
    assert (found["kind"], found["repaired"]) == ("bytes", False)
    registry.fsck("--repair", expect=65)
    (gone,) = registry.fsck(expect=65)["findings"]
    assert gone["kind"] == "missing"
    publisher(*push)
    assert registry.fsck()["findings"] == []


def test_one_damaged_blob_of_many_gives_no_file_at_all(
    registry: Registry, mxr: Host, host: Hosts, model: Path, tmp_path: Path
) -> None:
    program = write_program(tmp_path / "large.mxr", weights=4, size=MIB, seed=11)
    published: dict[str, Any] = mxr("push", program, "--model", model, "--for", "python", "--json").json
    (file,) = registry.ask("GET", f"/v1/artifacts/{published['id']}").json()["manifest"]["files"]
    assert len(file["blobs"]) > 4
    url = f"/v1/artifacts/{published['id']}/files/model.mxr"
    assert registry.ask("GET", url).data == program.read_bytes()
    middle = max(file["blobs"][3:6], key=lambda blob: blob["size"])
    registry.spoil(middle["sha256"])
    asked = ("fetch", model, "--kind", "ref", "--migraphx", "2.16", "--batch", "4", "--for", "python")
    assert registry.ask("GET", url).status == 500
    other = host("other")
    assert other(*asked, "--json", expect=65).error["code"] == "damaged_blob"
    assert (other.held(), other.leftovers()) == ([], [])
    mxr("push", program, "--model", model, "--for", "python")
    assert Path(other(*asked).out.strip()).read_bytes() == program.read_bytes()
