"""A worker's token is renewed while it works: nothing is lost, and nobody restarts it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from end_to_end.conftest import unique
from end_to_end.stack import Host, Registry

from .conftest import Worker, asked, closed, eventually, running

ON = ("embedded",)


@pytest.fixture
def patient(own_registry: Callable[..., Registry], tmp_path: Path) -> Registry:
    """A registry whose leases outlast the renewal of a token on a busy machine."""
    (tmp_path / "rules.toml").write_text("[work]\nlease = 8.0\n")
    return own_registry(environ={"MXR_REGISTRY_CONFIG": str(tmp_path / "rules.toml")})


def made(registry: Registry, path: Path) -> str:
    """Put a new token for workers into a file, as a tool would that renews secrets; its id."""
    said = json.loads(registry.ask("POST", "/v1/tokens", {"name": "gpu-hosts", "scopes": ["work"]}).data)
    fresh = path.with_name("fresh")
    fresh.write_text(said["secret"] + "\n")
    fresh.chmod(0o600)
    fresh.replace(path)
    return str(said["token"]["id"])


def test_a_running_compile_and_an_idle_worker_go_on(
    patient: Registry,
    host: Callable[..., Host],
    worker: Callable[..., Worker],
    marked: Callable[..., Path],
    convnet: Path,
    gate: Path,
    tmp_path: Path,
) -> None:
    mxr, path = host("asker", patient.url), tmp_path / "worker.token"
    first = made(patient, path)
    one = worker("one", url=patient.url, env={"MXR_TOKEN": "", "MXR_TOKEN_FILE": str(path)}).ready()

    # In the middle of a compile: the old one is revoked, and the new one comes a moment later.
    job = asked(mxr, marked(compile=f"wait:{gate}"))
    eventually(lambda: running(mxr, job))
    patient.ask("DELETE", f"/v1/tokens/{first}")
    eventually(lambda: f"/v1/jobs/{job}/heartbeat: 401 " in patient.log.read_text())
    second = made(patient, path)
    gate.touch()
    found = closed(mxr, job)
    assert (found["state"], found["attempts"], found["worker"]) == ("done", 1, "one/ref")

    # Without a job: the claim that waits gets none, and claims are refused until the new one is there.
    patient.ask("DELETE", f"/v1/tokens/{second}")
    job = asked(mxr, convnet)
    eventually(lambda: one.said("Trying again."))
    ids = re.findall(r"\(request (\w+)\) Trying again", one.log.read_text())
    assert ids and all(id in patient.log.read_text() for id in ids), "one id leads from this log to the registry's"
    assert mxr("jobs", job, "--json").json["state"] == "queued"
    made(patient, path)
    assert closed(mxr, job)["state"] == "done"

    # A file that is gone: the worker goes on with what it has.
    path.unlink()
    other = unique(convnet, tmp_path / "other.onnx", "another model")
    assert closed(mxr, asked(mxr, other))["state"] == "done"
    assert one.process.poll() is None


def test_a_worker_that_begins_with_a_wrong_token_ends(
    patient: Registry, worker: Callable[..., Worker], tmp_path: Path
) -> None:
    path = tmp_path / "worker.token"
    patient.ask("DELETE", f"/v1/tokens/{made(patient, path)}")
    one = worker("one", url=patient.url, env={"MXR_TOKEN": "", "MXR_TOKEN_FILE": str(path)})
    assert one.process.wait(120) == 7
    assert one.said("was revoked at") and one.said("The token comes from MXR_TOKEN_FILE")
