"""Publishing: again, at once, another file for the same key, promoting, removing, listing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from paths import DATA

from .conftest import Programs
from .large_program import write_program
from .stack import Host, Registry, finish

Hosts = Callable[..., Host]
ASKED = ("--kind", "ref", "--migraphx", "2.16", "--batch", "4", "--for", "python", "--json")


@pytest.fixture
def rivals(tmp_path: Path) -> tuple[Path, Path]:
    """Two programs for the same key."""
    return tuple(write_program(tmp_path / f"{n}.mxr", weights=2, size=1 << 17, seed=n) for n in (1, 2))


def test_publishing_again_changes_nothing_and_sends_nothing(
    mxr: Host, registry: Registry, model: Path, published: dict[str, Any], programs: Programs
) -> None:
    puts = registry.requests("PUT /v1/blobs/")
    again = mxr("push", programs.gfx908, "--model", model, "--rocm", "7.2", "--for", "python", "--json").json
    assert again == published
    assert registry.requests("PUT /v1/blobs/") == puts
    assert len(mxr("ls", "--model", model, "--json").json["artifacts"]) == 1


def test_what_rests_on_a_word_alone_is_said(mxr: Host, model: Path, published: dict[str, Any]) -> None:
    assert {published["sources"][name] for name in ("rocm", "fast_math", "precision")} == {"publisher"}
    shown = " ".join(mxr("show", published["id"][:12]).out.split())
    assert "UTC by tests origin pushed" in shown and "answers yes: the namespace serves every artifact" in shown
    assert "arch reader gfx908" in shown and "rocm publisher 7.2" in shown
    assert "provenance (stated by the publisher, not verified)" in shown


def test_what_is_doubtful_is_said_and_kept(mxr: Host, model: Path, programs: Programs) -> None:
    done = mxr("push", programs.gfx908, "--model", model, "--rocm", "6.2.4", "--for", "python", "--json")
    (warning,) = done.json["warnings"]
    assert "ROCm 6.2" in warning
    assert warning in mxr("show", done.json["id"][:12]).out
    assert warning in mxr("push", programs.gfx908, "--model", model, "--rocm", "6.2.4", "--for", "python").err


def test_a_program_is_compared_with_a_model(mxr: Host, model: Path, programs: Programs) -> None:
    assert mxr("inspect", programs.gfx908, "--model", model, "--json").json["model"] == {
        "differences": [],
        "warnings": [],
    }
    other = DATA / "models" / "convnet.onnx"
    (found,) = mxr("inspect", programs.gfx908, "--model", other, "--json").json["model"]["differences"]
    assert (found["field"], found["found"]) == ("outputs.y", [4, 64, 32, 32])
    assert f"not from {other}: outputs.y" in mxr("inspect", programs.gfx908, "--model", other).out


@pytest.mark.on("embedded", "engines")
def test_the_first_stays_first_until_another_is_promoted(
    mxr: Host, host: Hosts, model: Path, rivals: tuple[Path, Path]
) -> None:
    first, second = (mxr("push", path, "--model", model, "--for", "python", "--json").json for path in rivals)
    assert first["digest"] == second["digest"]
    assert first["id"] != second["id"]

    def fetched() -> str:
        found: str = host("other")("fetch", model, *ASKED, "--refresh").json["id"]
        return found

    assert fetched() == first["id"]
    mxr("promote", second["id"])
    assert fetched() == second["id"]
    assert host("newcomer")("fetch", model, *ASKED).json["id"] == second["id"]
    mxr("push", rivals[0], "--model", model, "--for", "python")
    assert fetched() == second["id"]
    mxr("promote", first["id"][:10])
    assert fetched() == first["id"]
    mxr("rm", first["id"], "--yes", "--force")
    assert fetched() == second["id"]
    mxr("rm", second["id"], "--yes", "--force")
    host("newcomer")("fetch", model, *ASKED, "--refresh", expect=3)
    mxr("show", first["id"], expect=3)
    mxr("rm", first["id"], "--yes", expect=3)
    again = ("push", rivals[0], "--model", model, "--for", "python", "--json", "--restore")
    assert mxr(*again).json["id"] == first["id"]
    assert fetched() == first["id"]


def test_rm_does_not_remove_when_nobody_can_be_asked(mxr: Host, published: dict[str, Any]) -> None:
    assert "Add --yes" in mxr("rm", published["id"], expect=2).err
    mxr("show", published["id"])


@pytest.mark.on("embedded", "engines")
def test_two_publish_the_same_key_at_once(
    registry: Registry, host: Hosts, model: Path, rivals: tuple[Path, Path]
) -> None:
    running = [
        host(f"publisher {n}").start("push", path, "--model", model, "--for", "python", "--json")
        for n, path in enumerate(rivals * 3)
    ]
    ended = [finish(process) for process in running]
    assert [done.code for done in ended] == [0] * 6, ended
    assert len({done.json["id"] for done in ended}) == 2
    rows = host("looker")("ls", "--model", model, "--json").json["artifacts"]
    assert {row["id"] for row in rows} == {done.json["id"] for done in ended}
    first = rows[-1]["id"]
    assert host("other")("fetch", model, *ASKED).json["id"] == first, "the list begins with the newest"
    registry.fsck()


def test_ls_filters(mxr: Host, model: Path, convnet: Path, programs: Programs) -> None:
    for program in (programs.gfx908, programs.gfx942):
        mxr("push", program, "--model", model, "--rocm", "7.2", "--for", "python")
    mxr("push", programs.ref, "--model", convnet, "--for", "python", "--precision", "fp16")

    def archs(*filters: object) -> list[str | None]:
        rows = mxr("ls", "--json", *filters).json["artifacts"]
        return sorted(str(row["key"].get("arch")) for row in rows)

    assert archs("--model", model) == ["gfx908", "gfx942"]
    assert archs("--model", mxr("key", model, *ASKED).json["model"]) == ["gfx908", "gfx942"]
    assert archs("--model", convnet, "--kind", "ref") == ["None"]
    assert archs("--model", model, "--arch", "gfx942") == ["gfx942"]
    assert archs("--model", model, "--arch", "gfx942:sramecc+") == ["gfx942"]
    assert archs("--model", model, "--migraphx", "2.14") == []
    assert archs("--model", model, "--rocm", "7.2", "--vendor", "amd", "--input", "x") == ["gfx908", "gfx942"]
    assert archs("--model", model, "--input", "data") == []
    assert archs("--model", convnet, "--precision", "fp16") == ["None"]
    assert archs("--model", model, "--limit", "1") in (["gfx908"], ["gfx942"])
    text = mxr("ls", "--model", model).out
    assert text.startswith("ID ") and "gfx942:sramecc+:xnack-" in text
    assert "there are more" in mxr("ls", "--model", model, "--limit", "1").err


@pytest.mark.on("embedded", "engines")
def test_models_have_names_that_can_be_searched_for(
    mxr: Host, model: Path, convnet: Path, programs: Programs, tmp_path: Path
) -> None:
    """A name is a label: what is fetched is decided by the identity."""
    model = model.rename(tmp_path / f"net-{uuid4().hex}.onnx")
    mxr("push", programs.gfx908, "--model", model, "--rocm", "7.2", "--for", "python")
    named = mxr("ls", "--model", model).out.splitlines()
    assert named[0].split()[:2] == ["ID", "MODEL"] and named[1].split()[1] == model.name
    prefix = model.stem[:-1]
    assert not Path(prefix).exists()
    (row,) = mxr("ls", "--model", prefix, "--json").json["artifacts"]
    assert row["model_name"] == model.name
    shown = mxr("show", row["id"]).out
    assert f"name       {model.name}  (of the model; a label)" in shown
    nothing = mxr("ls", "--model", "no-such-name")
    assert "no artifact is of a model whose name begins with no-such-name" in nothing.err
    assert "There is no file" in mxr("ls", "--model", "./no-such-name", expect=2).err
    # Another model under the same name: both are listed, each with its identity.
    other = tmp_path / "elsewhere" / model.name
    other.parent.mkdir()
    other.write_bytes(convnet.read_bytes())
    mxr("push", programs.ref, "--model", other, "--for", "python", "--precision", "fp16")
    identities = {mxr("identity", each).out.strip() for each in (model, other)}
    rows = mxr("ls", "--model", model.name).out.splitlines()[1:]
    assert {" ".join(line.split()[1:3]) for line in rows} == {f"{model.name} {each[:19]}" for each in identities}
    found = mxr("ls", "--model", other, "--json").json["artifacts"]
    assert [each["key"]["model"] for each in found] == [mxr("identity", other).out.strip()]
