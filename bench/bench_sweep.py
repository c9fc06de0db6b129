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

from filling import multiply, number_as_hex, publish, templates, upload_content
from sqlalchemy import text

from mxr.artifact.attributes import Attributes, Request
from mxr.artifact.key import Key
from mxr_registry.config.job_rules import JobRules
from mxr_registry.config.retention import RetentionRules
from mxr_registry.database import schema
from mxr_registry.database.session import Database
from mxr_registry.database.tables import ArtifactBlobRow, ArtifactRow, BlobRow
from mxr_registry.maintenance.sweep import Sweep, SweepReport
from mxr_registry.storage import open_store
from mxr_registry.storage.store import Store


def fill(db: Database, folder: Path, rows: int, expired: int) -> None:
    """Insert artifacts with one blob each; the first `expired` of them were last used long ago."""
    _, file = upload_content(db, folder)
    request = Request(Key("sha256:" + "0" * 64, "ref", "2.16", ()))
    name = number_as_hex(db, "n", 64)
    used = f"CASE WHEN n < {expired} THEN 1000.0 ELSE 4000000000.0 END"
    with db.writing() as session:
        publish(session, [request], Attributes(), file)
        with templates(session, BlobRow, ArtifactRow, ArtifactBlobRow):
            multiply(session, BlobRow, rows, sha256=name, created_at="0.0", touched_at="0.0")
            multiply(session, ArtifactRow, rows, seq="n + 1", id=name, digest=name, published_at="0.0", used_at=used)
            multiply(session, ArtifactBlobRow, rows, artifact="n + 1", sha256=name)
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--expired", type=int, default=10_000)
    parser.add_argument("--database")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mxr-bench-") as folder:
        db = Database(given.database or f"sqlite:///{folder}/registry.db")
        schema.upgrade(db)
        fill(db, Path(folder, "fill"), given.rows, given.expired)
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
