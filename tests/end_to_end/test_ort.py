"""`mxr fetch --for ort` as a person calls it: frozen, published, placed under the name that the provider asks for."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from doubles.migraphx import programs
from doubles.ort_migraphx import Judge

from .stack import Host

ON = ("embedded",)

pytestmark = pytest.mark.timeout(900)

Hosts = Callable[..., Host]
ARCH = "gfx90a:sramecc+:xnack-"
SAID = ("--arch", ARCH, "--rocm", "7.2", "--migraphx", "2.15", "--for", "ort")


@pytest.fixture
def contract(judge: Judge) -> tuple[str, ...]:
    """The options that tell which ONNX Runtime will serve."""
    return ("--ort", str(judge.provider_library), "--ort-python", str(judge.python))


@pytest.fixture
def frozen(mxr: Host, model: Path, tmp_path: Path) -> Path:
    """The test's model with its batch closed."""
    return Path(mxr("freeze", model, "--batch", "4", "-o", tmp_path / "frozen").out.strip())


@pytest.fixture
def program(frozen: Path, tmp_path: Path) -> Path:
    """A program of it that leaves its buffers to the caller."""
    path = tmp_path / "program.mxr"
    flags = {"kind": "gpu", "arch": ARCH, "offload_copy": False}
    path.write_bytes(programs.write(programs.read(str(frozen), {}), flags, {"file_version": 7, "migraphx": "2.15.0"}))
    return path


def test_from_an_open_model_to_a_placed_name(
    mxr: Host,
    host: Hosts,
    judge: Judge,
    model: Path,
    frozen: Path,
    program: Path,
    contract: tuple[str, ...],
    tmp_path: Path,
) -> None:
    mxr("push", program, "--model", frozen, "--rocm", "7.2", "--for", "ort")
    other, folder = host("other"), tmp_path / "cache of ort"
    found = other("fetch", frozen, *SAID, *contract, "-o", f"{folder}/", "--json").json
    (placed,) = folder.glob("*/*.mxr")
    assert placed.read_bytes() == program.read_bytes()
    assert (
        found["settings"][0]
        == f"ORT_MIGRAPHX_MODEL_CACHE_PATH={shlex.quote(str(placed.parent))}"
        == f"ORT_MIGRAPHX_MODEL_CACHE_PATH={shlex.quote(found['path'])}"
    )
    (outcome,) = judge.sessions([{"model": str(frozen)}], tmp_path / "judge", arch=ARCH)
    assert outcome.asked == {placed.name}
    again = other("fetch", frozen, *SAID, *contract, "--offline", "-o", f"{folder}/", "--json").json
    assert (again["source"], again["path"]) == ("cache", found["path"])


def test_an_open_model_is_offered_to_be_frozen(
    mxr: Host, host: Hosts, model: Path, program: Path, contract: tuple[str, ...], tmp_path: Path
) -> None:
    mxr("push", program, "--model", model, "--rocm", "7.2", "--for", "ort", "--batch", "4")
    done = host("other")("fetch", model, *SAID, *contract, "--batch", "4", "-o", f"{tmp_path}/o/", expect=2)
    assert "mxr freeze" in done.err and not (tmp_path / "o").exists()


def test_what_a_host_has_recorded_comes_first(
    mxr: Host,
    host: Hosts,
    judge: Judge,
    frozen: Path,
    program: Path,
    contract: tuple[str, ...],
    tmp_path: Path,
) -> None:
    (outcome,) = judge.sessions([{"model": str(frozen)}], tmp_path / "judge", arch=ARCH)
    (name,) = outcome.asked
    other_part = name.replace(name.split("-")[1], "abc123")
    for each in (name, other_part):
        shutil.copy(program, outcome.cache / each)
    (outcome.cache / "notes.txt").write_text("not the provider's")
    words = ("--ort-cache", outcome.cache, "--model", frozen, *SAID, *contract)
    kept: dict[str, Any] = host("recorder")("import", *words, "--json").json
    assert kept["files"] == sorted([name, other_part])
    assert kept["key"]["form"].startswith("ort:B:1.27.1:all:")
    mxr("push", program, "--model", frozen, "--rocm", "7.2", "--for", "ort")
    other, folder = host("other"), tmp_path / "placed"
    done = other("fetch", frozen, *SAID, *contract, "-o", f"{folder}/", "--json")
    assert json.loads(done.out)["id"] == kept["id"]
    assert sorted(path.name for path in folder.glob("*/*.mxr")) == kept["files"]
    assert "2 files recorded" in done.err
    assert "prediction" not in done.err
    # What the provider adds after that is named, with the field of the name that differs.
    home = json.loads(done.out)["path"]
    assert other("verify", folder, "--json").json["ok"] and other("verify", home, "--json").json["ok"]
    version, *rest = name.split("-")
    added = Path(home) / "-".join(("21000", *rest))
    added.write_bytes(b"compiled")
    for where in (folder, home):
        (finding,) = other("verify", where, "--json", expect=6).error["context"]["findings"]
        assert (finding["kind"], Path(finding["path"]).name) == ("added", added.name)
        assert [(row["field"], row["asked"], row["found"]) for row in finding["differences"]] == [
            ("version", version, "21000")
        ]
    assert f"version: written {version}, found 21000" in other("verify", folder, expect=6).err
    # Under another name of the model the set does not hold: the prediction does.
    renamed = frozen.rename(frozen.with_name("renamed.onnx"))
    again = other("fetch", renamed, *SAID, *contract, "-o", f"{tmp_path}/again/", "--json").json
    assert again["id"] != kept["id"]
