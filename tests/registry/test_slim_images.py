"""docs/slim_images.md: its script fetches the right program or leaves everything as it was, with few tools."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from harness.tokens import token_for
from paths import DATA, ROOT
from registry.registry_client import GFX908, ONNX_MODEL, Start, gpu_key
from servers.faulty import Alter, Answer, Cut, Faulty

PAGE = (ROOT / "docs" / "slim_images.md").read_text()
BLOCKS = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
SCRIPT = next(text for text in BLOCKS if text.startswith("#!/bin/sh"))
CHOSEN = next(text for text in BLOCKS if "$id" in text)
COMPILE = next(text for text in BLOCKS if "/v1/jobs" in text)

TOOLS = ("sh", "curl", "sha256sum", "mktemp", "cat", "rm", "grep", "head", "cut", "sed", "sleep", "chmod", "mv")
NAME = sha256(GFX908).hexdigest()
FACTS = {"attributes": {"num_cu": 120, "sramecc": "+", "xnack": "-"}}

Slim = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def engine() -> str:
    """The database makes no difference here."""
    return "sqlite"


@pytest.fixture
def slim(tmp_path: Path) -> Slim:
    """Runs a text as a script in a folder with fetch.sh and request.json, where there are no tools but `TOOLS`."""
    tools, folder = tmp_path / "tools", tmp_path / "image"
    tools.mkdir()
    folder.mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        assert found is not None, f"install {name}"
        (tools / name).symlink_to(found)
    (folder / "fetch.sh").write_text(SCRIPT)
    request = {"key": gpu_key(ONNX_MODEL), "constraints": {"num_cu": 120, "xnack": "-"}}
    (folder / "request.json").write_text(json.dumps(request))

    token = tmp_path / "fetch.token"

    def run(text: str, **environ: str) -> subprocess.CompletedProcess[str]:
        (url,) = re.findall(r"http://[0-9.:]+", text) or [""]
        token.write_text(f"{token_for(url)}\n")
        return subprocess.run(
            ["sh", "-euc", text],
            cwd=folder,
            env={"PATH": str(tools), "MXR_TOKEN_FILE": str(token), **environ},
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )

    return run


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """The folder of `slim`."""
    return tmp_path / "image"


def fetch(url: str) -> str:
    """The call of the script."""
    return f"sh fetch.sh {url} request.json model.mxr"


def names(folder: Path) -> list[str]:
    """What is in a folder."""
    return sorted(each.name for each in folder.iterdir())


def test_a_program_is_fetched_once(start: Start, slim: Slim, image: Path) -> None:
    server = start()
    refused = slim(fetch(server.url))
    assert refused.returncode == 1
    assert refused.stderr.startswith("fetch.sh: 404 no_such_artifact: No program of ")
    assert names(image) == ["fetch.sh", "request.json"]

    _, artifact = server.publish(GFX908, gpu_key(ONNX_MODEL), **FACTS)
    server.ok("POST", f"/v1/artifacts/{artifact['id']}/promote")
    with Faulty(server.url) as way:
        for _ in range(2):
            done = slim(fetch(way.url))
            assert (done.returncode, done.stderr) == (0, "")
            assert (image / "model.mxr").read_bytes() == GFX908
            assert way.count("GET") == 1, "what is there is not downloaded again"
    assert (image / "model.mxr").stat().st_mode & 0o777 == 0o644
    assert names(image) == ["fetch.sh", "model.mxr", "request.json"]

    (image / "model.mxr").unlink()
    done = slim(CHOSEN.replace("https://registry.example.com", server.url), id=artifact["id"], sha256=NAME)
    assert (done.returncode, done.stdout) == (0, "model.mxr: OK\n")
    assert (image / "header").read_text() == f"Authorization: Bearer {server.tokens['admin']}\n"


def test_what_goes_wrong_on_the_way(start: Start, slim: Slim, image: Path) -> None:
    server = start()
    server.publish(GFX908, gpu_key(ONNX_MODEL), **FACTS)
    old = b"the program of yesterday"
    (image / "model.mxr").write_bytes(old)
    with Faulty(server.url) as way:
        way.spoil(Alter(5000), method="GET")
        done = slim(fetch(way.url))
        assert done.returncode == 1 and done.stderr.endswith(f"do not have the sha256 {NAME}\n")
        assert (image / "model.mxr").read_bytes() == old
        way.heal()

        way.spoil(Answer(503), method="POST", times=1)
        way.spoil(Cut(7000), method="GET", times=1)
        done = slim(fetch(way.url))
        assert done.returncode == 0, done.stderr
        assert (image / "model.mxr").read_bytes() == GFX908
        assert way.seen[-1].headers["range"] == "bytes=7000-", "the download went on where it ended"
    assert names(image) == ["fetch.sh", "model.mxr", "request.json"]


class SecondFile(BaseHTTPRequestHandler):
    """Answers with the reply of a registry to a resolve, and one more URL in it."""

    found: dict[str, Any]

    def do_POST(self) -> None:
        """Answer as if the artifact had two files."""
        urls = self.found["urls"] | {"more.mxr": "/v1/more"}
        body = json.dumps(self.found | {"urls": urls}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


def test_an_artifact_of_several_files_is_refused(start: Start, slim: Slim, image: Path) -> None:
    server = start()
    _, artifact = server.publish(GFX908, gpu_key(ONNX_MODEL), **FACTS)
    SecondFile.found = server.ok("POST", "/v1/resolve", json.loads((image / "request.json").read_text()))
    with HTTPServer(("127.0.0.1", 0), SecondFile) as other:
        threading.Thread(target=other.handle_request, daemon=True).start()
        done = slim(fetch(f"http://127.0.0.1:{other.server_address[1]}"))
    assert done.returncode == 1 and done.stderr == f"fetch.sh: the artifact {artifact['id']} has several files\n"
    assert names(image) == ["fetch.sh", "request.json"]


def test_a_registry_that_is_away_is_said(slim: Slim, image: Path) -> None:
    # Asked again, as the script does, it would take minutes.
    (image / "fetch.sh").write_text(SCRIPT.replace("--retry 8", "--retry 1"))
    done = slim(fetch("http://127.0.0.1:1"))
    assert done.returncode != 0 and "Failed to connect" in done.stderr
    assert names(image) == ["fetch.sh", "request.json"]


def test_the_same_request_asks_for_a_compile(start: Start, slim: Slim) -> None:
    server = start()
    server.register_model()
    done = slim(COMPILE.replace("https://registry.example.com", server.url))
    assert done.returncode == 0 and json.loads(done.stdout)["state"] == "queued"


def test_mxr_key_writes_the_request(start: Start, slim: Slim, image: Path) -> None:
    server = start()
    server.publish(GFX908, gpu_key(ONNX_MODEL), **FACTS)
    target = ("--arch", "gfx908:sramecc+:xnack-", "--num-cu", "120", "--rocm", "7.2", "--migraphx", "2.15")
    words = ("key", DATA / "models" / "convnet.onnx", *target, "--batch", "4", "--for", "python", "--request")
    command = [sys.executable, "-m", "mxr_cli.main", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=image, check=True)
    (image / "request.json").write_text(done.stdout)
    assert slim(fetch(server.url)).returncode == 0
    assert (image / "model.mxr").read_bytes() == GFX908
