"""A name such as `prod` is moved to what was tested, hosts follow it, and it is moved back."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Programs
from .stack import Host, Registry
from .test_locking import ASKED, shape

ON = ("embedded",)

Hosts = Callable[..., Host]


@pytest.fixture
def tagged(registry: Registry, mxr: Host, model: Path, programs: Programs) -> tuple[str, str]:
    """Two revisions of the tag prod for one request, by the ids of their artifacts; the second one is in force."""
    registry.ask("DELETE", "/v1/tags/prod")
    said = ("--model", model, "--rocm", "7.2", "--for", "python", "--json")
    folder = programs.gfx908.parent
    files = (folder / "v7_gfx90a_sramecc+_xnack-.bundle.mxr", folder / "v7_layout_gfx90a.mxr")
    one, two = (mxr("push", file, *said).json["id"] for file in files)
    asked = (*ASKED, *shape(mxr, programs))
    for revision, id in enumerate((one, two), start=1):
        mxr("promote", id)
        mxr("lock", model, *asked)
        assert mxr("tag", "prod", "mxr.lock", "--json").json["revision"] == revision
    return one, two


def test_hosts_follow_a_tag_and_its_way_back(
    mxr: Host, host: Hosts, model: Path, tagged: tuple[str, str], tmp_path: Path
) -> None:
    one, two = tagged
    far = host("far")
    # Without the ONNX file, and without a word about the target: the tag has one entry.
    found = far("fetch", "convrelu:prod", "-o", "out/", "--json").json
    assert (found["tag"], found["revision"], found["id"]) == ("prod", 2, two)
    assert Path(found["path"]).name == "convrelu.mxr"
    for words in (("convrelu.onnx:prod",), (f"{model}:prod",), (model, "--tag", "prod")):
        assert far("fetch", *words, "--json").json["id"] == two
    everything = far("fetch", "--tag", "prod", "-o", "all/", "--json").json
    assert [each["id"] for each in everything["entries"]] == [two] and everything["lock"] is None
    program = "import mxr; print(mxr.fetch('convrelu:prod').artifact.id, mxr.fetch('convrelu', tag='prod').artifact.id)"
    assert far.python(program).out.split() == [two, two]

    assert "which is revision 1 again" in mxr("tag", "prod", "--rollback").out
    assert far("fetch", "convrelu:prod", "--json").json["id"] == one
    rows = mxr("tag", "prod", "--json").json["revisions"]
    assert [(each["revision"], each["repeats"]) for each in rows] == [(3, 1), (2, None), (1, None)]
    assert (
        mxr("tag", "prod", "--rollback", "--json", expect=2).error["detail"].startswith("The tag prod has no earlier")
    )
    mxr("tag", "prod", "--rollback", "--revision", "2")
    mxr("tag", "prod", "--revision", "1", "-o", "old.lock")
    assert json.loads((mxr.home / "old.lock").read_text())["entries"][0]["id"] == one
    assert "prod" in mxr("tag").out and "prod" in mxr("history").out
    # Another registered name for it, or none at all, takes nothing away.
    assert "is pinned by a lock: tag:prod" in mxr("rm", one, "--yes", expect=7).err
    mxr("tag", "prod", "--rm", "--yes")
    assert far("fetch", "convrelu:prod", "--json", expect=3).error["code"] == "not_found"
    assert far("fetch", "convrelu:prod", "--offline", expect=69).err, "what was removed is not remembered"


def test_a_tag_serves_while_its_registry_is_away(
    own_registry: Callable[..., Registry], host: Hosts, model: Path, programs: Programs, gpu: tuple[str, ...]
) -> None:
    registry = own_registry()
    mxr = host("one", registry.url)
    mxr("push", programs.gfx908, "--model", model, "--rocm", "7.2", "--for", "python")
    mxr("lock", model, *gpu)
    mxr("tag", "prod", "mxr.lock")
    far = host("far", registry.url)
    id = far("fetch", "convrelu:prod", "--json").json["id"]
    registry.kill9()
    said = far("fetch", "convrelu:prod", "--json")
    assert said.json["id"] == id and "has not confirmed the tag prod for 0 hours" in said.err
    assert far("fetch", "convrelu:prod", "--offline", "--json").json["id"] == id
    assert far("fetch", "convrelu:prod", env={"MXR_MAX_STALE": "0"}, expect=69).err
    assert far("fetch", "convrelu:other", "--json", expect=69).error["code"] == "unreachable"


def test_a_tag_that_moves_while_it_is_fetched_gives_one_revision(
    mxr: Host, host: Hosts, tagged: tuple[str, str]
) -> None:
    """Each fetch gets a whole revision, and the program of that revision, never one of another."""
    stop, seen = threading.Event(), []
    number_of = {1: tagged[0], 0: tagged[1]}

    def move() -> None:
        at = 1
        while not stop.is_set():
            mxr("tag", "prod", "--rollback", "--revision", at)
            at = 3 - at

    mover = threading.Thread(target=move)
    mover.start()
    try:
        far = host("far")
        for _ in range(6):
            found = far("fetch", "convrelu:prod", "--json").json
            seen.append((found["revision"], found["id"]))
    finally:
        stop.set()
        mover.join()
    # Revisions 1 and 2 take turns: the odd ones are the first again.
    assert all(id == number_of[revision % 2] for revision, id in seen), seen
    assert len({revision for revision, _ in seen}) > 1


def test_what_a_tag_does_not_name(mxr: Host, host: Hosts, tagged: tuple[str, str], programs: Programs) -> None:
    far = host("far")
    assert "It has convrelu." in far("fetch", "resnet50:prod", expect=6).err
    assert far("fetch", "convrelu:prod", "--arch", "gfx1100", "--json", expect=6).error["code"] == "mismatch"
    for words in (
        ("fetch", "convrelu:prod", "--locked"),
        ("fetch", "--tag", "prod", "--locked"),
        ("fetch", "convrelu:prod", "--on-miss", "wait"),
        ("fetch", "--tag", "../../x"),
        ("fetch", "--tag", "prod", "--batch", "4"),
        ("tag", "prod", "nothing.lock"),
        ("tag", "--rollback"),
        ("tag", "prod", "--revision", "1"),
        ("tag", "prod", "--rollback", "--rm"),
    ):
        far(*words, expect=2)
    (far.home / "bad.lock").write_text("{}")
    assert far("tag", "prod", "bad.lock", "--json", expect=65).error["code"] == "damaged"
    assert mxr("tag", "prod", "--json").json["revisions"][0]["revision"] == 2
