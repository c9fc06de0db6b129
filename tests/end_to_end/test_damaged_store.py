"""A damaged blob in the store: found, reported, never handed out, and repaired by pushing again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from .conftest import Programs
from .large_program import MIB, write_program
from .stack import Host, Registry

ON = ("embedded", "engines")
REF = ("--kind", "ref", "--migraphx", "2.16", "--batch", "4")

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

    error = other("fetch", model, *gpu, "--json", expect=3).error
    assert error["code"] == "no_such_artifact" and "has state lost" in error["detail"]
    assert (other.held(), other.leftovers()) == ([], [])
    assert f"blob {published['sha256']} is damaged" in registry.log.read_text()

    reply = registry.ask("GET", f"/v1/artifacts/{published['id']}/files/model.mxr")
    assert (reply.status, reply.json()["code"]) == (404, "no_such_blob")
    assert "it is lost" in other("show", published["id"]).out and "pushed, lost" in other("ls", "--state", "lost").out
    (lost,) = [each for each in registry.fsck(expect=65)["findings"] if each["damage"]]
    assert published["sha256"] in lost["name"]

    assert publisher(*push).json["id"] == published["id"]
    assert Path(other("fetch", model, *gpu).out.strip()).read_bytes() == programs.gfx908.read_bytes()
    assert registry.fsck()["artifacts"] == 1
    assert "lost" not in other("ls").out


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
    asked = ("fetch", model, *REF, "--for", "python")
    assert registry.ask("GET", url).status == 404
    other = host("other")
    assert other(*asked, "--json", expect=3).error["code"] == "no_such_artifact"
    assert (other.held(), other.leftovers()) == ([], [])
    mxr("push", program, "--model", model, "--for", "python")
    assert Path(other(*asked).out.strip()).read_bytes() == program.read_bytes()


def test_the_same_command_takes_another_program_for_what_is_lost(
    own_registry: Callable[..., Registry], host: Hosts, model: Path, tmp_path: Path
) -> None:
    registry = own_registry()
    publisher, asked = host("publisher", registry.url), ("fetch", model, *REF, "--for", "python", "--json")
    published = []
    for seed in (1, 2):
        program = write_program(tmp_path / f"{seed}.mxr", weights=1, size=100_000, seed=seed)
        said = publisher("push", program, "--model", model, "--for", "python", "--json").json
        published.append((said["id"], program.read_bytes()))
    assert publisher(*asked).json["id"] == published[0][0]
    (file,) = registry.ask("GET", f"/v1/artifacts/{published[0][0]}").json()["manifest"]["files"]
    registry.spoil(max(file["blobs"], key=lambda blob: blob["size"])["sha256"])

    got = host("other", registry.url)(*asked).json
    assert (got["id"], Path(got["path"]).read_bytes()) == published[1]
    # Who has the lost one goes on with it, also where the registry is asked.
    assert publisher(*asked).json["id"] == published[0][0]
    assert publisher("ls", "--state", "lost", "--json").json["artifacts"][0]["id"] == published[0][0]
