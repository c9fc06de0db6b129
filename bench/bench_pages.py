"""The pages on PostgreSQL: each with a thousand and with a million artifacts. The limit is three times the time.

    python bench/bench_pages.py [--many 1000000] [--samples 30]

Both registries have the same misses; the artifacts are those of `bench_postgresql`, and belong to models with names.
The last line is one JSON document.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
from bench_postgresql import filled
from bench_resolve import EACH, JSON, request
from registry_process import authorization, registry
from servers.postgresql import PostgreSQL

from mxr.util.codec import canonical

LIMIT = 3.0
MISSES = 40
VIEWS = ("/", "/?name=m", "/matrix", "/matrix?name=m", "/jobs", "/fleet", "/artifacts/ID", "/explain?miss=ID")


def prepared(url: str) -> dict[str, str]:
    """Miss some requests; the address of each view, with ids that there are."""
    connection, header = http.client.HTTPConnection(url.removeprefix("http://")), JSON | authorization(url)

    def call(method: str, path: str, body: bytes | None = None) -> Any:
        connection.request(method, path, body, headers=header)
        found: Any = json.loads(connection.getresponse().read())
        return found

    for number in range(MISSES):
        asked = request(number)
        missed = replace(
            asked, key=replace(asked.key, precision=("int8",), env=(("MIGRAPHX_MLIR_TUNE_LIMIT", str(number)),))
        )
        call("POST", "/v1/resolve", canonical(missed.to_json()).encode())
    (artifact,) = call("GET", "/v1/artifacts?limit=1")["items"]
    (miss,) = call("GET", "/v1/misses?limit=1")["items"]
    ids = {"/artifacts/ID": artifact["id"], "/explain?miss=ID": miss["id"]}
    return {view: view.replace("ID", ids.get(view, "")) for view in VIEWS}


def median(url: str, path: str, samples: int) -> tuple[float, int]:
    """The median time of a page in seconds, and its size in bytes."""
    connection, took, size = http.client.HTTPConnection(url.removeprefix("http://")), [], 0
    for _ in range(samples + 3):
        begun = time.perf_counter()
        connection.request("GET", path, headers=authorization(url))
        reply = connection.getresponse()
        size = len(reply.read())
        took.append(time.perf_counter() - begun)
        assert reply.status == 200, (path, reply.status)
    return statistics.median(took[3:]), size


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--many", type=int, default=1_000_000)
    parser.add_argument("--samples", type=int, default=30)
    options = parser.parse_args()
    server, found = PostgreSQL(shared_buffers="512MB", max_wal_size="4GB"), {}
    try:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mxr-bench-")))
            urls = []
            for name, count, copies in (("few", 1_000, 1), ("many", options.many // EACH, EACH)):
                database = stack.enter_context(filled(server, folder / f"fill-{name}", count, copies))
                with psycopg.connect(database, autocommit=True) as session:
                    session.execute("UPDATE artifacts SET model_name = 'm' || substr(model, 8, 6) || '.onnx'")
                    session.execute("VACUUM ANALYZE artifacts")
                store = f"file://{folder}/fill-{name}/store"
                environ = {"MXR_DATABASE_URL": database, "MXR_STORE_URL": store}
                urls.append(stack.enter_context(registry(folder / name, environ)))
            paths = [prepared(url) for url in urls]
            for view in VIEWS:
                few, many = (median(url, each[view], options.samples) for url, each in zip(urls, paths, strict=True))
                found[view] = {"few": few[0], "many": many[0], "growth": many[0] / few[0], "bytes": many[1]}
                print(
                    f"{view}: {few[0] * 1000:.1f} ms with 1000 artifacts, {many[0] * 1000:.1f} ms with {options.many}; "
                    f"ratio {many[0] / few[0]:.2f} (limit {LIMIT:g}); {many[1] / 1024:.0f} KiB"
                )
    finally:
        server.remove()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
