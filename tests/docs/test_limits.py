"""The pages state the limits that the code has."""

from __future__ import annotations

import re

from paths import ROOT

from mxr.artifact import limits, packed
from mxr.protocol.artifacts import FOLLOWS_HEADER, MAX_FOLLOWED
from mxr.util import codec
from mxr_registry.artifacts import candidates, catalog
from mxr_registry.artifacts.inspection import MAX_REFUSALS
from mxr_registry.artifacts.usage import MAX_COUNTED
from mxr_registry.config import lanes
from mxr_registry.config.limits import RequestLimits
from mxr_registry.database.paging import MAX_PAGE
from mxr_registry.decoding_cache import OBJECT_FACTOR
from mxr_registry.jobs.logs import HEAD, TAIL
from mxr_registry.jobs.transitions import MAX_EVENTS
from mxr_registry.routes.deps import LOG_PAGES
from mxr_registry.server.bodies import FREE_VALUES, LARGE, MAX_CACHED, SMALL, VALUE
from mxr_registry.server.connections import BODY_READ, MAX_FIELDS, MAX_HEADER, MAX_PIPELINED, MIN_RATE
from mxr_registry.server.fair_places import MAX_BUFFERED_BYTES, SLOTS
from mxr_registry.server.middleware import FREE as BODY_FREE
from mxr_registry.server.reply_memory import LISTS_AT_ONCE
from mxr_registry.server.request_guard import MAX_URL
from mxr_registry.server.threads import LEASES, RESOLVES, SHARED, SURVEYS
from mxr_registry.storage.object_streams import SPOOLED
from mxr_registry.storage.objects import MAX_HELD
from mxr_registry.storage.store import MAX_CHAINS, MAX_CHECKED

API = (ROOT / "docs" / "api.md").read_text()
OPERATE = (ROOT / "docs" / "operate.md").read_text()
SECURITY = (ROOT / "docs" / "security.md").read_text()

DEFAULTS = RequestLimits()
THREADS = SHARED + LEASES + SURVEYS + RESOLVES
STATED = {
    f"at most {MAX_URL >> 10} KiB each",
    f"at most {MAX_PIPELINED} | the connection ends |",
    f"at most {MAX_HEADER >> 10} KiB and {MAX_FIELDS} fields, complete within {DEFAULTS.header_seconds:g} seconds",
    f"no pause of {DEFAULTS.idle_seconds:g} seconds, and at least {MIN_RATE:g} bytes per second",
    f"{DEFAULTS.body >> 20} MiB; nested at most {codec.MAX_DEPTH} deep",
    f"| blob | {DEFAULTS.blob >> 30} GiB; ",
    f"{limits.MAX_INPUTS:,} inputs, with names of {limits.MAX_INPUT_TEXT:,} characters and "
    f"{limits.MAX_DIMS_IN_ALL:,} dims",
    f"{limits.MAX_DIMS} dims; {limits.MAX_OPTIMALS} optimal sizes",
    f"{limits.MAX_VARIABLES} variables with values of {limits.MAX_VALUE_LENGTH:,} characters",
    f"texts of {limits.MAX_WORD_LENGTH} characters",
    f"{limits.MAX_FILES:,} files, {limits.MAX_BLOBS:,} blobs, names of {limits.MAX_NAME_LENGTH:,} bytes; "
    f"{limits.FREE_BLOBS} blobs of a file, and one more for each {limits.BYTES_PER_BLOB >> 10} KiB of it",
    f"| provenance | {limits.MAX_PROVENANCE_BYTES:,} bytes of JSON, "
    f"nested at most {limits.MAX_PROVENANCE_DEPTH} deep |",
    f"{limits.MAX_MODEL_INPUTS:,} inputs, {limits.MAX_MODEL_TEXT:,} bytes of JSON",
    f"`POST /v1/blobs/missing` | {limits.MAX_ASKED:,} |",
    f"artifacts of one lock | {limits.MAX_PINNED:,} |",
    f"one report of uses | {limits.MAX_USES:,} |",
    f"requests in one survey | {limits.MAX_SURVEYED:,} |",
    f"jobs in one watch | {limits.MAX_WATCHED:,} |",
    f"{SMALL.size >> 10} KiB and {SMALL.values:,} values; of large documents {LARGE.values:,} values",
    f"one page of a list | {MAX_PAGE >> 20} MiB",
    f"of all workers together | {limits.MAX_ALL_CAPABILITIES:,} bytes of JSON",
    f"{limits.MAX_TARGETS} targets, {limits.MAX_CAPABILITIES_BYTES:,} bytes of JSON",
    f"{limits.MAX_LOG_BYTES:,} characters; of a job, the first {HEAD >> 10} KiB and the last {TAIL >> 20} MiB",
    f"a message of {limits.MAX_MESSAGE_LENGTH:,} characters",
    f"{limits.MAX_DESCRIPTION_BYTES:,} bytes of JSON; a program",
    f"the latest {limits.MAX_MISSES:,}; requests of {limits.MAX_MISS_BYTES:,} bytes",
    f"the latest {MAX_EVENTS} |",
    f"queued jobs | {limits.MAX_OPEN_JOBS:,} |",
    f"open jobs of one key, for one principal | {limits.MAX_OPEN_PER_KEY} |",
    f"registered workers | {limits.MAX_WORKERS:,} |",
    f"registered locks | {limits.MAX_LOCKS:,} |",
    f"registered locks of one principal | {limits.MAX_LOCKS_EACH:,} |",
    f"artifacts of one key | {limits.MAX_CANDIDATES} |",
}


def test_the_header_that_names_blobs_passes_proxies() -> None:
    """nginx refuses a field above 8 KiB, and the registry a header above `MAX_HEADER`."""
    assert len(FOLLOWS_HEADER) + 4 + 65 * MAX_FOLLOWED < 8 << 10 < MAX_HEADER
    assert f"after those of the chain, {MAX_FOLLOWED}\nentries at most" in API


def test_the_limits_of_requests_are_those_of_the_code() -> None:
    assert [each for each in STATED if each not in API] == []


KIB, MIB = 1 << 10, 1 << 20
BODIES_CACHED = 2
"""Resolves and candidates."""
CONNECTION = MAX_HEADER + BODY_FREE + BODY_READ + 40 * KIB
PAGE_COPIES = 3


def connections_mib(count: int) -> float:
    return count * CONNECTION / MIB


def test_the_memory_of_a_registry_adds_up() -> None:
    """Each row of the table is what the constants of the code give, and the sum is the figure to plan with."""
    decoded = 2 * lanes.MAX_CACHED + 2 * catalog.MAX_CACHED + candidates.MAX_CACHED + BODIES_CACHED * MAX_CACHED
    rows = {
        "the process at rest": 90,
        "connections: each": connections_mib(DEFAULTS.connections),
        "large bodies, with": DEFAULTS.body_memory / MIB,
        "values of small bodies": THREADS * FREE_VALUES * VALUE / MIB,
        "replies that are built": (LISTS_AT_ONCE * PAGE_COPIES * MAX_PAGE + (THREADS - LEASES) * 5 * MIB) / MIB,
        "pages of logs": LOG_PAGES * 0.75,
        "large replies that wait": DEFAULTS.reply_memory / MIB,
        "chunks of downloads": DEFAULTS.download_memory / MIB,
        "chunks of uploads": MAX_BUFFERED_BYTES / MIB,
        "packed blobs for clients": DEFAULTS.connections * unpacking_mib(),
        "uploads that are packed": SLOTS * (packed.SAMPLE + SPOOLED + 256 * KIB) / MIB,
        "first bytes of blobs": (MAX_HELD + MAX_CHAINS * 700 + MAX_CHECKED * 600) / MIB,
        "what was decoded": (decoded * OBJECT_FACTOR + lanes.MAX_METHODS * 200) / MIB,
        "refusals and counts": (2 * MAX_REFUSALS * 2 * KIB + MAX_COUNTED * 200) / MIB,
    }
    found = {row: int(re.search(rf"\| {re.escape(row)}.*\| \**([0-9]+)\** \|", SECURITY)[1]) for row in rows}
    assert {row: round(value) for row, value in rows.items()} == found
    assert f"| **together** | | **{sum(found.values())}** |" in SECURITY
    assert f"× `inspect_memory` | {DEFAULTS.inspections * DEFAULTS.inspect_memory // MIB} |" in SECURITY
    fewer = DEFAULTS.connections - 512
    assert sum(found.values()) < 2 * 1024
    assert sum(found.values()) - connections_mib(fewer) - fewer * unpacking_mib() < 1.15 * 1024


def unpacking_mib() -> float:
    """A frame, its packed bytes and some of the next one, and the head of a blob of 64 MiB."""
    return (2.5 * packed.FRAME + 4 * (64 * MIB // packed.FRAME)) / MIB
