"""A fleet that was made up: hosts that ask, workers that compile, and what fails, sent through the API of a registry.

The demonstration has it, so that there is something to see on each page; so have the pictures of the pages and their
tests. Models are the example with another name, programs are the spliced examples: see README.md here.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import urllib3

from mxr.artifact.model_files import ModelFiles, PiecedFile

EXAMPLES = Path(__file__).resolve().parent
FEATURED = {"sramecc": "+", "xnack": "-"}
GPUS: Mapping[str, Mapping[str, Any]] = {
    "gfx908": {"num_cu": 120, **FEATURED},
    "gfx90a": {"num_cu": 104, **FEATURED},
    "gfx942": {"num_cu": 304, "chiplets": 8, **FEATURED},
    "gfx1100": {"num_cu": 96},
}
PROGRAMS = {
    "gfx908": "convrelu-gfx908-sramecc+-xnack-",
    "gfx942": "convrelu-gfx942-sramecc+-xnack-",
    "gfx1100": "convrelu-gfx1100",
}
WORKERS = (("node-04/9f2c", "gfx942"), ("node-05/1be4", "gfx942"), ("node-09/41d7", "gfx908"))
COMPILED = (
    ("bert-base.onnx", "gfx942"),
    ("resnet50.onnx", "gfx942"),
    ("resnet50.onnx", "gfx908"),
    ("whisper-small-encoder.onnx", "gfx942"),
    ("yolov8n.onnx", "gfx942"),
    ("mobilenet-v3.onnx", "gfx908"),
    ("نموذج-كشف-الأجسام.onnx", "gfx908"),
)
LONG = f"detection-transformer-large-{'-'.join(f'block{at:02d}-attention-quantised' for at in range(1, 6))}-final.onnx"


@dataclass
class Fleet:
    """Requests to the registry at a URL, with a token of an administrator."""

    url: str
    token: str
    models: dict[str, str] = field(default_factory=dict)
    workers: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    http: urllib3.PoolManager = field(default_factory=urllib3.PoolManager)

    def send(self, method: str, path: str, body: Any = None, host: str = "", expect: Iterable[int] = ()) -> Any:
        """Send a request, from a host with this name, and return the JSON of the reply."""
        headers = {"authorization": f"Bearer {self.token}", **({"mxr-host": host} if host else {})}
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        if data is not None:
            headers["content-type"] = "application/octet-stream" if isinstance(body, bytes) else "application/json"
        reply = self.http.request(method, self.url + path, body=data, headers=headers)
        if reply.status >= 300 and reply.status not in expect:
            raise SystemExit(f"fleet: {method} {path}: {reply.status} {reply.data[:500]!r}")
        return json.loads(reply.data or b"null")

    def upload(self, data: bytes, name: str) -> dict[str, Any]:
        """Upload a file and return the manifest with it."""
        digest = hashlib.sha256(data).hexdigest()
        self.send("PUT", f"/v1/blobs/{digest}", data)
        blobs = [{"sha256": digest, "size": len(data)}]
        return {"v": 1, "files": [{"name": name, "size": len(data), "sha256": digest, "blobs": blobs}]}

    def model(self, name: str) -> str:
        """Register a model under a name, once, and return its identity."""
        if name not in self.models:
            # The name of its producer makes it another model: field 2 of ModelProto.
            maker = hashlib.sha256(name.encode()).hexdigest()[:16].encode()
            data = (EXAMPLES / "models" / "convrelu.onnx").read_bytes() + b"\x12\x10" + maker
            files = ModelFiles(PiecedFile(len(data), (hashlib.sha256(data).hexdigest(),)), ())
            stated = {"model": files.model, "name": name, "inputs": [], "onnx": "model.onnx"}
            self.send("POST", "/v1/models", {**stated, "manifest": self.upload(data, "model.onnx")})
            self.models[name] = files.model
        return self.models[name]

    def request(self, model: str, arch: str, **changes: Any) -> dict[str, Any]:
        """Return the request for a model, by name or identity. `changes`: of the key, and of the constraints."""
        identity = model if model.startswith("sha256:") else self.model(model)
        key = {"model": identity, "kind": "gpu", "vendor": "amd", "arch": arch, "migraphx": "2.15", "rocm": "7.2"}
        key |= {"inputs": {"x": [4, 3, 32, 32]}, "offload_copy": True, "fast_math": True}
        constraints = dict(GPUS.get(arch, {}))
        for name, value in changes.items():
            (constraints if name in ("num_cu", "sramecc", "xnack") else key)[name] = value
        return {"key": key, "constraints": constraints}

    def register(self, name: str, arch: str) -> None:
        """Register a worker with one GPU."""
        target = {"arch": arch, **GPUS[arch]}
        toolchain = {"rocm": "7.2.1", "migraphx": "2.15.0", "migraphx_build": "2.15.0-1f9c0de"}
        can = {"targets": [target], "toolchain": toolchain}
        self.workers[name] = secrets.token_urlsafe(32)
        self.send("POST", "/v1/workers", {"name": name, "can": can, "credential": self.workers[name]})

    def claim(self, model: str, arch: str, at: int = 0, **changes: Any) -> dict[str, Any]:
        """Request a compile, and have a worker, the number `at` of its arch, claim it; return the lease."""
        job = self.send("POST", "/v1/jobs", self.request(model, arch, **changes))
        worker = [name for name, can in WORKERS if can == arch][at]
        secret = self.secrets[job["id"]] = secrets.token_urlsafe(32)
        body = {"credential": self.workers[worker], "lease": secret, "job": job["id"]}
        lease: dict[str, Any] = self.send("POST", "/v1/jobs/claim", body)["lease"] | {"secret": secret}
        for phase, log in (
            ("download", ""),
            ("parse", f"parse {model}: 122 nodes\n"),
            ("compile", "tuning 96 kernels\n"),
        ):
            beat = {"lease": lease["secret"], "phase": phase, "log": log}
            self.send("POST", f"/v1/jobs/{lease['job']}/heartbeat", beat)
        return lease

    def compile(self, model: str, arch: str) -> None:
        """Have a worker compile a program: one of the spliced examples."""
        lease = self.claim(model, arch)
        manifest = self.upload((EXAMPLES / "spliced" / f"{PROGRAMS[arch]}.mxr").read_bytes(), "model.mxr")
        attributes = {**GPUS[arch], "rocm_patch": "7.2.1", "migraphx_patch": "2.15.0"}
        artifact = {"key": lease["key"], "manifest": manifest, "attributes": attributes}
        artifact["provenance"] = {"compile_seconds": 401.0}
        self.send("POST", f"/v1/jobs/{lease['job']}/finish", {"lease": lease["secret"], "artifact": artifact})

    def fail(self, model: str, arch: str, kind: str, message: str, name: str, workers: int = 1) -> None:
        """Have workers fail, one after the other: what one calls permanent, another that is live tries, too."""
        for at in range(workers):
            lease = self.claim(model, arch, at)
            failure = {"kind": kind, "message": message, "name": name}
            self.send("POST", f"/v1/jobs/{lease['job']}/fail", {"lease": lease["secret"], "failure": failure})

    def ask(self, request: Mapping[str, Any], *hosts: str, times: int = 1) -> None:
        """Resolve a request from each of these hosts, whether there is a program or not."""
        path = "/v1/resolve" if "key" in request else "/v1/candidates"
        for host in hosts:
            for _ in range(times):
                self.send("POST", path, dict(request), host, expect=(404,))

    def live(self) -> None:
        """Do what a fleet does in a day."""
        for name, arch in WORKERS:
            self.register(name, arch)
        for model, arch in COMPILED:
            self.compile(model, arch)
        for at in range(40):
            model, arch = COMPILED[at % len(COMPILED)]
            self.ask(self.request(model, arch), f"node-{at % 12:02d}", times=3)
        unsupported = "PARSE: operator not supported: GroupNorm (21)"
        self.fail("unet-sdxl.onnx", "gfx942", "permanent", unsupported, "no_operator", workers=2)
        self.fail("llama-3-8b-decoder.onnx", "gfx942", "transient", "out of memory", "oom")
        self.claim("resnet50.onnx", "gfx908", precision="fp16")
        for model in ("yolov8n.onnx", "mobilenet-v3.onnx"):
            self.send("POST", "/v1/jobs", self.request(model, "gfx1100"))
        self.send("POST", "/v1/jobs", self.request(LONG, "gfx942"))
        self.ask(self.request("unet-sdxl.onnx", "gfx942"), "node-12", "node-13")
        self.ask(self.request("نموذج-كشف-الأجسام.onnx", "gfx908", xnack="+"), "node-52")
        self.ask(self.request(LONG, "gfx942", precision="fp16"), "node-12")
        self.ask(self.request("resnet50.onnx", "gfx942", num_cu=228), "node-60")
        partial = {"model": self.model("mobilenet-v3.onnx"), "kind": "gpu", "vendor": "amd", "arch": "gfx1201"}
        self.ask({**partial, "inputs": {"x": [None, 3, 32, 32]}}, "node-71", "node-72")
        self.ask(self.request("sha256:" + "5b1e07c2a9d4" * 5 + "0000", "gfx942"), "node-40", "node-41")
        self.ask(self.request("yolov8n.onnx", "gfx1100"), "node-31", "node-32", "node-33", "node-34")
        self.ask(self.request("resnet50.onnx", "gfx908", precision="fp16"), *(f"node-{at:02d}" for at in range(9)))
        newer = self.request("bert-base.onnx", "gfx942", rocm="10.2", migraphx="2.19")
        self.ask(newer, *(f"node-{at}" for at in range(17, 40)), times=3)
