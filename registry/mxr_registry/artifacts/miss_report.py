"""What a miss says: the nearest artifacts, each field as asked and as found, and what the person can do about it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from sqlalchemy import select

from mxr.artifact import matching, target
from mxr.artifact.key import Difference, Key, show
from mxr.artifact.matching import Candidate
from mxr.artifact.qualities import ALLOWANCES, Demands, Request
from mxr.errors import NoSuchArtifact
from mxr_registry.database.session import Row, Session
from mxr_registry.database.tables import ArtifactRow

from . import catalog, models

LOOKED_AT = 500
"""Artifacts of the model that are compared with a request: the newest, those of the same arch first."""

SHOWN = 5


@dataclass(frozen=True, slots=True)
class NearestArtifact:
    """An artifact that does not serve, and why."""

    candidate: Candidate
    same_key: bool
    differences: tuple[Difference, ...]

    def to_json(self) -> dict[str, Any]:
        """`{"id","differences":[{"field","asked","found"}]}`."""
        rows = [each.to_json() for each in self.differences]
        return {"id": self.candidate.id, "differences": rows}


def explain(
    session: Session, namespace: str, request: Request, digest: str, family: str | None
) -> tuple[NoSuchArtifact, list[Mapping[str, Any]]]:
    """The error for a request that nothing serves, and the nearest artifacts as JSON."""
    near = nearest(session, namespace, request, family)[:SHOWN]
    shown: list[Mapping[str, Any]] = [each.to_json() for each in near]
    message = f"No program of {request.key.model} for {place(request.key)}: "
    if near:
        first = near[0].differences[0]
        more = len(near[0].differences) - 1
        message += (
            f"the nearest, {near[0].candidate.id[:12]}, has {first.field} {show(first.found)} "
            f"where {show(first.asked)} is asked{f' ({more} more)' if more else ''}."
        )
    elif models.known(session, namespace, request.key.model):
        message += "the registry knows the model, and has no program of it at all."
    else:
        message += "the registry does not know this model."
    detail = {"digest": digest, "nearest": shown}
    return NoSuchArtifact(message, hint=advice(request, near), detail=detail), shown


def place(key: Key) -> str:
    """Where a program of this key runs, in few words."""
    if key.kind == "ref":
        return f"the ref target (MIGraphX {key.migraphx})"
    userland = "DTK" if key.vendor == "hygon" else "ROCm"
    return f"{key.arch} ({userland} {key.rocm}, MIGraphX {key.migraphx})"


def nearest(session: Session, namespace: str, request: Request, family: str | None) -> list[NearestArtifact]:
    """Artifacts of the same model that do not serve, those with the fewest differences first."""
    found = [_compare(request, row, family) for row in _rows(session, namespace, request.key)]
    return sorted((each for each in found if each.differences), key=lambda each: len(each.differences))


def _rows(session: Session, namespace: str, key: Key) -> Iterator[Row]:
    row = ArtifactRow
    asked = (
        select(row.seq, row.id, row.key_json, row.qualities_json, row.promoted)
        .where(row.namespace == namespace, row.model == key.model)
        .order_by(row.seq.desc())
    )
    same = session.execute(asked.where(row.arch.is_not_distinct_from(key.arch)).limit(LOOKED_AT)).all()
    yield from same
    if len(same) < LOOKED_AT:
        other = asked.where(row.arch.is_distinct_from(key.arch)).limit(LOOKED_AT - len(same))
        yield from session.execute(other)


def _compare(request: Request, row: Row, family: str | None) -> NearestArtifact:
    key = Key.from_json(json.loads(row.key_json))
    generic = family if key.arch == family and family else None
    has = Candidate(row.id, catalog.qualities_of(row.qualities_json), row.promoted, row.seq, generic)
    asked = request.key.generic() if generic else request.key
    differences = (asked or request.key).differences(key)
    elsewhere = any(each.field in ("arch", "vendor", "kind") for each in differences)
    refused = () if elsewhere else tuple(matching.judge(request.demands, has).refused)
    return NearestArtifact(has, not differences, differences + refused)


def advice(request: Request, near: list[NearestArtifact]) -> str:
    """What the person can do: let pass what alone refuses, or publish the program."""
    for each in near:
        flag = _would_serve(request.demands, each) if each.same_key else None
        if flag:
            return (
                f"If that is right for you, {flag} takes {each.candidate.id[:12]}. Else publish: {push_line(request)}"
            )
    return f"Compile it and publish it: {push_line(request)}"


def _would_serve(demands: Demands, near: NearestArtifact) -> str | None:
    if demands.exact:
        loose = replace(demands, exact=False)
        return None if matching.judge(loose, near.candidate).refused else "leaving out --exact"
    open_ = [name for name in ALLOWANCES if name not in demands.allow]
    for count in range(1, len(open_) + 1):
        for some in combinations(open_, count):
            if not matching.judge(replace(demands, allow=(*demands.allow, *some)), near.candidate).refused:
                return f"`--allow {','.join((*demands.allow, *some))}`"
    return None


def push_line(request: Request) -> str:
    """The command that would publish what was asked for."""
    key, demands = request.key, request.demands
    words = ["mxr", "push", "FILE.mxr", "--model", "MODEL.onnx"]
    if key.kind == "ref":
        words += ["--kind", "ref"]
    else:
        words += ["--vendor", "hygon"] if key.vendor == "hygon" else []
        words += ["--arch", str(target.GfxArch(key.arch or "", demands.sramecc, demands.xnack))]
        words += ["--num-cu", str(demands.num_cu)] if demands.num_cu else []
        words += ["--real-arch", demands.real_arch] if demands.real_arch else []
        words += ["--rocm", demands.rocm_patch or key.rocm or ""]
    words += ["--migraphx", demands.migraphx_patch or key.migraphx]
    for name, shape in key.inputs:
        words += ["--input", f"{name}={target.show_dims(shape)}"]
    words += ["--precision", "+".join(key.precision) or "fp32"]
    words += ["--calibration", "FILE"] if key.calibration else []
    words += ["--offload-copy" if key.offload_copy else "--no-offload-copy"]
    words += ["--fast-math" if key.fast_math else "--no-fast-math"]
    for name, value in key.env:
        words += ["--env", f"{name}={value}"]
    words += ["--tuning", demands.tuning] if demands.tuning else []
    return "`" + " ".join(shlex.quote(word) for word in words) + "`"
