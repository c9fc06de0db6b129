"""Parts for the registry's tests: a real `mxr-registry serve` as a process, and what a client would say to it."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import urllib3
from harness.programs import run as run_program
from harness.registry import RegistryProcess, registry_environ
from paths import DATA
from servers.rows import ENGINES, Databases, Rows

SPLICED = DATA / "mxr_spliced"
SAME = ("layout_gfx90a", "miopen_solution")
GFX908 = SPLICED / "v7_gfx908_sramecc+_xnack-.cov5.mxr"
GFX942 = SPLICED / "v7_gfx942_sramecc+_xnack-.cov5.mxr"
REF = DATA / "mxr_real" / "convnet_b4_fp16_ref.mxr"
MODEL = "xxh3:" + "ab" * 16


class Server(RegistryProcess):
    """A registry process, and what a client would say to it."""

    def __init__(self, data: Path, *flags: str, rows: Rows) -> None:
        self.rows = rows
        super().__init__(data, registry_environ(rows.environ), *flags)

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        """Status and JSON of a reply."""
        return self.call(method, path, body, headers)

    def get(self, path: str, **headers: str) -> urllib3.BaseHTTPResponse:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.request("GET", path, headers=names, redirect=False)

    def upload(self, data: bytes) -> dict[str, Any]:
        """Send a blob, again where a sweep took it on its way; its words in a manifest."""
        name = sha256(data).hexdigest()
        status, said = self.ask("PUT", f"/v1/blobs/{name}", data)
        while status == 503 and "was swept" in said["error"]["message"]:
            status, said = self.ask("PUT", f"/v1/blobs/{name}", data)
        assert status == 201, said
        return {"sha256": name, "size": len(data)}

    def manifest(self, data: bytes, name: str = "model.mxr", cut: int | None = None) -> dict[str, Any]:
        """Send a file, cut into blobs of `cut` bytes; its manifest."""
        step = cut or len(data)
        blobs = [self.upload(data[at : at + step]) for at in range(0, len(data), step)]
        file = {"name": name, "size": len(data), "sha256": sha256(data).hexdigest(), "blobs": blobs}
        return {"v": 1, "files": [file]}

    def publish(self, data: bytes, key: dict[str, Any], *, cut: int | None = None, **more: Any) -> tuple[int, Any]:
        return self.ask("POST", "/v1/artifacts", {"key": key, "manifest": self.manifest(data, cut=cut), **more})

    def blob_path(self, name: str) -> Path:
        return self.data / "store" / "blobs" / name[:2] / name[2:4] / name

    def spoil(self, name: str) -> None:
        """Change one byte of a stored blob, as a bad disk would."""
        path = self.blob_path(name)
        path.chmod(0o644)
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        os.utime(path, ns=(1, time.time_ns() + 1))


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """What holds the rows. A module in which that makes no difference overrides this with one of them."""
    return str(request.param)


@pytest.fixture(scope="module")
def shared_databases(engine: str, request: pytest.FixtureRequest) -> Iterator[Databases]:
    """Databases that live as long as the module."""
    found = Databases(engine, lambda: request.getfixturevalue("postgresql"))
    yield found
    found.drop()


@pytest.fixture
def databases(engine: str, request: pytest.FixtureRequest) -> Iterator[Databases]:
    """Databases of one test."""
    found = Databases(engine, lambda: request.getfixturevalue("postgresql"))
    yield found
    found.drop()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, shared_databases: Databases) -> Iterator[Server]:
    data = tmp_path_factory.mktemp("registry") / "data"
    found = Server(data, rows=shared_databases(data))
    yield found
    found.stop()


@pytest.fixture
def start(tmp_path: Path, databases: Databases) -> Iterator[Any]:
    """Starts servers of its own; all are stopped at the end."""
    running: list[Server] = []

    def begin(*flags: str, data: Path | None = None, rows: Rows | None = None) -> Server:
        folder = data or tmp_path / "data"
        running.append(Server(folder, *flags, rows=rows or databases(folder)))
        return running[-1]

    yield begin
    for each in running:
        each.stop(signal.SIGKILL)


@pytest.fixture
def fsck(databases: Databases) -> Any:
    """Runs `mxr-registry fsck --json`: its exit number and document."""

    def run(data: Path, *flags: str, environ: dict[str, str] | None = None) -> tuple[int, dict[str, Any]]:
        found = os.environ | (environ or databases(data).environ)
        done = run_program(["mxr-registry", "fsck", "--json", "--data", str(data), *flags], env=found)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    return run


@pytest.fixture
def key() -> dict[str, Any]:
    """The key of the spliced gfx908 program."""
    return gpu_key()


@pytest.fixture(scope="session")
def parts() -> Any:
    """The example files, and the keys that they go with."""

    class Parts:
        gfx908, gfx942, ref = GFX908.read_bytes(), GFX942.read_bytes(), REF.read_bytes()
        uncompiled = (DATA / "mxr_real" / "convnet_b4_uncompiled.mxr").read_bytes()
        generic = (SPLICED / "v7_gfx11-generic.cov6.mxr").read_bytes()
        gfx90a_plus = (SPLICED / "v7_gfx90a_sramecc+_xnack+.cov5.mxr").read_bytes()
        gfx90a_minus = (SPLICED / "v7_gfx90a_sramecc+_xnack-.bundle.mxr").read_bytes()
        same_key = (gfx90a_minus, *((SPLICED / f"v7_{name}.mxr").read_bytes() for name in SAME))
        model = MODEL
        gpu_key = staticmethod(gpu_key)
        ref_key = staticmethod(ref_key)
        explicit: dict[str, Any] = {"qualities": {"sramecc": "+", "xnack": "-"}}  # noqa: RUF012

    return Parts


def gpu_key(arch: str = "gfx908", **other: Any) -> dict[str, Any]:
    base = {"model": MODEL, "kind": "gpu", "vendor": "amd", "arch": arch, "migraphx": "2.15", "rocm": "7.2"}
    return {**base, "inputs": {"x": [4, 3, 32, 32]}, "offload_copy": True, "fast_math": True, **other}


def ref_key(**other: Any) -> dict[str, Any]:
    base = {"model": MODEL, "kind": "ref", "migraphx": "2.16", "inputs": {"x": [4, 3, 32, 32]}, "precision": "fp16"}
    return {**base, "offload_copy": True, "fast_math": True, **other}
