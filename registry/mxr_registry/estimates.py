"""How long a compile may take, by what it took before."""

from __future__ import annotations

import json
import statistics
from typing import Any

from sqlalchemy import select

from .db import Session
from .tables import Artifact

LOOKED_AT = 20


def seconds_in(provenance: Any) -> float | None:
    """The `compile_seconds` of a provenance, when it is a sensible number."""
    found = provenance.get("compile_seconds") if isinstance(provenance, dict) else None
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not 0 < found < 10**8:
        return None
    return float(found)


def estimate(session: Session, namespace: str, model: str, arch: str | None) -> tuple[float | None, str | None]:
    """Seconds for a whole compile, and what that rests on: the median of the latest of this model for this arch."""
    row = Artifact
    asked = select(row.provenance_json).where(row.namespace == namespace, row.model == model)
    asked = asked.where(row.arch.is_(None) if arch is None else row.arch == arch)
    rows = session.execute(asked.order_by(row.seq.desc()).limit(LOOKED_AT)).scalars()
    found = [seconds for text in rows if (seconds := seconds_in(json.loads(text))) is not None]
    if not found:
        return None, None
    count = "one compile" if len(found) == 1 else f"{len(found)} compiles"
    return round(statistics.median(found), 3), f"{count} of this model for {arch or 'the ref target'}"
