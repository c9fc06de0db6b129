"""Registered locks over HTTP."""

from __future__ import annotations

from fastapi import APIRouter, Response

from mxr.protocol import artifacts as artifact_protocol
from mxr_registry.artifacts import locks

from .deps import Body, By, InServices, read, reply
from .schemas import body

router = APIRouter(prefix="/v1/locks", tags=["locks"])


@router.get("", summary="Registered locks, by name")
def list_locks(rooms: InServices, by: By) -> Response:
    """Each with the ids of the artifacts that it pins."""
    with rooms.db.reading() as session:
        return reply(locks.listed(session, by.namespace))


@router.get("/{name}", summary="One registered lock")
def show_lock(name: str, rooms: InServices, by: By) -> Response:
    """With the ids of the artifacts that it pins."""
    with rooms.db.reading() as session:
        return reply(locks.show(session, by.namespace, name))


@router.put(
    "/{name}", summary="Register a lock, or replace what it pins", openapi_extra=body(artifact_protocol.PutLock)
)
def put_lock(name: str, wanted: Body, rooms: InServices, by: By) -> Response:
    """What it pins is neither removed nor swept. 404 names the artifacts that are not here; then nothing changes."""
    return reply(locks.put(rooms.db, by.namespace, name, read(artifact_protocol.PutLock, wanted).artifacts))


@router.delete("/{name}", summary="Forget a registered lock")
def remove_lock(name: str, rooms: InServices, by: By) -> Response:
    """The lock as it was. Its artifacts stay, and may be removed from now on."""
    with rooms.db.writing() as session:
        return reply(locks.remove(session, by.namespace, name))
