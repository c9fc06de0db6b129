"""Resolve: hits per second, compared with an empty endpoint; latency with 200 and with 200,000 artifacts; the time of
a partial request with 50 candidates, compared with a resolve.

    python bench/bench_resolve.py [--seconds 4] [--many 200000] [--samples 3000]

The load comes from `wrk` if it is installed, because it uses little of the cores that it shares with the server, or
else from threads of this process; the output says which. The last line is one JSON document.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from filling import multiply, number_as_hex, publish, templates, upload_content
from registry_process import authorization, registry, token_for
from sqlalchemy import text

from mxr.artifact.attributes import Attributes, Constraints, Request
from mxr.artifact.key import Key
from mxr.artifact.partial import PartialRequest
from mxr.util.codec import canonical
from mxr_registry.database import schema
from mxr_registry.database.session import Database
from mxr_registry.database.tables import ArtifactBlobRow, ArtifactInputRow, ArtifactRow

CONNECTIONS = 16
EACH = 50
"""One of this many artifacts is requested."""
ATTRIBUTES = Attributes(sramecc="+", xnack="-", num_cu=304, rocm_patch="7.2.1")
JSON = {"content-type": "application/json"}

EMPTY = """
import socket, sys, uvicorn
from fastapi import FastAPI
app = FastAPI()

@app.get("/empty")
def empty():
    return {}

listener = socket.socket(fileno=int(sys.argv[1]))
uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[listener])
"""


def request(number: int) -> Request:
    """The request for one of many artifacts, each of its own model."""
    key = Key(
        model=f"sha256:{number:064x}",
        kind="gpu",
        arch="gfx942",
        rocm="7.2",
        migraphx="2.15",
        inputs=(("x", (1 + number % 64, 3, 224, 224)),),
        precision=("fp16",),
    )
    return Request(key, Constraints(sramecc="+", xnack="-", num_cu=304, rocm_patch="7.2.1"))


def open_requests() -> list[Request]:
    """Requests for 50 programs of one model, which one partial request can mean: ten versions, five batches."""
    model = f"sha256:{'f' * 64}"
    keys = (
        replace(request(0).key, model=model, migraphx=f"2.{minor}", inputs=(("x", (1 << size, 3, 224, 224)),))
        for minor in range(10)
        for size in range(5)
    )
    return [Request(key, request(0).constraints) for key in keys]


def fill(db: Database, folder: Path, count: int, copies: int) -> None:
    """Publish the artifacts of `count` requests; `copies - 1` artifacts that nobody requests follow each of them.

    The others lie between the requested ones in the table and its indexes.
    """
    _, file = upload_content(db, folder)
    rest = {
        name: f"CASE WHEN n = 0 THEN {name} ELSE substr({name}, 1, 56) || {number_as_hex(db, 'n', 8)} END"
        for name in ("id", "digest")
    }
    with db.writing() as session:
        publish(session, map(request, range(count)), ATTRIBUTES, file)
        if copies > 1:
            with templates(session, ArtifactRow, ArtifactInputRow, ArtifactBlobRow):
                multiply(session, ArtifactRow, copies, seq=f"(seq - 1) * {copies} + n + 1", **rest)
                for table in (ArtifactInputRow, ArtifactBlobRow):
                    multiply(session, table, copies, artifact=f"(artifact - 1) * {copies} + n + 1")
            if not db.embedded:
                numbers = "pg_get_serial_sequence('artifacts', 'seq')"
                session.execute(text(f"SELECT setval({numbers}, (SELECT max(seq) FROM artifacts))"))
        publish(session, open_requests(), ATTRIBUTES, file)


@contextmanager
def empty_endpoint() -> Iterator[str]:
    """A uvicorn server with one empty `def` endpoint."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(2048)
        listener.set_inheritable(True)
        command = [sys.executable, "-c", EMPTY, str(listener.fileno())]
        server = subprocess.Popen(command, pass_fds=[listener.fileno()])
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.terminate()
            server.wait()


def throughput(url: str, method: str, bodies: list[bytes], seconds: float) -> float:
    """Requests per second over 16 connections, each of which cycles through the bodies."""
    if shutil.which("wrk"):
        return _by_wrk(url, method, bodies, seconds)
    counts = [0] * CONNECTIONS
    until = time.perf_counter() + seconds
    threads = [
        threading.Thread(target=_client, args=(url, method, bodies, until, counts, n)) for n in range(CONNECTIONS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / seconds


def _client(url: str, method: str, bodies: list[bytes], until: float, counts: list[int], index: int) -> None:
    host, path = re.fullmatch(r"http://([^/]+)(/.*)", url).groups()  # type: ignore[union-attr]
    connection, headers = http.client.HTTPConnection(host), JSON | authorization(url)
    while time.perf_counter() < until:
        connection.request(method, path, bodies[counts[index] % len(bodies)] if bodies else None, headers=headers)
        assert connection.getresponse().read()
        counts[index] += 1


def _by_wrk(url: str, method: str, bodies: list[bytes], seconds: float) -> float:
    texts = ",".join("[==[" + body.decode() + "]==]" for body in bodies) or "nil"
    script = (
        f"wrk.method = {method!r}\nwrk.headers['Content-Type'] = 'application/json'\n"
        f"wrk.headers['Authorization'] = 'Bearer {token_for(url)}'\n"
        f"local bodies = {{{texts}}}\nlocal n = 0\n"
        "request = function() n = n + 1; return wrk.format(nil, nil, nil, bodies[n % #bodies + 1]) end\n"
        "done = function(s, l, r) io.write('bad ' .. s.errors.status .. '\\n') end\n"
    )
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
        file.write(script)
        file.flush()
        command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "-s", file.name, url]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    if "bad 0" not in text:
        raise SystemExit(f"requests failed:\n{text}")
    return float(re.search(r"Requests/sec:\s+([0-9.]+)", text)[1])  # type: ignore[index]


def p95(url: str, count: int, samples: int) -> float:
    """The 95th percentile in seconds of sequential resolves of random artifacts by one client."""
    host = url.removeprefix("http://")
    connection = http.client.HTTPConnection(host)
    random = Random(1)
    took = []
    for _ in range(samples):
        body = canonical(request(random.randrange(count)).to_json()).encode()
        begun = time.perf_counter()
        connection.request("POST", "/v1/resolve", body, headers=JSON | authorization(url))
        reply = connection.getresponse()
        reply.read()
        took.append(time.perf_counter() - begun)
        assert reply.status == 200
    return statistics.quantiles(took[samples // 10 :], n=20)[-1]


def open_ratio(url: str, samples: int) -> float:
    """The median time of a partial request with 50 candidates, as a multiple of that of a resolve of one of them."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"))
    exact = open_requests()
    shape = (None, 3, 224, 224)
    known: dict[str, Any] = {
        "kind": "gpu",
        "vendor": "amd",
        "arch": "gfx942",
        "precision": ("fp16",),
        "constraints": exact[0].constraints,
    }
    known["constraints"] = replace(exact[0].constraints, rocm_patch=None)
    partial = canonical(PartialRequest(exact[0].key.model, (("x", shape),), **known).to_json()).encode()
    took: dict[str, list[float]] = {"/v1/resolve": [], "/v1/candidates": []}
    for number in range(samples):
        whole = canonical(exact[number % len(exact)].to_json()).encode()
        for path, body in (("/v1/resolve", whole), ("/v1/candidates", partial)):
            begun = time.perf_counter()
            connection.request("POST", path, body, headers=JSON | authorization(url))
            reply = connection.getresponse()
            data = reply.read()
            took[path].append(time.perf_counter() - begun)
            assert reply.status == 200, data
        assert len(json.loads(data)["candidates"]) == 50
    resolved, opened = (statistics.median(each[samples // 10 :]) for each in took.values())
    return opened / resolved


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--many", type=int, default=200_000)
    parser.add_argument("--samples", type=int, default=3_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mxr-bench-") as name:
        few, many = Path(name, "few"), Path(name, "many")
        for data, count, copies in ((few, 200, 1), (many, options.many // EACH, EACH)):
            data.mkdir()
            db = Database(f"sqlite:///{data / 'registry.db'}")
            schema.upgrade(db)
            fill(db, data, count, copies)
            db.close()
        bodies = [canonical(request(n).to_json()).encode() for n in range(200)]
        with empty_endpoint() as empty, registry(few) as small, registry(many) as large:
            pairs = []
            for _ in range(options.rounds):
                ours = throughput(f"{small}/v1/resolve", "POST", bodies, options.seconds)
                pairs.append((ours, throughput(f"{empty}/empty", "GET", [b""], options.seconds)))
            ratio = statistics.median(a / b for a, b in pairs)
            ours, bare = (statistics.median(side) for side in zip(*pairs, strict=True))
            slow = [
                (p95(large, options.many // EACH, options.samples), p95(small, 200, options.samples))
                for _ in range(options.rounds)
            ]
            opened = statistics.median(open_ratio(large, options.samples // 10) for _ in range(options.rounds))
            growth = statistics.median(a / b for a, b in slow)
            with_many, with_few = (statistics.median(side) for side in zip(*slow, strict=True))
    by = "wrk" if shutil.which("wrk") else "Python threads"
    print(
        f"resolve hits: {ours:.0f}/s; empty endpoint: {bare:.0f}/s; ratio {ratio:.2f} (limit: at least 0.5); load: {by}"
    )
    print(
        f"95th percentile with {options.many} artifacts: {with_many * 1000:.2f} ms; "
        f"with 200: {with_few * 1000:.2f} ms; ratio {growth:.2f} (limit 1.5)"
    )
    print(f"a partial request with 50 candidates takes {opened:.1f} times as long as a resolve (limit 5)")
    print(
        json.dumps(
            {
                "open": opened,
                "hits": ours,
                "empty": bare,
                "ratio": ratio,
                "p95_many": with_many,
                "p95_few": with_few,
                "growth": growth,
            }
        )
    )


if __name__ == "__main__":
    main()
