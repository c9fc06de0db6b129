"""Clients that others generate from the registry's document do what a deployer does, and see errors as errors.

openapi-python-client, and openapi-typescript with openapi-fetch, as docs/api.md has it.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from harness.scale import SOAK
from harness.tokens import token_for
from harness.waiting import PendingRequest, until
from registry.api_clients.generated import python_client, typescript_client
from registry.inspectors import StoppedInspectors, fill
from registry.one_job import OneJob
from registry.registry_client import GFX908, ONNX, ONNX_MODEL, RegistryUnderTest, Start, gpu_key
from servers.faulty import Cut, Faulty
from servers.swift import Bucket, S3Server

NAME = sha256(GFX908).hexdigest()
FACTS = {"attributes": {"num_cu": 120, "sramecc": "+", "xnack": "-"}}

Client = Callable[..., Any]


@pytest.fixture(scope="module")
def engine() -> str:
    """The database makes no difference here."""
    return "sqlite"


@pytest.fixture(scope="module", params=[python_client, typescript_client] if SOAK else [python_client])
def client(request: pytest.FixtureRequest, server: RegistryUnderTest, pytestconfig: pytest.Config) -> Client:
    """Runs a generated client: `client("round", url, folder)` is what it tells."""
    assert pytestconfig.cache is not None
    run = request.param(pytestconfig.cache.mkdir("api_clients"), server.request("GET", "/openapi.json").data)
    return lambda what, url, *words: json.loads(run(token_for(url), what, url, *words))


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with a model, its program, and the key."""
    (tmp_path / "model.onnx").write_bytes(ONNX)
    (tmp_path / "model.mxr").write_bytes(GFX908)
    (tmp_path / "key.json").write_text(json.dumps(gpu_key(ONNX_MODEL)))
    return tmp_path


def test_a_full_round(start: Start, client: Client, files: Path) -> None:
    server = start()
    with OneJob(server) as worker:
        found = client("round", server.url, files)
    artifacts = server.ok("GET", "/v1/artifacts")["items"]
    job = server.job(worker.job["id"])
    assert abs(found.pop("created") - time.time()) < 3600
    assert found == {
        "registered": [[201, ONNX_MODEL], [200, ONNX_MODEL]],
        "unresolved": [404, "no_such_artifact"],
        "published": 201,
        "resolved": True,
        "part": [206, True],
        "same": [304, 0],
        "whole": True,
        "asked": 202,
        "job": ["done", job["artifact"]],
        "log": server.request("GET", f"/v1/jobs/{job['id']}/log").data.decode(),
        "ids": [each["id"] for each in artifacts],
    }
    assert len(artifacts) == 2 and job["artifact"] == artifacts[0]["id"]


def test_a_registry_that_checks_enough_for_a_client_says_when_to_come_again(
    start: Start, client: Client, files: Path
) -> None:
    # One token has half of four places.
    server = start(config="[limits]\ninspections = 3\ninspections_waiting = 1\n")
    manifest = server.manifest(GFX908)

    def send(number: int) -> PendingRequest:
        key, intent = gpu_key(f"sha256:{number:064x}"), {"also_for": True}
        body = {"key": key, "manifest": manifest, "intent": intent, **FACTS}
        pending: PendingRequest = server.pending("POST", "/v1/artifacts", body)
        return pending

    waiting = [send(number) for number in range(2)]
    with StoppedInspectors(server.process.pid, 2):
        server.handled(*waiting)
        fill(server, send, waiting)
        refused = client("publish", server.url, files)
    assert refused == {"status": 429, "code": "too_many_requests", "retry": True, "after": "5"}
    assert {each.reply()[0] for each in waiting} == {201}


def test_a_registry_that_stops_says_when_to_come_again(start: Start, client: Client) -> None:
    server = start("--set", "serve.drain=100")
    server.process.send_signal(signal.SIGTERM)
    until(lambda: server.call("GET", "/readyz")[0] == 503)
    refused = client("ready", server.url)
    assert (refused["status"], refused["code"], refused["retry"]) == (503, "temporary", True)
    assert int(refused["after"]) > 0
    server.kill9()


def test_a_download_comes_from_s3_and_one_that_ends_in_the_middle_is_no_file(
    start: Start, client: Client, databases: Any, swift: S3Server, bucket: Bucket, tmp_path: Path
) -> None:
    with Faulty(swift.url) as outside:
        rows = databases(tmp_path / "data")
        environ = {**rows.environ, **bucket.environ, "MXR_S3_PUBLIC_ENDPOINT": outside.url}
        server = start(rows=replace(rows, environ=environ))
        server.upload(GFX908)
        words = ("download", server.url, NAME)
        assert client(*words) == {"sha256": NAME}
        assert outside.count("GET", NAME) == 1

        outside.spoil(Cut(len(GFX908) // 2), method="GET")
        assert [*client(*words)] == ["broken"]
        assert outside.count("GET", NAME) > 1


def test_a_registry_that_breaks_off_a_download(start: Start, client: Client) -> None:
    server = start()
    server.upload(GFX908)
    with Faulty(server.url) as way:
        words = ("download", way.url, NAME)
        assert client(*words) == {"sha256": NAME}
        way.spoil(Cut(1000), method="GET", part="/v1/blobs/")
        assert [*client(*words)] == ["broken"]
