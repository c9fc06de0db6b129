"""What there is of each model, for pages that lay it out by target: models in the order of their names.

Names are found one after the other by an index (`MIN(name) WHERE name > last`): a page costs the same whatever the
number of artifacts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import func, select

from mxr.artifact.key import MODEL, MODEL_SHORT
from mxr.errors import Json, UsageError
from mxr_registry.database.paging import begins_with
from mxr_registry.database.session import Session
from mxr_registry.database.tables import ArtifactRow, MissRow, ModelRow
from mxr_registry.json_text import stored

MOST_MEANT = 10
"""Models that an error names."""

MOST = 300
"""Artifacts, and misses, of one name that are looked at: of more, the latest."""


def names_after(session: Session, namespace: str, last: str, prefix: str, count: int) -> Iterator[str]:
    """Yield the next names of models after `last`, at most `count`, that begin with `prefix`."""
    columns = ((ModelRow, ModelRow.name), (ArtifactRow, ArtifactRow.model_name))
    place, whole = max(last, prefix), not last and bool(prefix)
    for _ in range(count):
        found = []
        for table, name in columns:
            later = name >= place if whole else name > place
            query = select(func.min(name)).where(table.namespace == namespace, later)
            found += [each for each in session.execute(query).scalars() if each is not None]
        if not found or not min(found).startswith(prefix):
            return
        place, whole = min(found), False
        yield place


def models_named(session: Session, namespace: str, name: str) -> list[str]:
    """Return the identities of the models that are registered under a name, at most `MOST`."""
    query = select(ModelRow.model).where(ModelRow.namespace == namespace, ModelRow.name == name)
    return list(session.execute(query.order_by(ModelRow.seq.desc()).limit(MOST)).scalars())


def artifacts_named(session: Session, namespace: str, name: str, *conditions: Any) -> list[Json]:
    """Return the artifacts of models with this name: `[{"id","model","key","lost"}]`, the latest first.

    What was recalled counts as missing.
    """
    row = ArtifactRow
    conditions = (*conditions, row.recall_json.is_(None))
    query = select(row.id, row.model, row.key_json, row.lost_at).where(row.namespace == namespace, *conditions)
    rows = session.execute(query.where(row.model_name == name).order_by(row.seq.desc()).limit(MOST))
    return [
        {"id": each.id, "model": each.model, "key": stored(each.key_json), "lost": each.lost_at is not None}
        for each in rows
    ]


def misses_of(session: Session, namespace: str, models: Sequence[str]) -> list[Json]:
    """Return the misses of these models that were complete requests: `[{"id","model","request"}]`, the latest first."""
    row = MissRow
    query = select(row.request, row.model, row.request_json).where(
        row.namespace == namespace, row.model.in_(models), row.open_json.is_(None)
    )
    rows = session.execute(query.order_by(row.last_at.desc()).limit(MOST)) if models else ()
    return [{"id": each.request, "model": each.model, "request": stored(each.request_json)} for each in rows]


def identify(session: Session, namespace: str, text: str) -> str:
    """Return the identity of the one model that a name, or the beginning of an identity, means. Raises `UsageError`."""
    if MODEL.fullmatch(text):
        return text
    tables = ((ModelRow, ModelRow.name, ModelRow.model), (ArtifactRow, ArtifactRow.model_name, ArtifactRow.model))
    found = set[str]()
    for table, name, model in tables:
        same = begins_with(model, text) if MODEL_SHORT.fullmatch(text) else name == text
        query = select(model).where(table.namespace == namespace, same).distinct().limit(MOST_MEANT)
        found |= set(session.execute(query).scalars())
    if len(found) == 1:
        return found.pop()
    if not found:
        raise UsageError(
            f"The registry knows no model {text[:200]!r}.", hint="Give its identity: mxr identity MODEL.onnx prints it."
        )
    raise UsageError(
        f"{len(found)} models are called {text[:200]!r}: {', '.join(each[:19] for each in sorted(found))}.",
        hint="Give the identity of the one that is meant, sha256:...",
    )


def declared_inputs(session: Session, namespace: str, model: str) -> dict[str, list[Any] | None]:
    """Return the dims of each input as the model declares them, or as the publisher of its latest program says.

    Where neither tells, the names are those of this program, and no dim is known.
    """
    known = select(ModelRow.inputs_json).where(ModelRow.namespace == namespace, ModelRow.model == model)
    text = session.execute(known).scalar()
    if declared := json.loads(text or "[]"):
        return {each["name"]: each["dims"] for each in declared}
    row = ArtifactRow
    latest = select(row.key_json, row.claim_json).where(row.namespace == namespace, row.model == model)
    found = session.execute(latest.order_by(row.seq.desc()).limit(1)).first()
    if found is None:
        return {}
    if claimed := json.loads(found.claim_json or "{}").get("inputs"):
        return {each["name"]: each["dims"] for each in claimed}
    return {name: [None] * len(dims) for name, dims in json.loads(found.key_json)["inputs"].items()}
