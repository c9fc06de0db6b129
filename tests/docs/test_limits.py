"""The pages state the limits that the code has."""

from __future__ import annotations

import dataclasses

import pytest
from paths import ROOT

from mxr.artifact import limits
from mxr.util import codec
from mxr_registry.config.limits import RequestLimits
from mxr_registry.jobs.logs import HEAD, TAIL
from mxr_registry.jobs.transitions import MOST_EVENTS
from mxr_registry.server.connections import MAX_HEADER, MIN_RATE

API = (ROOT / "docs" / "api.md").read_text()
OPERATE = (ROOT / "docs" / "operate.md").read_text()

DEFAULTS = RequestLimits()
STATED = {
    f"at most {MAX_HEADER >> 10} KiB, complete within {DEFAULTS.header_seconds:g} seconds",
    f"no pause of {DEFAULTS.idle_seconds:g} seconds, and at least {MIN_RATE:g} bytes per second",
    f"{DEFAULTS.body >> 20} MiB; nested at most {codec.DEEPEST} deep",
    f"| blob | {DEFAULTS.blob >> 30} GiB |",
    f"{limits.MOST_INPUTS:,} inputs, with names of {limits.MOST_INPUT_TEXT:,} characters and "
    f"{limits.MOST_DIMS_IN_ALL:,} dims",
    f"{limits.MOST_DIMS} dims; {limits.MOST_OPTIMALS} optimal sizes",
    f"{limits.MOST_VARIABLES} variables with values of {limits.LONGEST_VALUE:,} characters",
    f"texts of {limits.LONGEST_WORD} characters",
    f"{limits.MOST_FILES:,} files, {limits.MOST_BLOBS:,} blobs, names of {limits.LONGEST_NAME:,} bytes",
    f"| provenance | {limits.MOST_PROVENANCE:,} bytes of JSON, nested at most {limits.DEEPEST_PROVENANCE} deep |",
    f"{limits.MOST_MODEL_INPUTS:,} inputs, {limits.MOST_MODEL_TEXT:,} bytes of JSON",
    f"`POST /v1/blobs/missing` | {limits.MOST_ASKED:,} |",
    f"artifacts of one lock | {limits.MOST_PINNED:,} |",
    f"one report of uses | {limits.MOST_USES:,} |",
    f"requests in one survey | {limits.MOST_SURVEYED:,} |",
    f"jobs in one watch | {limits.MOST_WATCHED:,} |",
    f"{limits.MOST_TARGETS} targets, {limits.MOST_CAPABILITIES:,} bytes of JSON",
    f"{limits.MOST_LOG:,} characters; of a job, the first {HEAD >> 10} KiB and the last {TAIL >> 20} MiB",
    f"a message of {limits.LONGEST_MESSAGE:,} characters",
    f"{limits.MOST_DESCRIPTION:,} bytes of JSON; a program",
    f"the latest {limits.MOST_MISSES:,}; requests of {limits.MOST_MISS:,} bytes",
    f"the latest {MOST_EVENTS} |",
    f"queued jobs | {limits.MOST_OPEN_JOBS:,} |",
    f"registered workers | {limits.MOST_WORKERS:,} |",
    f"registered locks | {limits.MOST_LOCKS:,} |",
}


def test_the_limits_of_requests_are_those_of_the_code() -> None:
    assert [each for each in STATED if each not in API] == []


@pytest.mark.parametrize("field", dataclasses.fields(DEFAULTS), ids=lambda field: field.name)
def test_the_settings_of_limits_are_those_of_the_code(field: dataclasses.Field[object]) -> None:
    assert f"| `{field.name}` | {field.default} |" in OPERATE
