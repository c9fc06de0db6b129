"""A worker records what ONNX Runtime writes: the real wheel of onnxruntime-migraphx, on stand-ins for what is below."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from doubles.migraphx import programs
from doubles.ort_migraphx import VERSION, Judge, parts
from end_to_end.stack import Host, Registry
from harness.programs import run as run_program
from paths import DOUBLES

import mxr as core

from .conftest import Worker

ON = ("embedded",)

ARCH = "gfx90a:sramecc+:xnack-"
SAID = ("--arch", ARCH, "--rocm", "7.2", "--migraphx", "2.15", "--for", "ort", "--ort", VERSION)
WAIT = ("--on-miss", "wait=120s")

Start = Callable[..., Worker]
Hosts = Callable[..., Host]


@pytest.fixture
def recorder(judge: Judge, worker: Start, tmp_path: Path, convnet: Path) -> Callable[[str], Worker]:
    """Starts a worker whose interpreter has the real ONNX Runtime."""
    flags = {"kind": "gpu", "arch": ARCH, "offload_copy": False}
    data = programs.write(programs.read(str(convnet), {}), flags, {"file_version": 7, "migraphx": "2.15.0"})

    def start(name: str) -> Worker:
        home = tmp_path / "workers" / name
        # In the folder that its children may read.
        program = home / "site" / "saved.mxr"
        program.parent.mkdir(parents=True)
        program.write_bytes(data)
        told = {"MXR_DOUBLE_ARCH": ARCH, "MXR_DOUBLE_PROGRAM": str(program)}
        return worker(name, kind="gpu", env=beside(judge, home), site=set_for(told)).ready()

    return start


def set_for(told: dict[str, str]) -> str:
    """What the stand-ins read: a child's environment is an allow-list, on which they do not stand."""
    return f"import os; os.environ.update({told!r})"


def beside(judge: Judge, home: Path) -> dict[str, str]:
    """The environment of a worker beside that interpreter, which has the double of MIGraphX's module as well."""
    path = (DOUBLES, home / "site", Path(core.__file__).parents[1])
    return {
        "MXR_WORKER_PYTHON": str(judge.python),
        "LD_LIBRARY_PATH": str(judge.libraries),
        "PYTHONPATH": os.pathsep.join(map(str, path)),
    }


def test_a_model_of_several_parts_is_recorded_placed_and_loaded(
    mxr: Host, host: Hosts, judge: Judge, recorder: Callable[[str], Worker], tmp_path: Path
) -> None:
    model, folder = parts.several(tmp_path / "lstm.onnx"), tmp_path / "cache of ort"
    recorder("one")
    assert f"onnxruntime {VERSION}" in mxr("workers").out
    done = mxr("fetch", model, *SAID, *WAIT, "-o", f"{folder}/", "--json")
    found = done.json
    assert "file name cannot be predicted" in done.err and "2 files recorded" in done.err
    assert found["source"] == "compiled" and found["key"]["form"].startswith(f"ort:B:{VERSION}:all:")
    placed = sorted(folder.glob("*/*.mxr"))
    assert len(placed) == 2
    # The set is what the provider asks for: it loads both, and compiles nothing.
    (outcome,) = judge.sessions([{"model": str(model), "cache": found["path"]}], tmp_path / "judge", arch=ARCH)
    assert outcome.asked == {path.name for path in placed} and set(outcome.verbs) == {"load"}
    assert mxr("verify", folder, "--json").json["ok"]
    told = mxr("show", found["id"], "--json").json
    provenance = told["provenance"]
    assert (provenance["tool"], provenance["onnxruntime"], provenance["file"]) == ("mxr-worker", VERSION, "lstm.onnx")
    assert provenance["verified"] == {"ran": True, "finite": True, "unrun": []}
    # Who comes next finds it in the registry; the same model under another name is another set.
    again = host("next")("fetch", model, *SAID, "-o", f"{tmp_path}/next/", "--json").json
    assert (again["id"], again["source"]) == (found["id"], "registry")
    renamed = host("next")("fetch", model, *SAID, *WAIT, "--name", "other", "-o", f"{tmp_path}/other/", "--json").json
    assert renamed["key"]["form"] != found["key"]["form"]
    names = {path.name for path in (tmp_path / "other").glob("*/*.mxr")}
    assert len(names) == 2 and not names & {path.name for path in placed}


def test_what_cannot_be_recorded_fails_with_the_reason(
    mxr: Host, registry: Registry, recorder: Callable[[str], Worker], tmp_path: Path
) -> None:
    recorder("two")
    words = ("-o", f"{tmp_path}/out/", "--json")
    error = mxr("fetch", parts.none(tmp_path / "cpu.onnx"), *SAID, *WAIT, *words, expect=5).error
    assert "on the CPU" in error["detail"]
    assert (error["context"]["kind"], error["context"]["name"]) == ("permanent", "all-on-cpu")
    # Who does not ask for it is told that somebody could.
    missed = mxr("fetch", parts.several(tmp_path / "later.onnx"), *SAID, *words, expect=3).error
    assert "--on-miss wait" in missed["hint"]
    # Open dims: refused before anybody is asked.
    before = registry.requests("POST /v1/jobs: ")
    opened = parts.one(tmp_path / "open.onnx", "N")
    error = mxr("fetch", opened, *SAID, *WAIT, "--batch", "4", *words, expect=2).error
    assert "mxr freeze" in error["hint"] and registry.requests("POST /v1/jobs: ") == before
    assert not (tmp_path / "out").exists()


def test_without_that_onnx_runtime_nobody_is_able(
    judge: Judge, own_registry: Callable[..., Registry], worker: Start, tmp_path: Path
) -> None:
    url = own_registry().url
    mxr = Host(tmp_path / "asker", url)
    worker("plain", url=url, kind="gpu").ready()
    assert "onnxruntime" not in mxr("workers").out
    model, words = parts.several(tmp_path / "m.onnx"), ("-o", f"{tmp_path}/out/", "--json")
    error = mxr("fetch", model, *SAID, *WAIT, *words, expect=8).error
    assert f"onnxruntime-migraphx {VERSION}" in error["detail"]
    error = mxr("fetch", model, *SAID, "--on-miss", "ask", *words, expect=4).error
    assert f"onnxruntime-migraphx {VERSION}" in error["context"]["waiting_for"]
    # Where the name can be told the model is compiled whole, as ever.
    contract = ("--ort", judge.provider_library, "--ort-python", judge.python)
    found = mxr("fetch", parts.one(tmp_path / "one.onnx"), *SAID[:-2], *contract, *WAIT, *words).json
    assert (found["source"], found["key"]["form"]) == ("compiled", "whole")
    # The wheel alone does not do: a provider that does not start is not offered, and said.
    home = tmp_path / "workers" / "broken"
    home.mkdir(parents=True)
    (home / "host.json").write_text((tmp_path / "workers" / "plain" / "host.json").read_text())
    environ = mxr.environ | beside(judge, home) | {"MXR_HOST": str(home / "host.json"), "LD_LIBRARY_PATH": ""}
    done = run_program(["mxr-worker", "host"], env=environ)
    shown: dict[str, Any] = json.loads(done.stdout)
    assert [slot["can"]["ort"] for slot in shown["slots"]] == [None, None]
    assert "libmigraphx_c.so.3" in shown["interpreter"]["refusals"]["onnxruntime"]


def test_a_recording_is_locked_fetched_and_verified(
    mxr: Host, host: Hosts, judge: Judge, recorder: Callable[[str], Worker], tmp_path: Path
) -> None:
    """A lock has what ONNX Runtime reads: the recorded files, where no name can be predicted."""
    model, lock = parts.several(tmp_path / "lstm.onnx"), tmp_path / "mxr.lock"
    said = ("lock", model, *SAID, "-o", lock, "--json")
    missing = mxr(*said, expect=3).error
    assert "recorded" in missing["detail"] and "--on-miss wait" in missing["hint"] and not lock.exists()
    recorder("three")
    recorded = mxr("fetch", model, *SAID, *WAIT, "-o", f"{tmp_path}/cache/", "--json").json
    (entry,) = mxr(*said).json["entries"]
    assert entry["id"] == recorded["id"]
    assert "all as locked" in mxr("lock", "--check", "-o", lock).out

    other = host("other")
    for words in ((lock,), (lock, model, *SAID)):
        folder = tmp_path / f"placed-{len(words)}"
        found = other("fetch", "--locked", *words, "-o", f"{folder}/", "--json").json
        (row,) = found.get("entries", [found])
        assert row["id"] == recorded["id"]
        placed = sorted(folder.glob("*/*.mxr"))
        assert len(placed) == 2 and f"ORT_MIGRAPHX_MODEL_CACHE_PATH={row['path']}" in row["settings"]
        (outcome,) = judge.sessions([{"model": str(model), "cache": row["path"]}], folder / "judge", arch=ARCH)
        assert outcome.asked == {path.name for path in placed} and set(outcome.verbs) == {"load"}
        assert "all files as locked" in other("verify", lock, "--in", folder).out
    assert "all files as locked" in other("verify", lock).out
    placed[0].unlink()
    assert "missing" in other("verify", lock, "--in", folder, expect=3).err
