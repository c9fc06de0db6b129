"""A registry under all known attacks of one client at once: its memory, and the time of a resolve meanwhile.

The attacks begin with some hundred requests in one moment; the first resolve comes right after them.

    python bench/bench_attacks.py [--seconds 20] [--downloads 400] [--watches 60] [--jobs 801]

The attackers are threads of one process, which shares the machine's cores with the registry. The figure for the memory
of the process is that of docs/security.md. The last line is one JSON document.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import re
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from filling import CALLER, register_model, upload_content
from registry_process import UNKNOWN, RegistryProcess, publish_example, registry_process
from sqlalchemy import text

from mxr.artifact.key import Key
from mxr.artifact.limits import MAX_CANDIDATES
from mxr.artifact.manifest import Blob, File, Manifest
from mxr.artifact.model_files import ModelFiles
from mxr.onnxfile.writing import field
from mxr.protocol import jobs as job_protocol
from mxr_registry.config.job_rules import JobRules
from mxr_registry.database.session import Database
from mxr_registry.database.tables import ArtifactRow
from mxr_registry.jobs import submission

MAX_MIB = 1_608
"""MiB of the process with its default settings: the sum in docs/security.md."""

RESOLVE_SECONDS = 1.0
MIB = 1 << 20
JSON = {"content-type": "application/json"}


class Attackers:
    """Threads that send requests until they are told to stop, and connections that take no reply."""

    def __init__(self, server: RegistryProcess) -> None:
        self.server = server
        scopes = ["fetch", "ask", "publish", "work"]
        self.token = f"Bearer {server.call('POST', '/v1/tokens', {'name': 'eve', 'scopes': scopes})[1]['secret']}"
        self.sent: dict[str, int] = {}
        self._stop = threading.Event()
        self.together = threading.Barrier(16)
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []

    def repeat(self, name: str, count: int, act: Callable[[], object]) -> None:
        """Do something again and again, in so many threads."""
        self.sent[name] = 0

        def work() -> None:
            while not self._stop.is_set():
                with contextlib.suppress(Exception):
                    act()
                self.sent[name] += 1

        for _ in range(count):
            self._threads.append(threading.Thread(target=work, daemon=True))
            self._threads[-1].start()

    def hold(self, head: str, body: bytes = b"") -> None:
        """Send a request, and take no reply."""
        self.hold_bytes(self.head_of(head, len(body)) + body)

    def head_of(self, line: str, length: int) -> bytes:
        """The header of a request with a token."""
        fields = ("host: localhost", f"authorization: {self.token}", f"content-length: {length}")
        return "\r\n".join((f"{line} HTTP/1.1", *fields, "content-type: application/json", "", "")).encode()

    def drip(self, address: str, count: int) -> None:
        """Begin uploads from an address of this host that send 1 KB a second each."""
        clients = [socket.socket() for _ in range(count)]
        self._sockets += clients
        head = self.head_of(f"PUT /v1/blobs/{'0' * 64}", 5 << 30).replace(
            b"application/json", b"application/octet-stream"
        )
        for client in clients:
            client.bind((address, 0))
            client.connect(("127.0.0.1", self.server.port))
            client.sendall(head)

        def send() -> None:
            for client in clients:
                client.sendall(b"x" * 1000)
            time.sleep(1)

        self.repeat(f"slow uploads from {address}", 1, send)

    def hold_bytes(self, data: bytes) -> None:
        """Send bytes, and take no reply."""
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(30)
        with contextlib.suppress(OSError):
            client.connect(("127.0.0.1", self.server.port))
            client.sendall(data)
            self._sockets.append(client)

    def send_train(self) -> None:
        """Send 14,000 requests at once, without a token, and leave."""
        with socket.create_connection(("127.0.0.1", self.server.port), 30) as client:
            client.sendall(b"GET / HTTP/1.1\r\n\r\n" * 14_000)
            client.recv(1)

    def post(self, path: str, body: bytes) -> int:
        """Send a JSON body; the status of the reply."""
        return int(self.server.request("POST", path, body, JSON | {"authorization": self.token}).status)

    def close(self) -> None:
        """Stop."""
        self._stop.set()
        self.together.abort()
        self.server.http.clear()
        for client in self._sockets:
            client.close()
        for thread in self._threads:
            thread.join(0.2)


def submit_jobs(data: Path, folder: Path, count: int) -> list[str]:
    """Queue jobs directly; their ids."""
    db = Database(f"sqlite:///{data / 'registry.db'}")
    store, file = upload_content(db, folder)
    model, ids = register_model(db, file), []
    for number in range(count):
        key = Key(model, "ref", "2.16", (("x", (1 + number, 3)),))
        job = submission.submit(db, store, JobRules(), CALLER, job_protocol.CompileRequest(key))
        ids.append(str(job["id"]))
    db.close()
    return ids


def attack(server: RegistryProcess, ids: list[str], downloads: int, watches: int) -> Attackers:
    """Begin all attacks."""
    attackers, numbers = Attackers(server), itertools.count()
    blob = os.urandom(64 * MIB)
    name = sha256(blob).hexdigest()
    server.call("PUT", f"/v1/blobs/{name}", blob)
    wide = b"[" + b"{}," * 2_796_000 + b"{}]"
    hostile = field(7, field(1, b"") * 2_500_000)
    registration = json.dumps(registration_of(server, hostile)).encode()
    for number in range(150):
        key = {"model": UNKNOWN, "kind": "ref", "migraphx": "2.16", "inputs": {f"{number}" + "x" * 26_000: [1]}}
        server.call("POST", "/v1/resolve", {"key": key})
    for number in range(120):
        targets = [{"arch": "gfx908", "num_cu": 1 + 64 * number + each} for each in range(64)]
        can = {"targets": targets, "toolchain": {"rocm": "7.2.1", "migraphx": "2.15.0"}}
        server.call("POST", "/v1/workers", {"name": f"w{number}", "can": can, "credential": secrets.token_urlsafe(32)})
    gpu = {"model": UNKNOWN, "kind": "gpu", "arch": "gfx908", "migraphx": "2.15", "rocm": "7.2", "inputs": {}}
    survey = json.dumps(
        {"requests": [{"key": gpu, "constraints": {"num_cu": 20_000 + n}} for n in range(1_000)]}
    ).encode()

    for _ in range(downloads):
        attackers.hold(f"GET /v1/blobs/{name}")
    for _ in range(downloads // 4):
        attackers.hold("GET /v1/misses")
        attackers.hold("GET /v1/workers")
    # What needs no token: headers without end, the page, requests behind it.
    many = b"".join(b"x%03d: %s\r\n" % (number, b"y" * 300) for number in range(97))
    for _ in range(downloads):
        attackers.hold_bytes(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n" + many)
        attackers.hold_bytes(b"GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nhost: localhost\r\n\r\n" * 9)
    watch = json.dumps({"jobs": dict.fromkeys(ids, 10**9), "wait": 60}).encode()
    for _ in range(watches):
        attackers.hold("POST /v1/jobs/watch", watch)

    def wide_body() -> None:
        """16 at once, again and again with a pause: what a network of 1 Gbit/s brings."""
        attackers.together.wait(60)
        attackers.post("/v1/survey", wide)
        time.sleep(1)

    attackers.repeat("wide bodies", 16, wide_body)
    attackers.repeat("ranges", 1, lambda: server.get_range(name))  # type: ignore[attr-defined]
    attackers.repeat("surveys", 1, lambda: attackers.post("/v1/survey", survey))
    attackers.repeat("trains", 2, attackers.send_train)
    attackers.repeat("queries", 1, lambda: server.request("GET", "/healthz?" + "a&" * 12_000))
    attackers.repeat("models", 4, lambda: attackers.post("/v1/models", registration))

    def change() -> None:
        time.sleep(1)
        body = {"key": {"model": UNKNOWN}}
        server.call("POST", f"/v1/jobs/{ids[next(numbers) % len(ids)]}/cancel", body)

    attackers.repeat("changes", 1, change)
    return attackers


def attack_with_tokens(attackers: Attackers, count: int) -> None:
    """Begin the attacks of one who may ask, fetch and publish: unread logs, many jobs of one key, slow uploads."""
    server = attackers.server
    gpu = {"model": ids_model(server), "kind": "gpu", "arch": "gfx908", "migraphx": "2.15", "rocm": "7.2", "inputs": {}}
    job = long_log(server)
    for _ in range(count):
        attackers.hold(f"GET /v1/jobs/{job}/events")
        attackers.hold(f"GET /v1/jobs/{job}/log")
    alike = [{"key": gpu, "constraints": {"num_cu": 20_000 + n}} for n in range(1_000)]
    quadratic = json.dumps({"requests": alike}).encode()
    for request in alike[:60]:
        attackers.post("/v1/jobs", json.dumps(request).encode())
    attackers.drip("127.0.0.2", 48)
    attackers.drip("127.0.0.3", 16)
    attackers.repeat("surveys of one key", 16, lambda: attackers.post("/v1/survey", quadratic))


def ids_model(server: RegistryProcess) -> str:
    """The identity of the model for which `submit_jobs` queued."""
    return str(server.call("GET", "/v1/jobs?limit=1")[1]["items"][0]["request"]["key"]["model"])


def long_log(server: RegistryProcess) -> str:
    """The id of a running job with a log of 1.25 MiB, which JSON writes as 7.5 MiB."""
    can = {"targets": [{"arch": "ref", "kind": "ref"}], "toolchain": {"migraphx": "2.16.0"}}
    credential, secret = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
    server.call("POST", "/v1/workers", {"name": "log", "can": can, "credential": credential})
    lease = server.call("POST", "/v1/jobs/claim", {"credential": credential, "lease": secret})[1]["lease"]
    for _ in range(5):
        body = {"lease": secret, "log": "\x01" * (256 << 10)}
        server.call("POST", f"/v1/jobs/{lease['job']}/heartbeat", body)
    return str(lease["job"])


def crowd_key(data: Path, count: int) -> None:
    """Add artifacts to the key of the example, each with a manifest of 1.8 MB."""
    db = Database(f"sqlite:///{data / 'registry.db'}")
    names = [
        column.name for column in ArtifactRow.__table__.columns if column.name not in ("seq", "id", "manifest_json")
    ]
    copied, blobs = ", ".join(names), f'{{"sha256":"{"a" * 64}","size":65536}},' * 20_000
    with db.writing() as session:
        session.execute(
            text(
                f"INSERT INTO artifacts ({copied}, id, manifest_json) "
                "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :count) "
                f"SELECT {copied}, printf('%064x', n), :manifest FROM artifacts, numbers"
            ),
            {"count": count, "manifest": f'{{"v":1,"files":[{{"blobs":[{blobs[:-1]}]}}]}}'},
        )
    db.close()


def seconds_of_upload(server: RegistryProcess) -> float:
    """The time of an upload of some bytes by somebody else."""
    data, begun = os.urandom(23), time.perf_counter()
    status, said = server.call("PUT", f"/v1/blobs/{sha256(data).hexdigest()}", data)
    assert status == 201, said
    return time.perf_counter() - begun


def registration_of(server: RegistryProcess, onnx: bytes) -> dict[str, Any]:
    """Upload a model; what registers it."""
    name = sha256(onnx).hexdigest()
    server.call("PUT", f"/v1/blobs/{name}", onnx)
    manifest = Manifest((File("model.onnx", len(onnx), name, (Blob(name, len(onnx)),)),))
    identity = ModelFiles.of(manifest, "model.onnx").model
    stated = {"model": identity, "name": "m.onnx", "inputs": [], "onnx": "model.onnx"}
    return stated | {"manifest": manifest.to_json()}


RESOLVER = """
import http.client, json, sys, time
body = sys.argv[3]
end, taken = time.perf_counter() + float(sys.argv[2]), []
while time.perf_counter() < end:
    begun = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=60)
    connection.request("POST", "/v1/resolve", body, {"content-type": "application/json", "authorization": sys.argv[4]})
    reply = connection.getresponse()
    reply.read()
    assert reply.status == 200, reply.status
    taken.append(time.perf_counter() - begun)
    time.sleep(0.05)
print(json.dumps(taken))
"""


def memory(server: RegistryProcess, name: str) -> float:
    """MiB of memory of the process: `VmRSS` now, `VmHWM` at most so far."""
    text = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(rf"{name}:\s+([0-9]+) kB", text)[1]) / 1024  # type: ignore[index]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--downloads", type=int, default=400)
    parser.add_argument("--watches", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=801)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mxr-bench-") as name:
        folder = Path(name)
        with registry_process(folder / "data") as server:
            rest = memory(server, "VmRSS")
            body = publish_example(server)
            crowd_key(folder / "data", MAX_CANDIDATES - 1)
            ids = submit_jobs(folder / "data", folder / "fill", given.jobs)
            server.get_range = lambda blob: server.request(  # type: ignore[attr-defined]
                "GET", f"/v1/blobs/{blob}", None, {"range": "bytes=" + " " * 30_000 + "x"}, preload_content=False
            ).close()
            attackers = attack(server, ids, given.downloads, given.watches)
            attack_with_tokens(attackers, given.downloads // 4)
            try:
                words = [sys.executable, "-c", RESOLVER, str(server.port), str(given.seconds), body]
                words.append(server.http.headers["authorization"])
                with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as resolver:
                    uploads = [seconds_of_upload(server) for _ in range(3)]
                    output = resolver.communicate()[0]
                assert resolver.returncode == 0, output
            finally:
                attackers.close()
            taken, peak = json.loads(output), memory(server, "VmHWM")
            time.sleep(min(3.0, given.seconds))
            after = memory(server, "VmRSS")
            # An inspector that still reads a hostile model would delay an orderly end.
            server.kill9()
    found = {
        "rest_mib": round(rest),
        "peak_mib": round(peak),
        "after_mib": round(after),
        "resolves": len(taken),
        "resolve_median": round(statistics.median(taken), 3),
        "resolve_longest": round(max(taken), 3),
        "upload_longest": round(max(uploads), 3),
        "sent": attackers.sent,
    }
    print(f"memory: {rest:.0f} MiB at rest, {peak:.0f} MiB at most (limit {MAX_MIB}), {after:.0f} MiB afterwards")
    print(
        f"resolves under attack: median {found['resolve_median']} s, longest {found['resolve_longest']} s "
        f"(limit {RESOLVE_SECONDS}); an upload of somebody else {found['upload_longest']} s"
    )
    print(json.dumps(found))


if __name__ == "__main__":
    main()
