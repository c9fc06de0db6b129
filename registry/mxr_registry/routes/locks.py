"""Routes for registered locks."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from mxr.protocol import artifacts as artifact_protocol
from mxr.util.hashing import sha256_hex
from mxr_registry.artifacts import locks
from mxr_registry.database.paging import MAX_ROWS

from .bodies import LargeBodyDep, decode_body
from .deps import AfterQuery, CallerDep, LimitQuery, ServicesDep, reply, stored_reply
from .ranges import not_modified, tagged
from .schemas import request_body

router = APIRouter(prefix="/v1/locks", tags=["locks"])


@router.get("", summary="List registered locks by name")
def list_locks(
    services: ServicesDep, caller: CallerDep, after: AfterQuery = None, limit: LimitQuery = MAX_ROWS
) -> Response:
    """Each lock comes with the ids of the artifacts that it pins."""
    with services.db.reading() as session:
        return reply(locks.list_locks(session, caller.namespace, after, limit))


@router.get("/{name}", summary="Show one registered lock")
def show_lock(name: str, request: Request, services: ServicesDep, caller: CallerDep) -> Response:
    """The lock with the ids of the artifacts that it pins. With `If-None-Match`, 304 says that it is unchanged."""
    with services.db.reading() as session:
        text = locks.show_lock(session, caller.namespace, name)
    tag = f'"{sha256_hex(text.encode())[:32]}"'
    return not_modified(request, tag) or tagged(reply(text), tag)


@router.put(
    "/{name}", summary="Register a lock, or replace what it pins", openapi_extra=request_body(artifact_protocol.PutLock)
)
def put_lock(name: str, body: LargeBodyDep, services: ServicesDep, caller: CallerDep) -> Response:
    """Pinned artifacts cannot be removed or swept. 404 names the artifacts that do not exist; nothing changes then."""
    wanted = decode_body(artifact_protocol.PutLock, body)
    return stored_reply(locks.register_lock(services.db, caller.namespace, name, wanted.artifacts), "/v1/locks")


@router.delete("/{name}", summary="Unregister a lock")
def remove_lock(name: str, services: ServicesDep, caller: CallerDep) -> Response:
    """Return the removed lock. Its artifacts stay, and can be removed from now on."""
    with services.db.writing() as session:
        return reply(locks.unregister_lock(session, caller.namespace, name))
