"""The plan of a toolchain upgrade: the programs in use that it invalidates, and the compiles that replace them.

    programs recently used on the old toolchain -> the same requests on the new one -> their status -> order by demand

The estimate of a compile is the time that the same program took on the old toolchain, if known. Only `queue_compiles`
queues compiles, with a priority below every request that a user waits for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from mxr.artifact.attributes import HARDWARE, Constraints, Request
from mxr.artifact.key import Key
from mxr.artifact.matching import BUILT
from mxr.artifact.records import ListedArtifact
from mxr.artifact.target import show_precision, split_version
from mxr.client.retry import OUTAGE, retry, until
from mxr.errors import Json, MxrError, NoSuchModelError, UsageError
from mxr.protocol import jobs as job_protocol
from mxr.protocol.surveys import RequestStatus
from mxr.util.codec import canonical
from mxr.util.frozen import dataclass
from mxr.workflows.survey import request_statuses

if TYPE_CHECKING:
    from mxr.client.registry import Client

BEHIND = -50
"""The priority of a rebuild: below that of every request from a user."""

PAGE = 1_000
MAX_ARTIFACTS = 10_000
"""Maximum number of artifacts in one plan; the most used ones are chosen."""

AVAILABLE, QUEUED, COMPILE, NOBODY, FOREIGN = "available", "queued", "compile", "no worker", "recorded elsewhere"
STATES = (AVAILABLE, QUEUED, COMPILE, NOBODY, FOREIGN)


@dataclass(frozen=True, slots=True)
class Versions:
    """A toolchain as in a key, MAJOR.MINOR each; `rocm` is None for programs of the ref target."""

    migraphx: str
    rocm: str | None = None

    def __str__(self) -> str:
        return (f"ROCm {self.rocm}, " if self.rocm else "") + f"MIGraphX {self.migraphx}"


@dataclass(frozen=True, slots=True)
class Rebuild:
    """One program that the upgrade invalidates.

    `uses`: fetches in the requested number of days. `took`: seconds of the compile on the old toolchain. `takes`:
    seconds of the compile on the new toolchain, if it exists already.
    """

    old: ListedArtifact
    request: Request
    uses: int
    status: RequestStatus
    took: float | None = None
    takes: float | None = None

    @property
    def state(self) -> str:
        """One of `STATES`."""
        if self.request.key.form != "whole":
            return AVAILABLE if self.status.artifact else FOREIGN
        if self.status.artifact:
            return AVAILABLE
        if self.status.job:
            return QUEUED
        return COMPILE if self.status.able else NOBODY

    @property
    def estimate(self) -> float | None:
        """The estimated seconds of its compile."""
        return self.took if self.took is not None else self.status.estimate

    def grew(self, factor: float) -> bool:
        """Whether its compile takes more than `factor` times as long as on the old toolchain."""
        return self.took is not None and self.takes is not None and self.takes > factor * self.took

    def to_json(self) -> Json:
        """One row of the JSON document."""
        key = self.request.key
        return {
            "artifact": self.old.id,
            "model": key.model,
            "model_name": self.old.model_name,
            "arch": key.arch or key.kind,
            "precision": show_precision(key.precision),
            "inputs": key.to_json()["inputs"],
            "uses": self.uses,
            "state": self.state,
            "digest": key.digest,
            "new": self.status.artifact,
            "job": self.status.job,
            "took": self.took,
            "takes": self.takes,
            "estimate": self.estimate if self.state not in (AVAILABLE, FOREIGN) else None,
        }


def versions(text: str) -> Versions:
    """Parse `rocm=7.2,migraphx=2.15`. Raises `UsageError`."""
    hint = "Write rocm=7.2,migraphx=2.15, or only migraphx=2.16 for the ref target."
    found: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        if name not in ("rocm", "migraphx") or not equals or name in found:
            raise UsageError(f"{part.strip()!r} is not a version of rocm or migraphx.", hint=hint)
        found[name] = split_version(value, name)[0]
    if "migraphx" not in found:
        raise UsageError(f"{text!r} has no MIGraphX version.", hint=hint)
    return Versions(found["migraphx"], found.get("rocm"))


def plan_rebuilds(client: Client, old: Versions, new: Versions, days: int) -> tuple[Rebuild, ...]:
    """The programs in use on `old` with their status on `new`, the most used first.

    Raises `UnreachableError`, `UsageError`.
    """
    if old == new:
        raise UsageError(f"Both toolchains are {old}.", hint="Give the toolchain in use and the new one.")
    if (old.rocm is None) is not (new.rocm is None):
        raise UsageError(
            "Only one of the two toolchains has a ROCm version.", hint="Give it in both, or in none (ref target)."
        )
    used = client.usage(MAX_ARTIFACTS, days=days, migraphx=old.migraphx, rocm=old.rocm)
    wanted: dict[str, tuple[ListedArtifact, Request, int]] = {}
    for each in used:
        if old.rocm is None and each.artifact.key.kind != "ref":
            continue
        request = _on_toolchain(each.artifact, new)
        name = canonical(request.to_json())
        before = wanted.get(name)
        wanted[name] = (each.artifact, request, each.count + (before[2] if before else 0))
    rows = sorted(wanted.values(), key=lambda row: -row[2])
    statuses = request_statuses(client, [request for _, request, _ in rows])
    takes = dict(_seconds(client, new)) if any(status.artifact for status in statuses) else {}
    return tuple(
        Rebuild(artifact, request, uses, status, seconds_of(artifact), takes.get(status.artifact or ""))
        for (artifact, request, uses), status in zip(rows, statuses, strict=True)
    )


def _on_toolchain(artifact: ListedArtifact, new: Versions) -> Request:
    """The request that this artifact serves, for another toolchain: same hardware, any patch version and build."""
    key: Key = replace(artifact.key, migraphx=new.migraphx, rocm=new.rocm)
    had = artifact.attributes
    same = {name: value for name in (*HARDWARE, "real_arch") if (value := getattr(had, name)) != "any"}
    return Request(key, Constraints(**same, tuning="exhaustive" if had.tuning == "exhaustive" else None))


def _seconds(client: Client, of: Versions) -> Iterator[tuple[str, float]]:
    """The compile times on this toolchain in seconds, by artifact id."""
    after: str | None = None
    while True:
        page = client.artifacts(migraphx=of.migraphx, rocm=of.rocm, limit=PAGE, after=after)
        for item in page.items:
            seconds = seconds_of(item)
            if seconds is not None:
                yield item.id, seconds
        if page.next is None:
            return
        after = page.next


def seconds_of(artifact: ListedArtifact) -> float | None:
    """The `compile_seconds` that a worker recorded, if they are a plausible number, else None."""
    found = artifact.provenance.get("compile_seconds") if artifact.origin == BUILT else None
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not 0 < found < 10**8:
        return None
    return float(found)


def queue_compiles(
    client: Client, rebuilds: Sequence[Rebuild]
) -> Iterator[tuple[Rebuild, job_protocol.Job | MxrError]]:
    """Queue the necessary compiles, the most used first, and yield each with its job.

    If the registry no longer stores a model, the pair has the error instead of the job.
    """
    for rebuild in rebuilds:
        if rebuild.state in (COMPILE, NOBODY):
            message = job_protocol.CompileRequest(rebuild.request.key, rebuild.request.constraints, priority=BEHIND)
            try:
                yield rebuild, retry(until(OUTAGE), partial(client.request_compile, message))
            except NoSuchModelError as problem:
                yield rebuild, problem


def upgrade_document(rebuilds: Sequence[Rebuild], old: Versions, new: Versions, days: int, factor: float) -> Json:
    """The JSON document of an upgrade plan: `{"from","to","days","programs","grown","summary"}`."""
    return {
        "from": {"rocm": old.rocm, "migraphx": old.migraphx},
        "to": {"rocm": new.rocm, "migraphx": new.migraphx},
        "days": days,
        "programs": [rebuild.to_json() for rebuild in rebuilds],
        "grown": [rebuild.old.id for rebuild in rebuilds if rebuild.grew(factor)],
        "summary": summary(rebuilds),
    }


def summary(rebuilds: Sequence[Rebuild]) -> Json:
    """The counts by state, the estimated seconds of all compiles, and the number of compiles without an estimate."""
    todo = [rebuild for rebuild in rebuilds if rebuild.state in (QUEUED, COMPILE, NOBODY)]
    known = [each.estimate for each in todo if each.estimate is not None]
    counts = {state: sum(rebuild.state == state for rebuild in rebuilds) for state in STATES}
    return {**counts, "seconds": round(sum(known), 3), "unknown": len(todo) - len(known)}
