"""How long a compile may take, by what it took before."""

from __future__ import annotations

import json
import statistics
from typing import Any

from sqlalchemy import bindparam, select

from .db import Session
from .tables import Artifact

LOOKED_AT = 20

BEFORE = (
    select(Artifact.provenance_json)
    .where(Artifact.namespace == bindparam("namespace"), Artifact.model == bindparam("model"))
    .order_by(Artifact.seq.desc())
    .limit(LOOKED_AT)
)
ON_REF = BEFORE.where(Artifact.arch.is_(None))
ON_ARCH = BEFORE.where(Artifact.arch == bindparam("arch"))


def seconds_in(provenance: Any) -> float | None:
    """The `compile_seconds` of a provenance, when it is a sensible number."""
    found = provenance.get("compile_seconds") if isinstance(provenance, dict) else None
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not 0 < found < 10**8:
        return None
    return float(found)


def estimate(session: Session, namespace: str, model: str, arch: str | None) -> tuple[float | None, str | None]:
    """Seconds for a whole compile, and what that rests on: the median of the latest of this model for this arch."""
    wanted = {"namespace": namespace, "model": model, "arch": arch}
    rows = session.execute(ON_REF if arch is None else ON_ARCH, wanted).scalars()
    found = [seconds for text in rows if (seconds := seconds_in(json.loads(text))) is not None]
    if not found:
        return None, None
    count = "one compile" if len(found) == 1 else f"{len(found)} compiles"
    return round(statistics.median(found), 3), f"{count} of this model for {arch or 'the ref target'}"
