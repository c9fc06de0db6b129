"""The counts of a GPU that a cross-compile needs and a request leaves open: those of the hosts that were seen."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import select

from mxr.artifact.attributes import Request
from mxr.artifact.products import only_counts
from mxr_registry.config import lanes
from mxr_registry.database.job_tables import WorkerRow
from mxr_registry.database.session import Session


class SeenHosts:
    """The GPUs of the workers of a namespace, also of those that left, read when a request needs them first."""

    def __init__(self, session: Session, namespace: str) -> None:
        self._session, self._namespace = session, namespace
        self._by_arch: dict[str | None, set[tuple[int | None, int | None]]] | None = None

    def complete(self, request: Request) -> Request:
        """Return a request that leaves counts open with those of its arch, where the hosts agree on them."""
        if not are_open(request):
            return request
        if self._by_arch is None:
            self._by_arch = self._read()
        constraints = request.constraints
        seen = self._by_arch.get(request.key.arch, set())
        found = only_counts(seen, constraints.num_cu, constraints.chiplets)
        if found is None:
            return request
        return replace(request, constraints=replace(constraints, num_cu=found[0], chiplets=found[1]))

    def _read(self) -> dict[str | None, set[tuple[int | None, int | None]]]:
        found: dict[str | None, set[tuple[int | None, int | None]]] = {}
        texts = select(WorkerRow.can_json).where(WorkerRow.namespace == self._namespace).distinct()
        for text in self._session.execute(texts).scalars():
            for target in lanes.capabilities_of(text).targets:
                if (target.kind, target.vendor) == ("gpu", "amd"):
                    found.setdefault(target.arch, set()).add((target.num_cu, target.chiplets))
        return found


def are_open(request: Request) -> bool:
    """Whether a request may be cross-compiled and leaves a count of its GPU open."""
    key, constraints = request.key, request.constraints
    may = "cross" in constraints.allow and (key.vendor, key.form) == ("amd", "whole")
    return may and None in (constraints.num_cu, constraints.chiplets)
