"""What another toolchain would cost: what is in use that it invalidates, and the compiles that bring it back.

    what was used lately on the old toolchain  ->  the same requests on the new one  ->  how these stand  ->  by demand

The estimate of a compile is what the same program took on the old toolchain, where that is known. Nothing is compiled
before `ask` queues it, behind what anybody waits for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from mxr.artifact.key import Key
from mxr.artifact.qualities import Demands, Request
from mxr.artifact.records import Artifact
from mxr.artifact.target import split_version
from mxr.errors import Json, MxrError, NoSuchModel, Usage
from mxr.protocol import jobs as job_protocol
from mxr.protocol.surveys import RequestStatus
from mxr.util.codec import canonical
from mxr.util.frozen import dataclass
from mxr.workflows import compile as compile_workflow

if TYPE_CHECKING:
    from mxr.client.registry import Client

BEHIND = -50
"""The priority of a rebuild: behind every live miss, before nothing."""

AT_ONCE = 200
PAGE = 1_000
MOST = 10_000
"""Artifacts in use that one plan looks at: the most used."""

THERE, QUEUED, COMPILE, NOBODY, FOREIGN = "there", "queued", "compile", "no worker", "recorded elsewhere"
STATES = (THERE, QUEUED, COMPILE, NOBODY, FOREIGN)


@dataclass(frozen=True, slots=True)
class Versions:
    """A toolchain as a key names it, MAJOR.MINOR each; `rocm` is None for programs of the ref target."""

    migraphx: str
    rocm: str | None = None

    def __str__(self) -> str:
        return (f"ROCm {self.rocm}, " if self.rocm else "") + f"MIGraphX {self.migraphx}"


@dataclass(frozen=True, slots=True)
class Rebuild:
    """One program that the upgrade invalidates. `uses` of the days asked about; `took` seconds on the old toolchain.

    `takes`: seconds of the compile on the new one, where it is there already.
    """

    old: Artifact
    request: Request
    uses: int
    standing: RequestStatus
    took: float | None = None
    takes: float | None = None

    @property
    def state(self) -> str:
        """One of `STATES`."""
        if self.request.key.form != "whole":
            return THERE if self.standing.artifact else FOREIGN
        if self.standing.artifact:
            return THERE
        if self.standing.job:
            return QUEUED
        return COMPILE if self.standing.able else NOBODY

    @property
    def estimate(self) -> float | None:
        """Seconds that its compile is likely to take."""
        return self.took if self.took is not None else self.standing.estimate

    def grew(self, factor: float) -> bool:
        """Whether its compile takes more than `factor` times what it took on the old toolchain."""
        return self.took is not None and self.takes is not None and self.takes > factor * self.took

    def to_json(self) -> Json:
        """One row of the plan's document."""
        key = self.request.key
        return {
            "artifact": self.old.id,
            "model": key.model,
            "arch": key.arch or key.kind,
            "precision": "+".join(key.precision) or "fp32",
            "inputs": key.to_json()["inputs"],
            "uses": self.uses,
            "state": self.state,
            "digest": key.digest,
            "new": self.standing.artifact,
            "job": self.standing.job,
            "took": self.took,
            "takes": self.takes,
            "estimate": self.estimate if self.state not in (THERE, FOREIGN) else None,
        }


def versions(text: str) -> Versions:
    """Reads `rocm=7.2,migraphx=2.15`. Raises `Usage`."""
    hint = "Write it as rocm=7.2,migraphx=2.15, or migraphx=2.16 alone for the ref target."
    found: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        if name not in ("rocm", "migraphx") or not equals or name in found:
            raise Usage(f"{part.strip()!r} is not a version of rocm or migraphx.", hint=hint)
        found[name] = split_version(value, name)[0]
    if "migraphx" not in found:
        raise Usage(f"{text!r} names no MIGraphX version.", hint=hint)
    return Versions(found["migraphx"], found.get("rocm"))


def plan(client: Client, old: Versions, new: Versions, days: int) -> tuple[Rebuild, ...]:
    """What is in use on `old` and how it stands on `new`, the most used first. Raises `Unreachable`, `Usage`."""
    if old == new:
        raise Usage(f"From and to are both {old}.", hint="Give the toolchain in use, and the one to come.")
    if (old.rocm is None) is not (new.rocm is None):
        raise Usage("Only one of the two names ROCm.", hint="Name it in both, or in none (for the ref target).")
    used = client.usage(days=days, migraphx=old.migraphx, rocm=old.rocm, limit=MOST).uses
    wanted: dict[str, tuple[Artifact, Request, int]] = {}
    for each in used:
        if old.rocm is None and each.artifact.key.kind != "ref":
            continue
        request = _moved(each.artifact, new)
        name = canonical(request.to_json())
        before = wanted.get(name)
        wanted[name] = (each.artifact, request, each.count + (before[2] if before else 0))
    rows = sorted(wanted.values(), key=lambda row: -row[2])
    standings = list(_standings(client, [request for _, request, _ in rows]))
    takes = dict(_seconds(client, new)) if any(each.artifact for each in standings) else {}
    return tuple(
        Rebuild(artifact, request, uses, standing, seconds_of(artifact.provenance), takes.get(standing.artifact or ""))
        for (artifact, request, uses), standing in zip(rows, standings, strict=True)
    )


def _moved(artifact: Artifact, new: Versions) -> Request:
    """The request that this artifact serves, on another toolchain: for the same hardware, of any patch and build."""
    key: Key = replace(artifact.key, migraphx=new.migraphx, rocm=new.rocm)
    had = artifact.qualities
    demands = Demands(
        sramecc=None if had.sramecc == "any" else had.sramecc,
        xnack=None if had.xnack == "any" else had.xnack,
        num_cu=had.num_cu,
        chiplets=had.chiplets,
        real_arch=had.real_arch,
        tuning="exhaustive" if had.tuning == "exhaustive" else None,
    )
    return Request(key, demands)


def _standings(client: Client, requests: Sequence[Request]) -> Iterator[RequestStatus]:
    for begin in range(0, len(requests), AT_ONCE):
        yield from client.survey(requests[begin : begin + AT_ONCE]).standings


def _seconds(client: Client, of: Versions) -> Iterator[tuple[str, float]]:
    """What the compiles on this toolchain took, by the artifact's id."""
    after: str | None = None
    while True:
        page = client.artifacts(migraphx=of.migraphx, rocm=of.rocm, limit=PAGE, after=after)
        for each in page.artifacts:
            seconds = seconds_of(each.provenance)
            if seconds is not None:
                yield each.id, seconds
        if page.next is None:
            return
        after = page.next


def seconds_of(provenance: Mapping[str, Any]) -> float | None:
    """The `compile_seconds` that a worker wrote down, when they are a sensible number."""
    found = provenance.get("compile_seconds")
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not 0 < found < 10**8:
        return None
    return float(found)


def ask(client: Client, rebuilds: Sequence[Rebuild]) -> Iterator[tuple[Rebuild, job_protocol.Job | MxrError]]:
    """Queues what is to be compiled, the most used first and behind every live miss; each with its job.

    Where the registry has no bytes of a model any more, the error stands in the job's place.
    """
    for each in rebuilds:
        if each.state in (COMPILE, NOBODY):
            wanted = job_protocol.CompileRequest(each.request, priority=BEHIND)
            try:
                yield each, compile_workflow.patiently(partial(client.ask, wanted))
            except NoSuchModel as problem:
                yield each, problem


def document(rebuilds: Sequence[Rebuild], old: Versions, new: Versions, days: int, factor: float) -> Json:
    """The JSON of an upgrade's plan: `{"from","to","days","programs","grown","summary"}`."""
    return {
        "from": {"rocm": old.rocm, "migraphx": old.migraphx},
        "to": {"rocm": new.rocm, "migraphx": new.migraphx},
        "days": days,
        "programs": [each.to_json() for each in rebuilds],
        "grown": [each.old.id for each in rebuilds if each.grew(factor)],
        "summary": summary(rebuilds),
    }


def summary(rebuilds: Sequence[Rebuild]) -> Json:
    """Counts by state, the seconds to compile, and how many of these compiles have no estimate."""
    todo = [each for each in rebuilds if each.state in (QUEUED, COMPILE, NOBODY)]
    known = [each.estimate for each in todo if each.estimate is not None]
    counts = {state: sum(each.state == state for each in rebuilds) for state in STATES}
    return {**counts, "seconds": round(sum(known), 3), "unknown": len(todo) - len(known)}
