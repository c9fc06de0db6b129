"""The counts of a GPU that a cross-compile needs and a request leaves open: those of the hosts that were seen."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import select

from mxr.artifact.attributes import Request
from mxr.artifact.products import only_counts
from mxr_registry.config import lanes
from mxr_registry.database.job_tables import WorkerRow
from mxr_registry.database.session import Session


def of_seen_hosts(session: Session, namespace: str, request: Request) -> Request:
    """Return a request that may be cross-compiled with the counts of the workers of the namespace with its arch.

    Also those that left count; where they differ, or there is none, the request stays as it is.
    """
    key, constraints = request.key, request.constraints
    stated = (constraints.num_cu, constraints.chiplets)
    if None not in stated or "cross" not in constraints.allow or (key.vendor, key.form) != ("amd", "whole"):
        return request
    texts = session.execute(select(WorkerRow.can_json).where(WorkerRow.namespace == namespace).distinct()).scalars()
    seen = {
        (target.num_cu, target.chiplets)
        for text in texts
        for target in lanes.capabilities_of(text).targets
        if (target.kind, target.vendor, target.arch) == ("gpu", "amd", key.arch)
    }
    num_cu, chiplets = only_counts(seen, *stated) or stated
    return replace(request, constraints=replace(constraints, num_cu=num_cu, chiplets=chiplets))
