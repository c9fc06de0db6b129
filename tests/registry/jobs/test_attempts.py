"""Attempts: each claim is one, with its phases, and ends with what the job became."""

from __future__ import annotations

import json
from typing import Any

from registry.registry_client import Parts

from mxr_registry.jobs import attempts


def rows_of(registry: Any) -> list[Any]:
    columns = "worker, state, note, ended_at IS NOT NULL, phases_json"
    found = registry.rows.execute(f"SELECT {columns} FROM attempts ORDER BY seq")
    return [(worker, state, note, bool(ended), json.loads(phases)) for worker, state, note, ended, phases in found]


def test_an_attempt_has_its_phases_and_its_end(registry: Any, parts: Parts) -> None:
    registry.submit(parts.ref_key())
    lease = registry.claim(registry.register_worker())
    assert rows_of(registry) == [("one", None, None, False, [])]
    for phase in ("parse", "parse", "compile"):
        registry.heartbeat(lease, phase=phase)
    registry.finish(lease)
    ((worker, state, note, ended, phases),) = rows_of(registry)
    assert (worker, state, ended, [name for name, _ in phases]) == ("one", "done", True, ["parse", "compile"])
    assert note.startswith("published ")


def test_each_claim_is_an_attempt_of_its_own(registry: Any, parts: Parts) -> None:
    """Failed and tried again, handed back, lost, cancelled by its worker."""
    job = registry.submit(parts.ref_key())
    first, second = registry.register_worker("first"), registry.register_worker("second")
    registry.fail(registry.claim(first), "transient")
    registry.end_backoff(job["id"])
    handed = registry.claim(second)
    registry.ok("POST", f"/v1/jobs/{job['id']}/handback", {"lease": handed["secret"]})
    registry.claim(first)
    registry.lose_lease(job["id"], second)
    lease = registry.claim(second)
    registry.ok("POST", f"/v1/jobs/{job['id']}/cancel")
    registry.ok("POST", f"/v1/jobs/{job['id']}/handback", {"lease": lease["secret"]})
    found = [(worker, state) for worker, state, *_ in rows_of(registry)]
    assert found == [("first", "queued"), ("second", "queued"), ("first", "queued"), ("second", "cancelled")]


def test_attempts_and_phases_are_bounded(registry: Any, parts: Parts) -> None:
    job = registry.submit(parts.ref_key())
    worker = registry.register_worker()
    for _ in range(attempts.MAX_ATTEMPTS + 5):
        lease = registry.claim(worker)
        registry.ok("POST", f"/v1/jobs/{job['id']}/handback", {"lease": lease["secret"]})
    lease = registry.claim(worker)
    for number in range(attempts.MAX_PHASES + 5):
        registry.heartbeat(lease, phase=f"phase {number}")
    found = rows_of(registry)
    assert len(found) == attempts.MAX_ATTEMPTS and len(found[-1][4]) == attempts.MAX_PHASES
