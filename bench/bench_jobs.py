"""The cost of jobs for the registry: claims with many queued jobs, and resolves with many waiting clients.

    python bench/bench_jobs.py [--jobs 10000] [--kinds 20] [--claims 400] [--seconds 4]

Claims are measured on SQLite with fsync, in the service function, without HTTP. Resolves are measured over HTTP against
one registry process, with and without 500 clients that wait for jobs and 100 workers that wait for work; the ratio
compares both in one run. The last line is one JSON document.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import secrets
import signal
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

import urllib3
from sqlalchemy import insert

from mxr.artifact.key import Key
from mxr.artifact.qualities import Request
from mxr.host_facts import HostTarget, HostToolchain
from mxr.protocol import jobs as job_protocol
from mxr.util.codec import canonical, encode
from mxr_registry.config import lanes
from mxr_registry.config.job_rules import JobRules
from mxr_registry.database import schema
from mxr_registry.database.job_tables import JobRow
from mxr_registry.database.session import Database
from mxr_registry.database.tables import ModelRow
from mxr_registry.jobs import leases, workers

MODEL = "sha256:" + "ab" * 32
ARCHS = ("gfx906", "gfx908", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1101", "gfx1201", "gfx950", "gfx940")
FILE = {"name": "model.onnx", "size": 1, "sha256": "0" * 64, "blobs": [{"sha256": "0" * 64, "size": 1}]}


def key_of(kind: int, number: int) -> Key:
    """The key of a job for one kind of worker."""
    env = (("MIGRAPHX_NUMBER", str(number)),)
    versions = {"migraphx": f"2.{15 + kind // len(ARCHS)}", "rocm": "7.2"}
    return Key(MODEL, "gpu", inputs=(("x", (1, 3)),), arch=ARCHS[kind % len(ARCHS)], env=env, **versions)


def can_of(kind: int) -> job_protocol.WorkerCapabilities:
    """The capabilities of one kind of worker."""
    target = HostTarget(ARCHS[kind % len(ARCHS)], num_cu=120)
    return job_protocol.WorkerCapabilities((target,), HostToolchain("7.2.1", f"2.{15 + kind // len(ARCHS)}.0", "a1"))


def fill(db: Database, jobs: int, kinds: int) -> None:
    """Insert a model and queued jobs. One job in ten has a demand that its kind of worker does not meet."""
    with db.writing() as session:
        manifest = canonical({"v": 1, "files": [FILE]})
        row = {"namespace": "default", "model": MODEL, "name": "m", "inputs_json": "[]"}
        session.execute(
            insert(ModelRow).values(**row, complete=True, onnx="model.onnx", manifest_json=manifest, created_at=0.0)
        )
        session.execute(insert(JobRow), [job_row(number, number % kinds) for number in range(jobs)])


def job_row(number: int, kind: int) -> dict[str, Any]:
    """One job row, as the registry would insert it."""
    key = key_of(kind, number)
    request = Request(key)
    demands = canonical(request.to_json()["demands"] | ({"num_cu": 304} if number // 20 % 10 == 0 else {}))
    counts = dict.fromkeys(("attempts", "fence", "lost", "log_size"), 0)
    return counts | {
        "namespace": "default",
        "id": secrets.token_hex(16),
        "state": "queued",
        "digest": key.digest,
        "terms": sha256(demands.encode()).hexdigest(),
        "model": MODEL,
        "arch": key.arch,
        "lane": lanes.lane_of(key),
        "rank": -(number % 3),
        "key_json": key.canonical,
        "demands_json": demands,
        "version": number + 1,
        "touched": number + 1,
        "next_at": 0.0,
        "cancelling": False,
        "created_at": 0.0,
        "updated_at": 0.0,
    }


def claims(folder: Path, jobs: int, kinds: int, count: int) -> dict[str, float]:
    """The milliseconds of claims that get a job, and of claims that find none."""
    db = Database(f"sqlite:///{folder}/claims.db")
    schema.upgrade(db)
    fill(db, jobs, kinds)
    rules, ids = JobRules(), []
    with db.writing() as session:
        for kind in range(kinds):
            said = workers.register(session, rules, "default", job_protocol.RegisterWorker(f"w{kind}", can_of(kind)))
            ids.append(json.loads(said)["id"])
        idle = json.loads(
            workers.register(
                session,
                rules,
                "default",
                job_protocol.RegisterWorker(
                    "idle", can_of(0).__class__((HostTarget("gfx900"),), HostToolchain("7.2.1", "2.15.0"))
                ),
            )
        )["id"]
    found = timed(count, lambda n: take(db, rules, ids[n % kinds], True))
    none = timed(count, lambda _: take(db, rules, idle, False))
    db.close()
    return {f"claim_{name}": value for name, value in found.items()} | {
        f"empty_claim_{name}": value for name, value in none.items()
    }


def take(db: Database, rules: JobRules, worker: str, wanted: bool) -> None:
    """Claim once, and check whether a job was found."""
    begun = leases.begin(db, "default", job_protocol.Claim(worker))
    assert (leases.claim(db, rules, begun) is not None) is wanted


def timed(count: int, act: Callable[[int], None]) -> dict[str, float]:
    """The median and the 95th percentile in milliseconds."""
    spent = []
    for number in range(count):
        begun = time.perf_counter()
        act(number)
        spent.append((time.perf_counter() - begun) * 1000)
    return {"p50_ms": round(statistics.median(spent), 2), "p95_ms": round(statistics.quantiles(spent, n=20)[-1], 2)}


class Registry:
    """A registry process."""

    def __init__(self, data: Path) -> None:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("MXR_")}
        command = [sys.executable, "-m", "mxr_registry.main", "serve", "--port", "0", "--data", str(data)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ)
        assert self.process.stdout is not None
        self.url = re.search(r"http://\S+", self.process.stdout.readline())[0]  # type: ignore[index]
        self.http = urllib3.PoolManager(maxsize=16, retries=False, timeout=70)

    def cpu(self) -> float:
        """The processor seconds that it has used so far."""
        words = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def settle(self) -> None:
        """Wait until it is nearly idle."""
        for _ in range(60):
            before = self.cpu()
            time.sleep(0.5)
            if self.cpu() - before < 0.05:
                return

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request and return the reply's JSON."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        kind = "application/octet-stream" if isinstance(body, bytes) else "application/json"
        headers = {"content-type": kind} if data else None
        reply = self.http.request(method, self.url + path, body=data, headers=headers)
        assert reply.status < 300, reply.data
        return json.loads(reply.data)


def crowd(folder: Path, seconds: float) -> dict[str, float]:
    """Resolves per second with and without 500 clients that wait for jobs and 100 workers that wait for work.

    `crowd_cpu` is the fraction of one processor that the registry uses for the waiting clients alone.
    """
    example = Path(__file__).parent.parent / "examples" / "ref" / "convnet-b4-fp16.mxr"
    registry = Registry(folder / "crowd")
    try:
        data = example.read_bytes()
        name = sha256(data).hexdigest()
        registry.call("PUT", f"/v1/blobs/{name}", data)
        file = {"name": "a.mxr", "size": len(data), "sha256": name, "blobs": [{"sha256": name, "size": len(data)}]}
        key = {"model": MODEL, "kind": "ref", "migraphx": "2.16", "inputs": {"x": [4, 3, 32, 32]}, "precision": "fp16"}
        key |= {"offload_copy": True, "fast_math": True}
        registry.call("POST", "/v1/artifacts", {"key": key, "manifest": {"v": 1, "files": [file]}})
        db = Database(f"sqlite:///{folder}/crowd/registry.db")
        fill(db, 20, 20)
        db.close()
        ids = [job["id"] for job in registry.call("GET", "/v1/jobs")["jobs"]]
        can = encode(job_protocol.WorkerCapabilities((HostTarget("gfx900"),), HostToolchain("7.2.1", "2.15.0")))
        staff = [registry.call("POST", "/v1/workers", {"name": f"w{n}", "can": can})["id"] for n in range(100)]
        request = json.dumps({"key": key}).encode()
        rounds, resting = [], []
        for _ in range(3):
            registry.settle()
            idle = rate(registry, request, seconds)
            stop = gather(registry.url, ids, staff)
            registry.settle()
            busy = rate(registry, request, seconds)
            spent = registry.cpu()
            time.sleep(5.0)
            resting.append((registry.cpu() - spent) / 5.0)
            stop()
            rounds.append((*idle, *busy))
            print(f"resolves per second: {idle[0]:.0f} without, {busy[0]:.0f} with waiting clients")
    finally:
        registry.process.send_signal(signal.SIGKILL)
        registry.process.wait()
    idle, idle_cpu, busy, busy_cpu = (statistics.median(column) for column in zip(*rounds, strict=True))
    ratio = statistics.median(row[2] / row[0] for row in rounds)
    return {
        "resolves_idle": round(idle),
        "resolves_crowd": round(busy),
        "cpu_ms_idle": round(idle_cpu, 3),
        "cpu_ms_crowd": round(busy_cpu, 3),
        "ratio": round(ratio, 3),
        "crowd_cpu": round(statistics.median(resting), 3),
    }


def rate(registry: Registry, request: bytes, seconds: float) -> tuple[float, float]:
    """Resolves per second of four clients, and the registry's CPU milliseconds per resolve."""
    counts, spent = [0] * 4, registry.cpu()
    end = time.perf_counter() + seconds

    def ask(index: int) -> None:
        while time.perf_counter() < end:
            registry.call("POST", "/v1/resolve", request)
            counts[index] += 1

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return sum(counts) / seconds, (registry.cpu() - spent) * 1000 / sum(counts)


def gather(url: str, ids: list[str], staff: list[str]) -> Callable[[], None]:
    """Start the waiting clients in one thread. Returns the function that stops them."""
    host, port = url.removeprefix("http://").split(":")
    loop = asyncio.new_event_loop()

    async def one(text: str) -> None:
        while True:
            reader, writer = await asyncio.open_connection(host, int(port))
            try:
                writer.write(text.encode())
                await reader.read()
            finally:
                writer.close()

    def asked(method: str, path: str, body: str = "") -> str:
        head = f"{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
        return head + body

    texts = [asked("GET", f"/v1/jobs/{ids[n % len(ids)]}?wait=30") for n in range(500)]
    texts += [asked("POST", "/v1/jobs/claim", json.dumps({"worker": id, "wait": 30})) for id in staff]
    tasks = [loop.create_task(one(text)) for text in texts]
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def stop() -> None:
        for task in tasks:
            loop.call_soon_threadsafe(task.cancel)
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0.2), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    return stop


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--kinds", type=int, default=20)
    parser.add_argument("--claims", type=int, default=400)
    parser.add_argument("--seconds", type=float, default=4.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = claims(Path(folder), given.jobs, given.kinds, given.claims) | crowd(Path(folder), given.seconds)
    print(f"claim with {given.jobs} jobs of {given.kinds} kinds: 95th percentile {found['claim_p95_ms']} ms (limit 20)")
    print(f"resolves with waiting clients, relative to without: {found['ratio']} (limit: at least 0.8)")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
