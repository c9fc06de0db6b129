"""What this process counts, for `/metrics`: each process for itself since it started, so that sums are right.

`mxr_registry.metrics` adds what it reads of the database, under names that begin with `mxr_fleet_`.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, disable_created_metrics

# Otherwise each counter has a second metric: the time at which it began.
disable_created_metrics()  # type: ignore[no-untyped-call]

REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)

REQUESTS = Counter("mxr_http_requests", "Requests by route and status.", ["route", "status"], registry=REGISTRY)
REQUEST_SECONDS = Histogram(
    "mxr_http_request_seconds",
    "Duration of requests until the last byte of the reply. Long polls wait as long as they were asked to.",
    ["route"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300),
    registry=REGISTRY,
)
RECEIVED = Counter("mxr_http_received_bytes", "Bytes of request bodies.", ["route"], registry=REGISTRY)
SENT = Counter(
    "mxr_http_sent_bytes", "Bytes of reply bodies. What clients get from S3 is not in it.", ["route"], registry=REGISTRY
)
REFUSED = Counter(
    "mxr_refused_requests",
    "Requests refused because a limit was reached: body_memory, reply_memory, places, client, database, jobs.",
    ["limit"],
    registry=REGISTRY,
)
HITS = Counter("mxr_resolve_hits", "Resolves that found an artifact.", registry=REGISTRY)
MISSES = Counter(
    "mxr_resolve_misses",
    "Resolves that found no artifact, by the first field in which the nearest artifact differs. An error is no miss.",
    ["reason"],
    registry=REGISTRY,
)
COMPILES = Counter(
    "mxr_compiles",
    "Compiles that ended, by outcome: done, failed, retried (queued again), lost (its worker was), quarantined (it "
    "ended several workers), cancelled.",
    ["arch", "outcome"],
    registry=REGISTRY,
)
COMPILE_SECONDS = Histogram(
    "mxr_compile_seconds",
    "Duration of the compiles that made a program.",
    ["arch"],
    buckets=(1, 5, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 43200),
    registry=REGISTRY,
)
LOST_BLOBS = Counter("mxr_lost_blobs", "Blobs that were found missing or damaged in the store.", registry=REGISTRY)
