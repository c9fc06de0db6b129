"""The cost of jobs for the registry: claims with many queued jobs, and resolves with many waiting clients.

    python bench/bench_jobs.py [--jobs 10000] [--kinds 20] [--claims 400] [--seconds 4] [--waiting 600]

Claims are measured on SQLite with fsync, in the service function, without HTTP. Resolves are measured over HTTP against
one registry process, with and without 500 clients that wait for jobs and 100 workers that wait for work; the ratio
compares both in one run. The last line is one JSON document.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from filling import CALLER, multiply, number_as_hex, register_model, templates, upload_content
from registry_process import RegistryProcess, authorization, publish_example, registry_process

from mxr.artifact.attributes import Constraints, Request
from mxr.artifact.key import Key
from mxr.host_facts import HostTarget, HostToolchain
from mxr.protocol import jobs as job_protocol
from mxr.util.codec import encode
from mxr_registry.config.job_rules import JobRules
from mxr_registry.database import schema
from mxr_registry.database.job_tables import JobRow
from mxr_registry.database.session import Database
from mxr_registry.jobs import leases, submission, workers

ARCHS = ("gfx906", "gfx908", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1101", "gfx1201", "gfx950", "gfx940")
EACH = 30
"""Jobs for each kind of worker that are submitted; the others are copies of them."""


def request_of(model: str, kind: int, number: int) -> Request:
    """The request of a job for one kind of worker. One in ten has a constraint that no such worker meets."""
    versions: dict[str, Any] = {"migraphx": f"2.{15 + kind // len(ARCHS)}", "rocm": "7.2"}
    key = Key(model, "gpu", inputs=(("x", (1 + number, 3)),), arch=ARCHS[kind % len(ARCHS)], **versions)
    return Request(key, Constraints(num_cu=304 if number % 10 == 0 else None))


def can_of(kind: int) -> job_protocol.WorkerCapabilities:
    """The capabilities of one kind of worker."""
    target = HostTarget(ARCHS[kind % len(ARCHS)], num_cu=120)
    return job_protocol.WorkerCapabilities((target,), HostToolchain("7.2.1", f"2.{15 + kind // len(ARCHS)}.0", "a1"))


def fill(db: Database, folder: Path, kinds: int, each: int, copies: int) -> None:
    """Register a model, submit `each` jobs for each kind of worker, and multiply them."""
    store, file = upload_content(db, folder)
    model, rules = register_model(db, file), JobRules()
    for number in range(each):
        for kind in range(kinds):
            asked = request_of(model, kind, number)
            wanted = job_protocol.CompileRequest(asked.key, asked.constraints, priority=number % 3)
            submission.submit(db, store, rules, CALLER, wanted)
    if copies == 1:
        return
    with db.writing() as session, templates(session, JobRow):
        suffix = number_as_hex(db, "n", 8)
        multiply(
            session,
            JobRow,
            copies,
            seq=f"(seq - 1) * {copies} + n + 1",
            id=f"substr(id, 1, 24) || {suffix}",
            digest=f"substr(digest, 1, 56) || {suffix}",
        )


def claims(folder: Path, jobs: int, kinds: int, count: int) -> dict[str, float]:
    """The milliseconds of claims that get a job, and of claims that find none."""
    db = Database(f"sqlite:///{folder}/claims.db")
    schema.upgrade(db)
    each = min(EACH, jobs // kinds)
    fill(db, folder / "fill", kinds, each, jobs // (kinds * each))
    rules, ids = JobRules(), []
    with db.writing() as session:
        for kind in range(kinds):
            ids.append(new_secret())
            registration = job_protocol.RegisterWorker(f"w{kind}", can_of(kind), ids[-1])
            workers.register_worker(session, rules, "default", "bench", registration)
        can = can_of(0).__class__((HostTarget("gfx900"),), HostToolchain("7.2.1", "2.15.0"))
        idle = new_secret()
        registration = job_protocol.RegisterWorker("idle", can, idle)
        workers.register_worker(session, rules, "default", "bench", registration)
    found = timed(count, lambda n: take(db, rules, ids[n % kinds], True))
    none = timed(count, lambda _: take(db, rules, idle, False))
    db.close()
    return {f"claim_{name}": value for name, value in found.items()} | {
        f"empty_claim_{name}": value for name, value in none.items()
    }


def new_secret() -> str:
    """A secret of a worker or a lease."""
    return secrets.token_urlsafe(32)


def take(db: Database, rules: JobRules, worker: str, wanted: bool) -> None:
    """Claim once, and check whether a job was found."""
    begun = leases.claim_filter(db, rules, "default", job_protocol.Claim(worker, new_secret()))
    assert (leases.claim(db, rules, begun) is not None) is wanted


def timed(count: int, act: Callable[[int], None]) -> dict[str, float]:
    """The median and the 95th percentile in milliseconds."""
    spent = []
    for number in range(count):
        begun = time.perf_counter()
        act(number)
        spent.append((time.perf_counter() - begun) * 1000)
    return {"p50_ms": round(statistics.median(spent), 2), "p95_ms": round(statistics.quantiles(spent, n=20)[-1], 2)}


def cpu_seconds(registry: RegistryProcess) -> float:
    """The processor seconds that it has used so far."""
    words = Path(f"/proc/{registry.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def settle(registry: RegistryProcess) -> None:
    """Wait until it is nearly idle."""
    for _ in range(60):
        before = cpu_seconds(registry)
        time.sleep(0.5)
        if cpu_seconds(registry) - before < 0.05:
            return


def call(registry: RegistryProcess, method: str, path: str, body: Any = None) -> Any:
    """Send a request and return the JSON of the reply."""
    status, reply = registry.call(method, path, body)
    assert status < 300, reply
    return reply


def crowd(folder: Path, seconds: float, waiting: int, rounds: int) -> dict[str, float]:
    """Resolves per second with and without clients that wait for jobs, a sixth of them workers that wait for work.

    `crowd_cpu` is the fraction of one processor that the registry uses for the waiting clients alone.
    """
    with registry_process(folder / "crowd") as registry:
        request = publish_example(registry).encode()
        db = Database(f"sqlite:///{folder}/crowd/registry.db")
        fill(db, folder / "fill-crowd", 20, 1, 1)
        db.close()
        ids = [job["id"] for job in call(registry, "GET", "/v1/jobs")["items"]]
        can = encode(job_protocol.WorkerCapabilities((HostTarget("gfx900"),), HostToolchain("7.2.1", "2.15.0")))
        staff = [new_secret() for _ in range(waiting // 6)]
        for n, credential in enumerate(staff):
            call(registry, "POST", "/v1/workers", {"name": f"w{n}", "can": can, "credential": credential})
        rows, resting = [], []
        for _ in range(rounds):
            settle(registry)
            idle = rate(registry, request, seconds)
            stop = gather(registry.url, ids, staff, waiting - len(staff))
            settle(registry)
            busy = rate(registry, request, seconds)
            spent, begun = cpu_seconds(registry), time.perf_counter()
            time.sleep(seconds)
            resting.append((cpu_seconds(registry) - spent) / (time.perf_counter() - begun))
            stop()
            rows.append((*idle, *busy))
            print(f"resolves per second: {idle[0]:.0f} without, {busy[0]:.0f} with waiting clients")
    idle, idle_cpu, busy, busy_cpu = (statistics.median(column) for column in zip(*rows, strict=True))
    ratio = statistics.median(row[2] / row[0] for row in rows)
    return {
        "resolves_idle": round(idle),
        "resolves_crowd": round(busy),
        "cpu_ms_idle": round(idle_cpu, 3),
        "cpu_ms_crowd": round(busy_cpu, 3),
        "ratio": round(ratio, 3),
        "crowd_cpu": round(statistics.median(resting), 3),
    }


def rate(registry: RegistryProcess, request: bytes, seconds: float) -> tuple[float, float]:
    """Resolves per second of four clients, and the registry's CPU milliseconds per resolve."""
    counts, spent = [0] * 4, cpu_seconds(registry)
    end = time.perf_counter() + seconds

    def ask(index: int) -> None:
        while time.perf_counter() < end:
            reply = registry.request("POST", "/v1/resolve", request, {"content-type": "application/json"})
            assert reply.status == 200, reply.data
            counts[index] += 1

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return sum(counts) / seconds, (cpu_seconds(registry) - spent) * 1000 / sum(counts)


def gather(url: str, ids: list[str], staff: list[str], clients: int) -> Callable[[], None]:
    """Start the waiting clients in one thread. Returns the function that stops them."""
    host, port = url.removeprefix("http://").split(":")
    loop = asyncio.new_event_loop()

    async def one(text: str) -> None:
        while True:
            reader, writer = await asyncio.open_connection(host, int(port))
            try:
                writer.write(text.encode())
                reply = await reader.read()
                assert reply.startswith(b"HTTP/1.1 20"), reply[:200]
            finally:
                writer.close()

    def asked(method: str, path: str, body: str = "") -> str:
        typed = "content-type: application/json\r\n" if body else ""
        token = f"authorization: {authorization(url)['authorization']}\r\n"
        head = f"{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{token}{typed}"
        return f"{head}content-length: {len(body)}\r\n\r\n{body}"

    texts = [asked("GET", f"/v1/jobs/{ids[n % len(ids)]}?wait=30") for n in range(clients)]
    bodies = [{"credential": each, "lease": new_secret(), "wait": 30} for each in staff]
    texts += [asked("POST", "/v1/jobs/claim", json.dumps(body)) for body in bodies]
    tasks = [loop.create_task(one(text)) for text in texts]
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def stop() -> None:
        failed = [task.exception() for task in tasks if task.done()]
        assert not failed, failed[0]
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
    parser.add_argument("--waiting", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = claims(Path(folder), given.jobs, given.kinds, given.claims)
        found |= crowd(Path(folder), given.seconds, given.waiting, given.rounds)
    print(f"claim with {given.jobs} jobs of {given.kinds} kinds: 95th percentile {found['claim_p95_ms']} ms (limit 20)")
    print(f"resolves with waiting clients, relative to without: {found['ratio']} (limit: at least 0.8)")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
