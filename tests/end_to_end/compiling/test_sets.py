"""A set with variants that nobody has compiled yet: asked for together, waited for together, all or none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from end_to_end.stack import Host, finish

from .conftest import Worker, eventually

REF = ("--kind", "ref", "--migraphx", "2.15", "--for", "python")


def test_missing_variants_are_compiled_together(
    mxr: Host, worker: Callable[..., Worker], marked: Callable[..., Path], gate: Path, tmp_path: Path
) -> None:
    model = marked(compile=f"wait:{gate}")
    folder = tmp_path / "set"
    worker("one").ready()
    running = mxr.start("fetch", model, *REF, "--batch", "1,2,4", "--on-miss", "wait", "-o", folder, "--json")
    mine = mxr("key", model, *REF, "--batch", "1", "--json").json["model"]

    def asked() -> bool:
        return len([each for each in mxr.get("/v1/jobs")["items"] if each["request"]["key"]["model"] == mine]) == 3

    eventually(asked)
    assert not folder.exists(), "all are asked for before the first is there"
    gate.touch()
    done = finish(running)
    assert done.code == 0, done
    rows = done.json["entries"]
    assert [(row["batch"], row["source"]) for row in rows] == [(1, "compiled"), (2, "compiled"), (4, "compiled")]
    listed = json.loads((folder / "mxr-set.json").read_text())
    assert {row["file"] for row in listed["batches"].values()} == {Path(row["path"]).name for row in rows}


def test_ask_queues_all_and_hands_out_none(mxr: Host, convnet: Path, tmp_path: Path) -> None:
    words = ("fetch", convnet, *REF, "--batch", "1,2", "--on-miss", "ask", "-o", tmp_path / "set", "--json")
    error = mxr(*words, expect=4).error
    assert error["code"] == "not_compiled" and "2 of 2 variants" in error["detail"]
    jobs = error["context"]["jobs"]
    assert len(set(jobs)) == 2 and not (tmp_path / "set").exists()
    for job in jobs:
        assert mxr("jobs", job, "--json").json["state"] == "queued"
        mxr("jobs", job, "--cancel")


def test_one_that_fails_and_none_is_handed_out(
    mxr: Host, worker: Callable[..., Worker], marked: Callable[..., Path], tmp_path: Path
) -> None:
    worker("one").ready()
    model = marked(compile="refuse")
    words = ("fetch", model, *REF, "--batch", "1,2", "--on-miss", "wait", "-o", tmp_path / "set", "--json")
    error = mxr(*words, expect=5).error
    assert error["code"] == "compile_failed" and "2 of 2 variants" in error["detail"]
    assert len(error["context"]["problems"]) == 2 and not (tmp_path / "set").exists()


def test_nobody_could_compile_one_of_them(mxr: Host, convnet: Path, tmp_path: Path) -> None:
    words = ("--kind", "ref", "--migraphx", "2.9", "--for", "python", "--batch", "1,2")
    mxr("fetch", convnet, *words, "--on-miss", "wait", "-o", tmp_path / "set", expect=8)
    assert not (tmp_path / "set").exists()
