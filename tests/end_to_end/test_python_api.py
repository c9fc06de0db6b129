"""`import mxr`: the page runs as it is written, the functions agree with the commands, and threads share them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT

from .conftest import Programs
from .stack import Host

MATRIX = """
version: 1
models:
  - path: model.onnx
batch: [4]
for: python
targets:
  - {arch: "gfx908:sramecc+:xnack-", rocm: "7.2", migraphx: "2.15"}
"""


@pytest.fixture
def folder(mxr: Host, model: Path, programs: Programs) -> Path:
    """The folder of the page: a model, its program, a matrix."""
    (mxr.home / "model.onnx").write_bytes(model.read_bytes())
    (mxr.home / "model.mxr").write_bytes(programs.gfx908.read_bytes())
    (mxr.home / "matrix.yaml").write_text(MATRIX)
    return mxr.home


def test_the_page_runs_as_it_is_written(mxr: Host, folder: Path) -> None:
    """Each function of its table is in one of its programs, but those that need MIGraphX or ONNX Runtime."""
    page = (ROOT / "docs" / "python.md").read_text()
    blocks = re.findall("```python\n(.*?)```", page, re.DOTALL)
    mxr("push", "model.mxr", "--model", "model.onnx", "--rocm", "7.2", "--for", "python", cwd=folder)
    done = mxr.python("\n".join(blocks))
    assert done.err == ""
    for said in (
        "gfx908 registry",
        "No live worker and no declared pool can compile this",
        "writing model.mxr",
        "'asked': 'gfx90a', 'field': 'arch', 'found': 'gfx908'",
        "arch gfx908",
        json.loads(mxr("identity", folder / "model.onnx", "--json").out)["model"],
    ):
        assert said in done.out, said
    assert (folder / "models" / "model.mxr").read_bytes() == (folder / "model.mxr").read_bytes()
    named = set(re.findall(r"^\| `mxr\.(\w+)\(", page, re.MULTILINE)) - {"load", "ort_session", "fetch_set"}
    assert named <= set(re.findall(r"mxr\.(\w+)\(", "\n".join(blocks)))


def test_what_a_function_refuses_is_worded_for_programs(mxr: Host, folder: Path) -> None:
    program = """
import json, mxr
calls = {
    "both": lambda: mxr.fetch("model.onnx", on_miss="wait", offline=True),
    "locked": lambda: mxr.fetch("model.onnx", on_miss="ask", locked="mxr.lock"),
    "action": lambda: mxr.fetch("model.onnx", on_miss="local"),
    "no lock": lambda: mxr.fetch("model.onnx", locked="mxr.lock"),
    "missing": lambda: mxr.lock(["model.onnx"], batches=[4], arch="gfx908", rocm="7.2", migraphx="2.15"),
    "matrix": lambda: mxr.precompile("matrix.yaml", on_miss="fail"),
    "target": lambda: mxr.precompile("matrix.yaml", targets=["x"]),
    "unlabelled": lambda: mxr.push("model.mxr", "model.onnx"),
    "unknown": lambda: mxr.push("model.mxr", "model.onnx", rokm="7.2"),
    "no host": lambda: mxr.check("model.mxr"),
    "setting": lambda: mxr.read_settings(registri="http://a"),
    "no program": lambda: mxr.inspect("model.onnx"),
}
found = {}
for name, call in calls.items():
    try:
        call()
    except (mxr.MxrError, TypeError) as error:
        found[name] = [type(error).__name__, str(error), getattr(error, "hint", "")]
print(json.dumps(found))
"""
    found: dict[str, Any] = mxr.python(program).json
    assert {name: row[0] for name, row in found.items()} == {
        **dict.fromkeys(("both", "locked", "action", "no lock", "target", "unlabelled", "no host"), "UsageError"),
        **dict.fromkeys(("missing", "matrix"), "NoSuchArtifactError"),
        **dict.fromkeys(("unknown", "setting"), "TypeError"),
        "no program": "DamagedError",
    }
    assert 'on_miss="wait" compiles' in found["both"][1] and "offline=" in found["both"][1]
    assert "rocm=" in found["unlabelled"][2] and "--" not in found["unlabelled"][2]
    assert not (folder / "mxr.lock").exists()


def test_threads_fetch_at_the_same_time(mxr: Host, folder: Path) -> None:
    """One program, one model, eight threads, and a progress for each that sees its own bytes only."""
    mxr("push", "model.mxr", "--model", "model.onnx", "--rocm", "7.2", "--for", "python", cwd=folder)
    program = """
import json, threading, mxr
gpu = dict(arch="gfx908:sramecc+:xnack-", rocm="7.2", migraphx="2.15", batch=4)
found, begin = {}, threading.Barrier(8)
def work(number):
    seen = {}
    def progress(action, total):
        def step(part): seen[action] = seen.get(action, 0) + part
        seen.setdefault(action, 0)
        return step
    begin.wait()
    own = mxr.read_settings(cache_dir=f"cache-{number}")
    path = mxr.fetch("model.onnx", settings=own, progress=progress, **gpu).path
    described = mxr.inspect(path).archs
    found[number] = [seen, path.stat().st_size, described]
threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
[each.start() for each in threads]; [each.join() for each in threads]
print(json.dumps(found))
"""
    done = mxr.python(program)
    assert done.err == "", done.err[-3000:]
    found = done.json
    size = (folder / "model.mxr").stat().st_size
    assert len(found) == 8
    for seen, there, archs in found.values():
        assert seen["fetching model.onnx"] == size == there and archs == ["gfx908:sramecc+:xnack-"]
