"""docs/api.md: its commands are run as they stand, and the replies that it shows are those of a registry."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT
from registry.one_job import OneJob
from registry.registry_client import GFX908, ONNX, ONNX_MODEL, RegistryUnderTest, Start, gpu_key

PAGE = (ROOT / "docs" / "api.md").read_text()
ROUND = re.search(r"^## A full round with curl\n.*?(?=^## )", PAGE, re.MULTILINE | re.DOTALL)
assert ROUND is not None
BLOCKS = re.findall(r"^```(sh|json)\n(.*?)^```", ROUND[0], re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def engine() -> str:
    """The database makes no difference here."""
    return "sqlite"


def form(value: Any) -> Any:
    """A JSON value without what differs from run to run: texts of digits, numbers and times."""
    if isinstance(value, dict):
        return {name: form(each) for name, each in value.items()}
    if isinstance(value, list):
        return [form(each) for each in value]
    if isinstance(value, str):
        return re.sub(r"[0-9a-f]{12,}|[0-9]{4}-[0-9-]+T[0-9:.]+Z|\d+(\.\d+)*", "N", value)
    return "N" if isinstance(value, float) else value


def test_the_round_works_as_written_and_answers_as_shown(server: RegistryUnderTest, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(ONNX)
    (tmp_path / "model.mxr").write_bytes(GFX908)
    made = server.ok("POST", "/v1/tokens", {"name": "ci", "scopes": ["fetch", "ask", "publish", "promote"]})
    (tmp_path / "api.token").write_text(made["secret"] + "\n")
    script = ["set -eu"]
    for number, (kind, text) in enumerate(BLOCKS):
        if kind == "sh":
            script += [f"exec > {number}.out", text.replace("http://127.0.0.1:8765", server.url)]
    with OneJob(server) as worker:
        done = subprocess.run(
            ["bash", "-c", "\n".join(script)], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
    assert done.returncode == 0, done.stderr
    error, downloaded, listed, registered, followed = (
        (tmp_path / f"{number}.out").read_text() for number in (2, 5, 6, 8, 10)
    )
    assert downloaded.endswith("program.mxr: OK\n304\n")
    assert (tmp_path / "program.mxr").read_bytes() == GFX908
    assert json.loads(registered)["model"] == ONNX_MODEL
    assert followed.strip() == "done"
    job = json.loads((tmp_path / "job.json").read_text())
    assert job["artifact"] and job["id"] == worker.job["id"]

    shown = [json.loads(text) for kind, text in BLOCKS if kind == "json"]
    assert [form(each) for each in shown] == [form(json.loads(error)), form(json.loads(listed)), form(worker.job)]


def test_the_program_in_python_has_a_program_compiled_and_fetches_it(start: Start, tmp_path: Path) -> None:
    server = start()
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "fetch.py").write_text(code)
    key = gpu_key(server.register_model(), rocm="7.1")
    (tmp_path / "request.json").write_text(json.dumps({"key": key, "constraints": {"num_cu": 120}}))

    token = tmp_path / "one.token"
    token.write_text(server.tokens["admin"] + "\n")

    def fetch() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "fetch.py", "request.json", "program.mxr"],
            cwd=tmp_path,
            env={**os.environ, "REGISTRY": server.url, "MXR_TOKEN_FILE": str(token)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    refused = fetch()
    assert refused.returncode == 1 and "no_worker: No live worker" in refused.stderr
    with OneJob(server):
        done = fetch()
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "program.mxr").read_bytes() == GFX908
    assert fetch().returncode == 0, "it is there now"
    assert server.ok("GET", "/v1/jobs")["items"][0]["attempts"] == 1

    # A file with other bytes is not taken for the program.
    server.corrupt(sha256(GFX908).hexdigest())
    (tmp_path / "program.mxr").unlink()
    assert fetch().returncode == 1 and not (tmp_path / "program.mxr").exists()
