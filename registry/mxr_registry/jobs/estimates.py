"""Estimate the duration of a compile from earlier ones: of the model, or of other models with the same graph."""

from __future__ import annotations

import json
import statistics
from typing import Any

from sqlalchemy import Select, bindparam, select
from sqlalchemy.orm import aliased

from mxr.artifact.matching import BUILT
from mxr_registry.database.session import Session
from mxr_registry.database.tables import ArtifactRow, ModelRow

SAMPLE_SIZE = 20
"""Number of artifacts, and of models with the same graph, that an estimate uses: the latest ones."""

LATEST = (
    select(ArtifactRow.provenance_json)
    .where(ArtifactRow.namespace == bindparam("namespace"), ArtifactRow.origin == BUILT)
    .order_by(ArtifactRow.seq.desc())
    .limit(SAMPLE_SIZE)
)
"""The provenance of the latest artifacts that workers built: that of a pushed one can say anything."""

OWN = ArtifactRow.model == bindparam("model")


def _models_with_same_graph() -> Select[Any]:
    """The latest models with the graph of this one. The limit bounds the cost if thousands of models share a graph."""
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
        .limit(SAMPLE_SIZE)
    )


SOURCES = (
    ("this model", OWN),
    ("the same graph with other weights", ArtifactRow.model.in_(_models_with_same_graph())),
)
"""Description and condition of the artifacts that an estimate uses, the preferred ones first."""

ON_REF = [(label, LATEST.where(rule, ArtifactRow.arch.is_(None))) for label, rule in SOURCES]
ON_ARCH = [(label, LATEST.where(rule, ArtifactRow.arch == bindparam("arch"))) for label, rule in SOURCES]


def seconds_in(provenance: Any) -> float | None:
    """Return the `compile_seconds` of a provenance, or None if it is not a plausible number."""
    found = provenance.get("compile_seconds") if isinstance(provenance, dict) else None
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not 0 < found < 10**8:
        return None
    return float(found)


def estimate(session: Session, namespace: str, model: str, arch: str | None) -> tuple[float | None, str | None]:
    """Return the estimated seconds of a whole compile and its basis, or (None, None).

    The estimate is the median of the latest compiles for this arch; None stands for the reference target.
    """
    values = {"namespace": namespace, "model": model, "arch": arch}
    for label, statement in ON_REF if arch is None else ON_ARCH:
        rows = session.execute(statement, values).scalars()
        durations = [seconds for text in rows if (seconds := seconds_in(json.loads(text))) is not None]
        if durations:
            count = "one compile" if len(durations) == 1 else f"{len(durations)} compiles"
            return round(statistics.median(durations), 3), f"{count} of {label} for {arch or 'the ref target'}"
    return None, None
