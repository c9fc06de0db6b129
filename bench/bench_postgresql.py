"""Resolve on PostgreSQL: latency with a thousand and a million artifacts; throughput of one and two registries; the
time of a partial request with 50 candidates, compared with a resolve.

    python bench/bench_postgresql.py [--seconds 4] [--many 1000000] [--samples 3000]

The PostgreSQL server is that of the tests: Debian's, or the one of the wheel. Two registries are faster than one only
if the machine has cores for both, the database and the load; otherwise the output says so. The last line is one JSON
document.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
from bench_resolve import EACH, fill, open_ratio, p95, request, throughput
from registry_process import registry

from mxr.util.codec import canonical
from mxr_registry.config.connections import ConnectionSettings
from mxr_registry.database.session import Database

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from servers.postgresql import PostgreSQL

CORES = 6
"""The cores that two registries, their database processes and the load need to run in parallel."""


@contextmanager
def filled(server: PostgreSQL, folder: Path, count: int, copies: int) -> Iterator[str]:
    """The URL of a database with the artifacts of `count` requests, each followed by `copies - 1` others."""
    url = server.migrated()
    # One statement writes a million rows.
    db = Database(url, ConnectionSettings(statement=3600.0))
    fill(db, folder, count, copies)
    db.close()
    with psycopg.connect(url, autocommit=True) as session:
        session.execute("VACUUM ANALYZE artifacts")
    yield url
    server.drop(url)


def rates(urls: list[str], bodies: list[bytes], seconds: float) -> float:
    """Resolves per second of all registries together; with `wrk`, one load process for each."""
    with ThreadPoolExecutor(len(urls)) as pool:
        each = pool.map(lambda url: throughput(f"{url}/v1/resolve", "POST", bodies, seconds), urls)
        return sum(each)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--many", type=int, default=1_000_000)
    parser.add_argument("--samples", type=int, default=3_000)
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    server = PostgreSQL(shared_buffers="512MB", max_wal_size="4GB")
    try:
        found = measure(server, options.many, options.seconds, options.samples, options.rounds)
    finally:
        server.remove()
    print(
        f"95th percentile with {options.many} artifacts: {found['p95_many'] * 1000:.2f} ms; "
        f"with 1000: {found['p95_few'] * 1000:.2f} ms; ratio {found['growth']:.2f} (limit 1.5)"
    )
    print(
        f"resolves: one registry {found['one']:.0f}/s; two on the same database {found['two']:.0f}/s; "
        f"ratio {found['gain']:.2f} (limit: at least 1.6, given enough cores)"
    )
    print(f"a partial request with 50 candidates takes {found['open']:.1f} times as long as a resolve (limit 5)")
    cores = os.cpu_count() or 1
    if cores < CORES:
        print(f"too few cores for this comparison: {cores} cores run the registries, the database and the load")
    print(json.dumps(found | {"cores": cores}))


def measure(server: PostgreSQL, many: int, seconds: int, samples: int, rounds: int) -> dict[str, float]:
    """Measure all figures."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mxr-bench-")))
        few = stack.enter_context(filled(server, folder / "fill-few", 1_000, 1))
        large = stack.enter_context(filled(server, folder / "fill-many", many // EACH, EACH))
        urls = []
        for name, database, store in (("few", few, "few"), ("large", large, "many"), ("second", large, "many")):
            environ = {"MXR_DATABASE_URL": database, "MXR_STORE_URL": f"file://{folder}/fill-{store}/store"}
            urls.append(stack.enter_context(registry(folder / name, environ)))
        asked = min(200, many // EACH)
        for url in urls:
            p95(url, asked, samples // 6)
        slow = [(p95(urls[1], many // EACH, samples), p95(urls[0], 1_000, samples)) for _ in range(rounds)]
        opened = statistics.median(open_ratio(urls[1], max(20, samples // 10)) for _ in range(rounds))
        bodies = [canonical(request(n).to_json()).encode() for n in range(asked)]
        pairs = [(rates(urls[1:2], bodies, seconds), rates(urls[1:], bodies, seconds)) for _ in range(rounds)]
    return {
        "open": opened,
        "p95_many": statistics.median(a for a, _ in slow),
        "p95_few": statistics.median(b for _, b in slow),
        "growth": statistics.median(a / b for a, b in slow),
        "one": statistics.median(a for a, _ in pairs),
        "two": statistics.median(b for _, b in pairs),
        "gain": statistics.median(b / a for a, b in pairs),
    }


if __name__ == "__main__":
    main()
