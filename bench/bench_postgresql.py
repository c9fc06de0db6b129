"""Resolve on PostgreSQL: latency with a thousand and a million artifacts; throughput of one and two registries.

    python bench/bench_postgresql.py [--seconds 5] [--many 1000000]

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
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
from bench_resolve import _row, p95, request, throughput
from registry_process import registry

from mxr.util.codec import canonical

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from servers.postgresql import PostgreSQL

EACH = 50
"""One of this many artifacts is requested; the others lie between the requested ones in the table and its indexes."""

CORES = 6
"""The cores that two registries, their database processes and the load need to run in parallel."""


@contextmanager
def filled(server: PostgreSQL, count: int, each: int) -> Iterator[str]:
    """The URL of a database with `count` artifacts; one in `each` of them is what `request` requests."""
    url = server.migrated()
    with psycopg.connect(url) as session:
        session.execute("CREATE TEMP TABLE asked (LIKE artifacts)")
        names = [row[0] for row in session.execute("SELECT * FROM asked").description or ()]
        with session.cursor().copy(f"COPY asked ({','.join(names)}) FROM STDIN") as copy:  # type: ignore[arg-type]
            for number in range(count // each):
                copy.write_row(_row(number, names))
        made = {
            "seq": "n",
            "id": f"CASE WHEN n % {each} = 0 THEN id ELSE md5('i' || n) || md5('j' || n) END",
            "digest": f"CASE WHEN n % {each} = 0 THEN digest ELSE md5('d' || n) || md5('e' || n) END",
        }
        session.execute(
            f"INSERT INTO artifacts ({','.join(names)}) SELECT {','.join(made.get(name, name) for name in names)} "  # type: ignore[arg-type]
            f"FROM generate_series(0, {count - 1}) n JOIN asked ON asked.seq = n / {each} + 1 ORDER BY n"
        )
        session.commit()
        session.autocommit = True
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
    options = parser.parse_args()
    server = PostgreSQL(shared_buffers="512MB", max_wal_size="4GB")
    try:
        found = measure(server, options.many, options.seconds)
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
    cores = os.cpu_count() or 1
    if cores < CORES:
        print(f"too few cores for this comparison: {cores} cores run the registries, the database and the load")
    print(json.dumps(found | {"cores": cores}))


def measure(server: PostgreSQL, many: int, seconds: float) -> dict[str, float]:
    """Measure all figures."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mxr-bench-")))
        few = stack.enter_context(filled(server, 1_000, 1))
        large = stack.enter_context(filled(server, many, EACH))
        urls = []
        for name, database in (("few", few), ("large", large), ("second", large)):
            environ = {"MXR_DATABASE_URL": database}
            urls.append(stack.enter_context(registry(folder / name, environ)))
        time.sleep(2)
        for url in urls:
            p95(url, 1_000, 500)
        slow = [(p95(urls[1], many // EACH), p95(urls[0], 1_000)) for _ in range(5)]
        bodies = [canonical(request(n).to_json()).encode() for n in range(200)]
        pairs = [(rates(urls[1:2], bodies, seconds), rates(urls[1:], bodies, seconds)) for _ in range(3)]
    return {
        "p95_many": statistics.median(a for a, _ in slow),
        "p95_few": statistics.median(b for _, b in slow),
        "growth": statistics.median(a / b for a, b in slow),
        "one": statistics.median(a for a, _ in pairs),
        "two": statistics.median(b for _, b in pairs),
        "gain": statistics.median(b / a for a, b in pairs),
    }


if __name__ == "__main__":
    main()
