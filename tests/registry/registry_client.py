"""A registry process with its database, the requests of clients and workers, and changes behind its back by SQL."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol
from zlib import crc32

import pytest
import urllib3
from harness.registry import RegistryProcess, registry_environ
from harness.waiting import PendingRequest, requests_read
from harness.workers import claim_of, lease_of, registered
from identities import model_of
from paths import DATA
from prometheus_client.parser import text_string_to_metric_families
from servers.rows import Rows

SPLICED = DATA / "mxr_spliced"
ONNX = (DATA / "models" / "convnet.onnx").read_bytes()
ONNX_MODEL = model_of(ONNX)
MODEL = "sha256:" + "ab" * 32
REF = (DATA / "mxr_real" / "convnet_b4_fp16_ref.mxr").read_bytes()
GFX908 = (SPLICED / "v7_gfx908_sramecc+_xnack-.cov5.mxr").read_bytes()

REF_CAPABILITIES = {"targets": [{"arch": "ref", "kind": "ref"}], "toolchain": {"migraphx": "2.16.0"}}

on_sqlite = pytest.mark.parametrize("engine", ["sqlite"], indirect=True, scope="module")
"""Marks a test whose subject does not depend on the database's engine, in a module of tests that run on both."""

HEARD = 15.0
"""Seconds within which a waiting claim must hear of a job: it looks again unasked after 16 (routes/jobs.py, AGAIN)."""

HOUR = 3600.0
TABLES = (
    *("job_logs", "job_events", "attempts", "jobs", "workers", "failures"),
    *(
        "lock_artifacts",
        "lock_revisions",
        "locks",
        "artifact_blobs",
        "artifact_inputs",
        "artifacts",
        "miss_askers",
        "misses",
        "tombstones",
        "recalls",
    ),
)
"""What `clear` empties, in the order that references allow."""


def marked(name: str) -> dict[str, str]:
    """The `env` of a key that differs from those of all other names."""
    return {"MIGRAPHX_MLIR_TUNE_LIMIT": str(crc32(name.encode()) % 10**9)}


def gpu_key(model: str, arch: str = "gfx908", **other: Any) -> dict[str, Any]:
    """The key of a program for a GPU; by default that of the spliced gfx908 program."""
    base = {"model": model, "kind": "gpu", "vendor": "amd", "arch": arch, "migraphx": "2.15", "rocm": "7.2"}
    return {**base, "inputs": {"x": [4, 3, 32, 32]}, "offload_copy": True, "fast_math": True, **other}


def ref_key(model: str, **other: Any) -> dict[str, Any]:
    """The key of a program for the ref target; by default that of the real one."""
    base = {"model": model, "kind": "ref", "migraphx": "2.16", "inputs": {"x": [4, 3, 32, 32]}, "precision": "fp16"}
    return {**base, "offload_copy": True, "fast_math": True, **other}


def gpu_capabilities(
    arch: str = "gfx908", num_cu: int | None = 120, rocm: str = "7.2.1", **toolchain: Any
) -> dict[str, Any]:
    """What a worker with one GPU can compile."""
    target = {"arch": arch, "num_cu": num_cu, "sramecc": "+", "xnack": "-"}
    if arch.startswith("gfx11"):
        target = {"arch": arch, "num_cu": num_cu}
    return {"targets": [target], "toolchain": {"rocm": rocm, "migraphx": "2.15.0", "migraphx_build": "a1", **toolchain}}


class RegistryState:
    """What a registry keeps, running or not, and changes to it that it does not hear of."""

    def __init__(self, data: Path, rows: Rows) -> None:
        self.data, self.rows = data, rows

    def clear(self) -> None:
        """Delete jobs, workers, failures and artifacts; models and blobs stay."""
        self.rows.execute(*(f"DELETE FROM {table}" for table in TABLES))

    def age_lease(self, job: str, seconds: float = HOUR) -> None:
        """A lease ends so many seconds earlier; by default it has expired."""
        self.rows.execute(f"UPDATE jobs SET lease_until = lease_until - {seconds} WHERE id = '{job}'")

    def lease_end(self, job: str) -> float:
        """When a lease ends, by the clock that this machine shares with its database."""
        ((found,),) = self.rows.execute(f"SELECT lease_until FROM jobs WHERE id = '{job}'")
        return float(found)

    def end_backoff(self, job: str, moment: float | None = None) -> None:
        """A job may be tried again since an hour ago, or from a moment on."""
        begin = time.time() - HOUR if moment is None else moment
        self.rows.execute(f"UPDATE jobs SET next_at = {begin} WHERE id = '{job}' AND state = 'queued'")

    def age_failures(self, seconds: float) -> None:
        """Remembered failures expire so many seconds earlier."""
        self.rows.execute(f"UPDATE failures SET expires_at = expires_at - {seconds}")

    def age_workers(self, seconds: float = HOUR) -> None:
        """All workers were last heard of so many seconds earlier; by default they are lost."""
        self.rows.execute(f"UPDATE workers SET seen_at = seen_at - {seconds}")

    def blob_path(self, name: str) -> Path:
        """Where the file store keeps a blob."""
        return self.data / "store" / "blobs" / name[:2] / name[2:4] / name

    def corrupt(self, name: str) -> None:
        """Change one byte of a stored blob."""
        path = self.blob_path(name)
        path.chmod(0o644)
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        os.utime(path, ns=(1, time.time_ns() + 1))


class RegistryUnderTest(RegistryState, RegistryProcess):
    """A registry process, its rows, and the requests of its clients and workers.

    `config`: the text of its configuration file, if any.
    """

    def __init__(self, data: Path, *flags: str, rows: Rows, config: str = "", port: int = 0) -> None:
        RegistryState.__init__(self, data, rows)
        environ = registry_environ(rows.environ)
        if config:
            path = data.parent / f"{data.name}-{time.monotonic_ns()}.toml"
            path.write_text(config)
            environ["MXR_REGISTRY_CONFIG"] = str(path)
        RegistryProcess.__init__(self, data, environ, *flags, port=port)

    # Requests.

    def get(self, path: str, **headers: str) -> urllib3.BaseHTTPResponse:
        """The reply to a GET, not redirected; `if_none_match="x"` is the header `if-none-match`."""
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.request("GET", path, headers=names, redirect=False)

    def ok(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON of a reply that must be a success."""
        status, said = self.call(method, path, body)
        assert status < 300, said
        return said

    def error(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """The error of a reply that must be one."""
        status, said = self.call(method, path, body)
        assert status >= 400, said
        found: dict[str, Any] = said
        return found

    def metric(self, name: str, **labels: str) -> float | None:
        """The value of a metric with exactly these labels; None where there is none."""
        families = text_string_to_metric_families(self.get("/metrics").data.decode())
        samples = [sample for family in families for sample in family.samples if sample.name == name]
        return next((sample.value for sample in samples if sample.labels == labels), None)

    def pending(self, method: str, path: str, body: Any = None) -> PendingRequest:
        """A request that is sent and not yet answered; see `handled`."""
        return PendingRequest(self.url, method, path, body)

    def handled(self, *pending: PendingRequest) -> None:
        """Wait until the registry has read these requests, and has answered others that it read later."""
        requests_read(*pending)
        for _ in range(12):
            self.ok("GET", "/v1/jobs?limit=1")

    # Blobs, models and artifacts.

    def upload(self, data: bytes) -> dict[str, Any]:
        """Send a blob, again where a sweep removed it meanwhile; its entry in a manifest."""
        name = sha256(data).hexdigest()
        status, said = self.call("PUT", f"/v1/blobs/{name}", data)
        while status == 503 and "was swept" in said["detail"]:
            status, said = self.call("PUT", f"/v1/blobs/{name}", data)
        assert status == 201, said
        return {"sha256": name, "size": len(data)}

    def manifest(self, data: bytes, name: str = "model.mxr", cut: int | None = None) -> dict[str, Any]:
        """Send a file, cut into blobs of `cut` bytes; its manifest."""
        step = cut or len(data)
        blobs = [self.upload(data[at : at + step]) for at in range(0, len(data), step)]
        file = {"name": name, "size": len(data), "sha256": sha256(data).hexdigest(), "blobs": blobs}
        return {"v": 1, "files": [file]}

    def publish(self, data: bytes, key: dict[str, Any], *, cut: int | None = None, **more: Any) -> tuple[int, Any]:
        """Status and JSON of the publication of a program, whose bytes tests publish for many models."""
        body = {"key": key, "manifest": self.manifest(data, cut=cut), "intent": {"also_for": True}, **more}
        return self.call("POST", "/v1/artifacts", body)

    def registration(self, onnx: bytes = ONNX, *, cut: int | None = None, name: str = "convnet.onnx") -> dict[str, Any]:
        """Upload the bytes of a model; what registers it."""
        stated = {"model": model_of(onnx), "name": name, "inputs": [], "onnx": "model.onnx"}
        return stated | {"manifest": self.manifest(onnx, "model.onnx", cut)}

    def register_model(self, onnx: bytes = ONNX, *, cut: int | None = None, name: str = "convnet.onnx") -> str:
        """Upload and register a model, the example unless told otherwise, so that it can be compiled; its identity."""
        return str(self.ok("POST", "/v1/models", self.registration(onnx, cut=cut, name=name))["model"])

    # Jobs and workers.

    def submit(self, key: dict[str, Any], *, constraints: Mapping[str, Any] | None = None, **more: Any) -> Any:
        """The job of a request for a compile."""
        return self.ok("POST", "/v1/jobs", {"key": key, "constraints": constraints or {}, **more})

    def submit_error(
        self, key: dict[str, Any], *, constraints: Mapping[str, Any] | None = None, **more: Any
    ) -> dict[str, Any]:
        """The error of a request for a compile that must be refused."""
        return self.error("POST", "/v1/jobs", {"key": key, "constraints": constraints or {}, **more})

    def register_worker(self, name: str = "one", capabilities: Any = None) -> str:
        """The id of a worker; by default it compiles for the ref target."""
        return registered(self.ok, name, capabilities or REF_CAPABILITIES)

    def claim(self, worker: str, wait: float = 0, **more: Any) -> Any:
        """The lease of the next job for a worker; None where there is no job."""
        return lease_of(self.ok, worker, wait=wait, **more)

    def waiting_claim(self, worker: str) -> PendingRequest:
        """A claim that waits for a minute."""
        body = claim_of(worker, wait=60)
        found = self.pending("POST", "/v1/jobs/claim", body)
        found.secret = body["lease"]
        self.handled(found)
        return found

    def heard(self, claim: PendingRequest) -> Any:
        """The lease that a waiting claim gets by news of the job, not by its own second look."""
        lease = claim.reply(HEARD)[1]["lease"]
        return lease and lease | {"secret": claim.secret}

    def job(self, id: str) -> Any:
        """A job as the registry shows it."""
        return self.ok("GET", f"/v1/jobs/{id}")

    def publication(self, lease: dict[str, Any], data: bytes = REF, **more: Any) -> dict[str, Any]:
        """What a worker publishes for its lease; the file is uploaded."""
        provenance = {"compile_seconds": 12.5}
        return {"key": lease["key"], "manifest": self.manifest(data), "provenance": provenance, **more}

    def finish(self, lease: dict[str, Any], **more: Any) -> Any:
        """The job after its worker published the program."""
        artifact = self.publication(lease, **more)
        return self.ok("POST", f"/v1/jobs/{lease['job']}/finish", {"lease": lease["secret"], "artifact": artifact})

    def fail(self, lease: dict[str, Any], kind: str, name: str = "unknown", message: str = "it did not work") -> Any:
        """The job after its worker reported a failure."""
        failure = {"kind": kind, "message": message, "name": name}
        return self.ok("POST", f"/v1/jobs/{lease['job']}/fail", {"lease": lease["secret"], "failure": failure})

    def heartbeat(self, lease: dict[str, Any], **more: Any) -> Any:
        """The answer to a worker that renews its lease."""
        return self.ok("POST", f"/v1/jobs/{lease['job']}/heartbeat", {"lease": lease["secret"], **more})

    def lose_lease(self, job: str, worker: str) -> None:
        """A lease expires, the registry notices at a claim of `worker`, and the job may be tried again by anybody."""
        self.age_lease(job)
        assert self.claim(worker) is None
        self.end_backoff(job)

    def end(self) -> None:
        """End it after a test, as a power cut does."""
        self.stop(signal.SIGKILL)


class Start(Protocol):
    """Starts a registry of a test's own (the fixture `start`)."""

    def __call__(
        self, *flags: str, data: Path | None = None, rows: Rows | None = None, snapshot: Any = None, **options: Any
    ) -> RegistryUnderTest: ...


class Parts:
    """The example files, keys of one model, and what workers can compile (the fixture `parts`)."""

    onnx, gfx908, ref = ONNX, GFX908, REF
    gfx942 = (SPLICED / "v7_gfx942_sramecc+_xnack-.cov5.mxr").read_bytes()
    uncompiled = (DATA / "mxr_real" / "convnet_b4_uncompiled.mxr").read_bytes()
    generic = (SPLICED / "v7_gfx11-generic.cov6.mxr").read_bytes()
    gfx90a_plus = (SPLICED / "v7_gfx90a_sramecc+_xnack+.cov5.mxr").read_bytes()
    gfx90a_minus = (SPLICED / "v7_gfx90a_sramecc+_xnack-.bundle.mxr").read_bytes()
    same_key = (
        gfx90a_minus,
        (SPLICED / "v7_layout_gfx90a.mxr").read_bytes(),
        (SPLICED / "v7_miopen_solution.mxr").read_bytes(),
    )
    explicit: Mapping[str, Any] = {"attributes": {"sramecc": "+", "xnack": "-"}}
    gpu_capabilities, ref_capabilities = staticmethod(gpu_capabilities), REF_CAPABILITIES

    def __init__(self, model: str = MODEL) -> None:
        self.model = model

    def gpu_key(self, arch: str = "gfx908", *, model: str = "", **other: Any) -> dict[str, Any]:
        """The key of a program, by default of the one model."""
        return gpu_key(model or self.model, arch, **other)

    def ref_key(self, *, model: str = "", **other: Any) -> dict[str, Any]:
        """The same for the ref target."""
        return ref_key(model or self.model, **other)
