"""How long a compile may take, by what it took before: of this model; else of the same graph with other weights."""

from __future__ import annotations

import json
import statistics
from typing import Any

from sqlalchemy import Select, bindparam, select
from sqlalchemy.orm import aliased

from mxr_registry.database.session import Session
from mxr_registry.database.tables import ArtifactRow, ModelRow

LOOKED_AT = 20
"""Artifacts, and sister models, that an estimate looks at: the latest."""

LATEST = (
    select(ArtifactRow.provenance_json)
    .where(ArtifactRow.namespace == bindparam("namespace"))
    .order_by(ArtifactRow.seq.desc())
    .limit(LOOKED_AT)
)
OWN = ArtifactRow.model == bindparam("model")


def _sisters() -> Select[Any]:
    """The latest models with the graph of this one. Few, so that a graph with a thousand of them costs no more."""
    this = aliased(ModelRow)
    graph = select(this.graph).where(this.namespace == bindparam("namespace"), this.model == bindparam("model"))
    return (
        select(ModelRow.model)
        .where(
            ModelRow.namespace == bindparam("namespace"),
            ModelRow.graph == graph.scalar_subquery(),
            ModelRow.model != bindparam("model"),
        )
        .order_by(ModelRow.seq.desc())
        .limit(LOOKED_AT)
    )


WAYS = (("this model", OWN), ("the same graph with other weights", ArtifactRow.model.in_(_sisters())))
ON_REF = [(words, LATEST.where(rule, ArtifactRow.arch.is_(None))) for words, rule in WAYS]
ON_ARCH = [(words, LATEST.where(rule, ArtifactRow.arch == bindparam("arch"))) for words, rule in WAYS]


def seconds_in(provenance: Any) -> float | None:
    """The `compile_seconds` of a provenance, when it is a sensible number."""
    found = provenance.get("compile_seconds") if isinstance(provenance, dict) else None
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not 0 < found < 10**8:
        return None
    return float(found)


def estimate(session: Session, namespace: str, model: str, arch: str | None) -> tuple[float | None, str | None]:
    """Seconds for a whole compile, and what that rests on: the median of the latest on this arch."""
    wanted = {"namespace": namespace, "model": model, "arch": arch}
    for words, statement in ON_REF if arch is None else ON_ARCH:
        rows = session.execute(statement, wanted).scalars()
        found = [seconds for text in rows if (seconds := seconds_in(json.loads(text))) is not None]
        if found:
            count = "one compile" if len(found) == 1 else f"{len(found)} compiles"
            return round(statistics.median(found), 3), f"{count} of {words} for {arch or 'the ref target'}"
    return None, None
