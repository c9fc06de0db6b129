"""Parts for the tests of jobs: registries with short leases, a model to compile, and workers that say anything."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import xxhash
from harness.registry import RegistryProcess, registry_environ
from paths import DATA
from servers.rows import Databases, Rows

ONNX = (DATA / "models" / "convnet.onnx").read_bytes()
MODEL = "xxh3:" + xxhash.xxh3_128(ONNX, seed=0).hexdigest()
REF = (DATA / "mxr_real" / "convnet_b4_fp16_ref.mxr").read_bytes()
OTHER_REF = (DATA / "mxr_real" / "convnet_b4_bf16_ref.mxr").read_bytes()
GFX908 = (DATA / "mxr_spliced" / "v7_gfx908_sramecc+_xnack-.cov5.mxr").read_bytes()

REF_CAN = {"targets": [{"arch": "ref", "kind": "ref"}], "toolchain": {"migraphx": "2.16.0"}}


def ref_key(**other: Any) -> dict[str, Any]:
    base = {"model": MODEL, "kind": "ref", "migraphx": "2.16", "inputs": {"x": [4, 3, 32, 32]}, "precision": "fp16"}
    return {**base, "offload_copy": True, "fast_math": True, **other}


def gpu_key(**other: Any) -> dict[str, Any]:
    base = {"model": MODEL, "kind": "gpu", "vendor": "amd", "arch": "gfx908", "migraphx": "2.15", "rocm": "7.2"}
    return {**base, "inputs": {"x": [4, 3, 32, 32]}, "offload_copy": True, "fast_math": True, **other}


def gpu_can(arch: str = "gfx908", num_cu: int | None = 120, rocm: str = "7.2.1", **other: Any) -> dict[str, Any]:
    target = {"arch": arch, "num_cu": num_cu, "sramecc": "+", "xnack": "-"}
    if arch.startswith("gfx11"):
        target = {"arch": arch, "num_cu": num_cu}
    return {"targets": [target], "toolchain": {"rocm": rocm, "migraphx": "2.15.0", "migraphx_build": "a1", **other}}


class Registry(RegistryProcess):
    """A registry process, and what clients and workers would say to it."""

    def __init__(self, data: Path, config: str = "", port: int = 0, *, rows: Rows) -> None:
        self.rows = rows
        environ = registry_environ(rows.environ)
        if config:
            path = data.parent / f"{data.name}-{time.monotonic_ns()}.toml"
            path.write_text(config)
            environ["MXR_REGISTRY_CONFIG"] = str(path)
        super().__init__(data, environ, port=port)

    def ok(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON of a reply that must be a success."""
        status, said = self.call(method, path, body)
        assert status < 300, said
        return said

    def bad(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """The error of a reply that must be none."""
        status, said = self.call(method, path, body)
        assert status >= 400, said
        return said["error"]

    def manifest(self, data: bytes, name: str) -> dict[str, Any]:
        digest = sha256(data).hexdigest()
        self.ok("PUT", f"/v1/blobs/{digest}", data)
        blob = {"sha256": digest, "size": len(data)}
        return {"v": 1, "files": [{"name": name, "size": len(data), "sha256": digest, "blobs": [blob]}]}

    def give_model(self, onnx: bytes = ONNX) -> str:
        """Upload and register a model, the example unless told otherwise, so that it can be compiled; its hash."""
        model = "xxh3:" + xxhash.xxh3_128(onnx, seed=0).hexdigest()
        identity = sha256(
            json.dumps({"files": [["", sha256(onnx).hexdigest()]], "v": 1}, separators=(",", ":")).encode()
        ).hexdigest()
        stated = {"model": model, "sha256": identity, "name": "convnet.onnx", "inputs": [], "onnx": "model.onnx"}
        self.ok("POST", "/v1/models", stated | {"manifest": self.manifest(onnx, "model.onnx")})
        return model

    def ask(self, key: dict[str, Any], **more: Any) -> Any:
        demands = more.pop("demands", {})
        return self.ok("POST", "/v1/jobs", {"request": {"key": key, "demands": demands}, **more})

    def refuse(self, key: dict[str, Any], **more: Any) -> dict[str, Any]:
        demands = more.pop("demands", {})
        return self.bad("POST", "/v1/jobs", {"request": {"key": key, "demands": demands}, **more})

    def worker(self, name: str = "one", can: Any = None) -> str:
        return str(self.ok("POST", "/v1/workers", {"name": name, "can": can or REF_CAN})["id"])

    def claim(self, worker: str, wait: float = 0, **more: Any) -> Any:
        return self.ok("POST", "/v1/jobs/claim", {"worker": worker, "wait": wait, **more})["lease"]

    def job(self, id: str) -> Any:
        return self.ok("GET", f"/v1/jobs/{id}")

    def publication(self, lease: dict[str, Any], data: bytes = REF, **more: Any) -> dict[str, Any]:
        manifest = self.manifest(data, "model.mxr")
        provenance = {"compile_seconds": 12.5}
        return {"key": lease["key"], "manifest": manifest, "provenance": provenance, **more}

    def finish(self, lease: dict[str, Any], **more: Any) -> Any:
        artifact = self.publication(lease, **more)
        return self.ok("POST", f"/v1/jobs/{lease['job']}/finish", {"fence": lease["fence"], "artifact": artifact})

    def fail(self, lease: dict[str, Any], kind: str, name: str = "unknown", message: str = "it did not work") -> Any:
        failure = {"kind": kind, "message": message, "name": name}
        return self.ok("POST", f"/v1/jobs/{lease['job']}/fail", {"fence": lease["fence"], "failure": failure})

    def beat(self, lease: dict[str, Any], **more: Any) -> Any:
        return self.ok("POST", f"/v1/jobs/{lease['job']}/heartbeat", {"fence": lease["fence"], **more})

    def clear(self) -> None:
        """Forget jobs, workers, failures and artifacts, as if they had never been; the model stays."""
        tables = ("job_logs", "job_events", "jobs", "workers", "failures")
        tables += ("artifact_blobs", "artifact_inputs", "artifacts", "misses")
        self.rows.execute(*(f"DELETE FROM {table}" for table in tables))


SHORT = """
[work]
lease = 1.0
lost_after = 20
backoff = 0.2
backoff_most = 0.4
"""


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory, shared_databases: Databases) -> Iterator[Registry]:
    data = tmp_path_factory.mktemp("usual") / "data"
    found = Registry(data, rows=shared_databases(data))
    found.give_model()
    yield found
    found.stop(signal.SIGKILL)


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory, shared_databases: Databases) -> Iterator[Registry]:
    data = tmp_path_factory.mktemp("hasty") / "data"
    found = Registry(data, SHORT, rows=shared_databases(data))
    found.give_model()
    yield found
    found.stop(signal.SIGKILL)


@pytest.fixture
def registry(usual: Registry) -> Registry:
    """One with the usual rules and the model, and nothing else in it."""
    usual.clear()
    return usual


@pytest.fixture
def short(hasty: Registry) -> Registry:
    """One with short leases and the model, and nothing else in it."""
    hasty.clear()
    return hasty


@pytest.fixture
def start(tmp_path: Path, databases: Databases) -> Iterator[Any]:
    """Starts registries of a test's own, with short leases unless told otherwise; all are killed at the end."""
    running: list[Registry] = []

    def begin(config: str = SHORT, data: Path | None = None, port: int = 0) -> Registry:
        folder = data or tmp_path / "data"
        running.append(Registry(folder, config, port, rows=databases(folder)))
        return running[-1]

    yield begin
    for each in running:
        each.stop(signal.SIGKILL)


@pytest.fixture
def parts() -> Any:
    """The example files, keys, and what workers can do."""

    class Parts:
        onnx, ref, other_ref, gfx908, model = ONNX, REF, OTHER_REF, GFX908, MODEL
        ref_key, gpu_key, gpu_can = staticmethod(ref_key), staticmethod(gpu_key), staticmethod(gpu_can)
        ref_can, short, registry = REF_CAN, SHORT, Registry

    return Parts
