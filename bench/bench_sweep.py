"""Garbage collection with a million artifacts, ten thousand of which have expired.

    python bench/bench_sweep.py [--rows 1000000] [--expired 10000] [--database URL]

Runs on SQLite with fsync, or on the empty database of the URL. The first of two sweeps removes the artifacts; the
second, which stands for the sweep a day later, removes their blobs. `longest` is the longest transaction that removed
rows, which is how long other transactions may have waited. The last line is one JSON document.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from sqlalchemy import text

from mxr_registry.config.job_rules import JobRules
from mxr_registry.config.retention import RetentionRules
from mxr_registry.database import schema
from mxr_registry.database.session import Database
from mxr_registry.maintenance.sweep import Sweep, SweepReport
from mxr_registry.storage import open_store
from mxr_registry.storage.store import Store

SQLITE_HASH = "printf('%064x', {0})"
SERVER_HASH = "lpad(to_hex({0}), 64, '0')"


def fill(db: Database, rows: int, expired: int) -> None:
    """Insert artifacts with one blob each; the first `expired` of them were last used long ago."""
    name = (SQLITE_HASH if db.embedded else SERVER_HASH).format("n")
    series = (
        f"(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {rows}) SELECT n FROM s) AS numbers"
        if db.embedded
        else f"generate_series(1, {rows}) AS numbers(n)"
    )
    used = f"CASE WHEN n <= {expired} THEN 1000.0 ELSE 4000000000.0 END"
    with db.writing() as session:
        session.execute(
            text(
                "INSERT INTO blobs (namespace, sha256, size, created_at, touched_at) "
                f"SELECT 'default', {name}, 1000, 0.0, 0.0 FROM {series}"
            )
        )
        session.execute(
            text(
                "INSERT INTO artifacts (seq, namespace, id, digest, model, kind, migraphx, precision, sha256, size, "
                "key_json, qualities_json, provenance_json, stated_json, names_json, published_at, used_at, promoted, "
                f"manifest_json) SELECT n, 'default', {name}, {name}, 'sha256:0', 'ref', '2.16', 'fp32', {name}, 1000, "
                f"'{{}}', '{{}}', '{{}}', '[]', '[]', 0.0, {used}, 0, '{{}}' FROM {series}"
            )
        )
        session.execute(
            text(f"INSERT INTO artifact_blobs (artifact, sha256, namespace) SELECT n, {name}, 'default' FROM {series}")
        )
        if not db.embedded:
            session.execute(text("ANALYZE"))


def sweep(db: Database, store: Store, grace: float) -> tuple[float, SweepReport]:
    """The seconds of a sweep, and its report."""
    begun = time.perf_counter()
    retention = RetentionRules(unused_days=90)
    report = Sweep(db, store, retention, JobRules(), grace, lambda _: None, SweepReport(False)).run()
    return time.perf_counter() - begun, report


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--expired", type=int, default=10_000)
    parser.add_argument("--database")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        db = Database(given.database or f"sqlite:///{folder}/registry.db")
        schema.upgrade(db)
        fill(db, given.rows, given.expired)
        store = open_store(f"file://{Path(folder)}/store")
        first, removed = sweep(db, store, 86_400.0)
        second, dropped = sweep(db, store, 0.0)
        db.close()
    assert removed.artifacts == given.expired and dropped.blobs == given.expired, (removed, dropped)
    found: dict[str, Any] = {
        "artifacts_seconds": round(first, 1),
        "blobs_seconds": round(second, 1),
        "longest_seconds": round(max(removed.longest, dropped.longest), 3),
    }
    print(f"sweep of {given.rows} artifacts, {given.expired} expired: {first:.1f} s; of their blobs: {second:.1f} s")
    print(f"(limit 60 s each); longest transaction: {found['longest_seconds']} s (limit 1 s)")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
