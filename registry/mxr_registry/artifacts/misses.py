"""Misses: requests that found no artifact, with their count, who made them, and the nearest artifacts."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from pydantic import Field
from sqlalchemy import delete, exists, func, insert, or_, select, update
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import aliased

from mxr.artifact.attributes import Request
from mxr.artifact.limits import MAX_MISS_ASKERS, MAX_MISS_BYTES, MAX_MISS_HOSTS, MAX_MISSES
from mxr.artifact.partial import PartialRequest
from mxr.errors import Json, MxrError, NotFoundError
from mxr.protocol.artifacts import MAX_ASKED_BY
from mxr.util.codec import canonical, time_text
from mxr_registry.database import tallies
from mxr_registry.database.paging import ListFilters, begins_with, list_page, read_cursor
from mxr_registry.database.session import Database, Row, Session, now, upsert
from mxr_registry.database.tables import MissAskerRow, MissRow
from mxr_registry.database.trail import ACTOR
from mxr_registry.json_text import stored

from . import models

log = logging.getLogger("mxr_registry")

LOCK_TIMEOUT = 0.25
"""Seconds to wait for a busy database before a miss is left unrecorded."""

WRITTEN = itertools.count(1)
"""Misses recorded by this process."""

TRIM_INTERVAL = 50
"""Number of recorded misses after which the oldest ones are removed, if there are too many."""

NAME = func.coalesce(models.label(MissRow.namespace, MissRow.model), MissRow.called).label("model_name")
"""What the model is called, or else what the client calls it that asked last."""


def record_miss(db: Database, namespace: str, request: Request | PartialRequest, context: Mapping[str, Any]) -> None:
    """Count a miss. If the database is busy, full or read-only, this is logged and raises no error.

    `context`: that of the error. A request of more than `MAX_MISS_BYTES` bytes is not recorded, and only the latest
    `MAX_MISSES` are kept. No transaction may be open: a second connection could be one too many.
    """
    text, facts = canonical(request.to_json()), request.key if isinstance(request, Request) else request
    name = sha256(text.encode()).hexdigest()
    if len(text.encode()) > MAX_MISS_BYTES:
        log.warning("the miss of %s was not recorded: its request has more than %d bytes", name, MAX_MISS_BYTES)
        return
    nearest, accept = context["nearest"], context.get("accept")
    nearest_json = canonical(nearest)
    try:
        with db.writing(lock_timeout=LOCK_TIMEOUT) as session:
            moment = now(session)
            changed = {
                "nearest_json": nearest_json if len(nearest_json) <= MAX_MISS_BYTES else "[]",
                "last_at": moment,
                "model": facts.model,
                "arch": facts.arch or facts.kind,
                "reason": context["reason"],
                "called": ACTOR.get().model_name,
                "accept_json": canonical(accept) if accept else None,
                "open_json": canonical(opened) if (opened := context.get("open")) else None,
            }
            new = {"digest": context.get("digest", name), "request_json": text, "count": 1, "first_at": moment}
            keys = {"namespace": namespace, "request": name}
            upsert(session, MissRow, keys, new | changed, changed | {"count": MissRow.count + 1})
            _record_asker(session, keys, moment)
            if next(WRITTEN) % TRIM_INTERVAL == 0:
                _trim(session, MissRow, namespace, MAX_MISSES)
                _trim(session, MissAskerRow, namespace, MAX_MISS_ASKERS)
            tallies.count(session, namespace, tallies.MISSED)
    except (MxrError, SQLAlchemyError) as problem:
        log.warning("the miss of %s was not recorded: %s", name, problem)


def _record_asker(session: Session, miss: Mapping[str, str], moment: float) -> None:
    """Record who asked. Of one principal, `MAX_MISS_HOSTS` hosts are kept for a miss: names come from clients."""
    row, actor = MissAskerRow, ACTOR.get()
    keys = {**miss, "principal": actor.principal[:100], "host": actor.host}
    same = [getattr(row, name) == value for name, value in keys.items()]
    if session.execute(update(row).where(*same).values(count=row.count + 1, last_at=moment)).rowcount:
        return
    if session.execute(select(func.count()).where(*same[:3])).scalar_one() >= MAX_MISS_HOSTS:
        return
    session.execute(insert(row).values(**keys, count=1, first_at=moment, last_at=moment))
    if actor.host:
        of = (MissRow.namespace == miss["namespace"], MissRow.request == miss["request"])
        session.execute(update(MissRow).where(*of).values(hosts=MissRow.hosts + 1))


def _trim(session: Session, row: Any, namespace: str, most: int) -> None:
    """Remove all but the latest rows."""
    latest = select(row.last_at).where(row.namespace == namespace).order_by(row.last_at.desc())
    oldest = session.execute(latest.offset(most - 1).limit(1)).scalar()
    if oldest is not None:
        session.execute(delete(row).where(row.namespace == namespace, row.last_at < oldest))


class MissFilters(ListFilters, frozen=True):
    """Filters of a list of misses."""

    limit: int = Field(default=1_000, description="How many items a page has at most.", ge=1, le=1_000)
    model: str | None = Field(default=None, max_length=300, description="The identity of the model, or its beginning.")
    name: str | None = Field(default=None, max_length=300, description="How the name of the model begins.")
    arch: str | None = Field(default=None, max_length=250, description="The GPU architecture.")
    reason: str | None = Field(default=None, max_length=20, description="Why there was no artifact.")
    by: str | None = Field(
        default=None, max_length=250, description="A host or a principal that asked, as far as the caller sees them."
    )
    hours: float | None = Field(default=None, gt=0, le=24 * 36_500, description="Asked in so many hours.")


def _matching(session: Session, namespace: str, filters: MissFilters, viewer: str | None) -> list[Any]:
    """The conditions of the filters. `viewer`: the principal whose own hosts it may know; None: all."""
    row, found = MissRow, [MissRow.namespace == namespace]
    found += filters.equal(row, "arch", "reason")
    if filters.model is not None:
        found.append(begins_with(row.model, filters.model))
    if filters.name is not None:
        found.append(begins_with(NAME.element, filters.name))
    if filters.hours is not None:
        found.append(row.last_at > now(session) - filters.hours * tallies.HOUR)
    if filters.by is not None:
        asker = MissAskerRow
        same = [asker.namespace == row.namespace, asker.request == row.request, *_seen_by(viewer)]
        found.append(exists().where(*same, or_(asker.host == filters.by, asker.principal == filters.by)))
    return found


def _seen_by(viewer: str | None) -> list[Any]:
    return [] if viewer is None else [MissAskerRow.principal == viewer]


def list_misses(session: Session, namespace: str, filters: MissFilters, viewer: str | None) -> Json:
    """Return one page of misses, latest first. `viewer`: the principal whose own hosts are told; None: all.

    Raises `UsageError`.
    """
    query = select(*MissRow.__table__.c, NAME).where(*_matching(session, namespace, filters, viewer))
    if filters.after is not None:
        last_at, request = read_cursor("misses", filters.after, float, str)
        earlier = (MissRow.last_at == last_at) & (MissRow.request > request)
        query = query.where((MissRow.last_at < last_at) | earlier)
    rows = query.order_by(MissRow.last_at.desc(), MissRow.request)
    page = list_page(session, rows, _listed, "misses", lambda row: (float(row.last_at), row.request), filters.limit)
    asked = _asked_by(session, namespace, [item["id"] for item in page["items"]], viewer)
    for item in page["items"]:
        item["asked_by"] = asked.get(item["id"], [])
    return page


def show_miss(session: Session, namespace: str, id: str, viewer: str | None) -> Json:
    """Return one miss by its id. Raises `NotFoundError`."""
    row = MissRow
    found = session.execute(
        select(*row.__table__.c, NAME).where(row.namespace == namespace, row.request == id)
    ).one_or_none()
    if found is None:
        raise NotFoundError(
            "This request is not among the misses that are kept.", hint="List them (`mxr misses`, `GET /v1/misses`)."
        )
    return _listed(found) | {"asked_by": _asked_by(session, namespace, [id], viewer).get(id, [])}


MOST_TOLD = 40
"""Archs that are counted: clients name them."""


def count_misses(session: Session, namespace: str, filters: MissFilters, viewer: str | None) -> dict[str, Any]:
    """Return how many misses match by reason and by arch, and by how many hosts. At most `MAX_MISSES` are counted."""
    where = _matching(session, namespace, filters, viewer)
    reasons, archs = (
        {
            value: count
            for value, count in session.execute(
                select(column, func.count())
                .where(*where)
                .group_by(column)
                .order_by(func.count().desc())
                .limit(MOST_TOLD)
            )
        }
        for column in (MissRow.reason, MissRow.arch)
    )
    # Another name for the table: the conditions may ask it, too.
    asker, since = aliased(MissAskerRow), 0.0 if filters.hours is None else now(session) - filters.hours * tallies.HOUR
    asked = (asker.namespace == namespace, asker.last_at > since, asker.host != "")
    matching = asker.request.in_(select(MissRow.request).where(*where))
    hosts = select(func.count(asker.host.distinct())).where(*asked, matching)
    return {"reasons": reasons, "archs": archs, "hosts": int(session.execute(hosts).scalar_one())}


def _asked_by(session: Session, namespace: str, requests: Sequence[str], viewer: str | None) -> dict[str, list[Json]]:
    """Return who asked last, as far as the viewer may know, by request."""
    row, found = MissAskerRow, dict[str, list[Json]]()
    place = func.row_number().over(partition_by=row.request, order_by=row.last_at.desc()).label("place")
    ranked = select(*row.__table__.c, place).where(
        row.namespace == namespace, row.request.in_(requests), *_seen_by(viewer)
    )
    latest = ranked.subquery()
    query = select(latest).where(latest.c.place <= MAX_ASKED_BY).order_by(latest.c.request, latest.c.place)
    for each in session.execute(query) if requests else ():
        last_at = time_text(each.last_at)
        asker = {"principal": each.principal, "host": each.host, "count": each.count, "last_at": last_at}
        found.setdefault(each.request, []).append(asker)
    return found


def _listed(row: Row) -> Json:
    return {
        "id": row.request,
        "digest": row.digest,
        "request": stored(row.request_json),
        "count": row.count,
        "first_at": time_text(row.first_at),
        "last_at": time_text(row.last_at),
        "nearest": stored(row.nearest_json),
        "reason": row.reason,
        "accept": stored(row.accept_json),
        "open": json.loads(row.open_json or "[]"),
        "model_name": row.model_name,
        "hosts": row.hosts,
    }
