"""Routes for registered locks."""

from __future__ import annotations

from fastapi import Request, Response

from mxr.protocol import artifacts as artifact_protocol
from mxr.protocol.access import PROMOTE
from mxr.util.hashing import sha256_hex
from mxr_registry.access.scopes import Caller
from mxr_registry.artifacts import locks
from mxr_registry.database.paging import MAX_ROWS
from mxr_registry.openapi.operations import ETAG, IF_NONE_MATCH, LOCATION, Success, operation

from .bodies import LargeBodyDep, decode_body
from .deps import AfterQuery, CallerDep, LimitQuery, LockName, ServicesDep, reply, scoped_router, stored_reply
from .ranges import not_modified, tagged

router = scoped_router(prefix="/v1/locks", tags=["locks"])


@router.get(
    "",
    summary="List registered locks by name",
    **operation("list_locks", {200: Success("One page.", artifact_protocol.Locks)}),
)
def list_locks(
    services: ServicesDep, caller: CallerDep, after: AfterQuery = None, limit: LimitQuery = MAX_ROWS
) -> Response:
    """Each lock comes with the ids of the artifacts that it pins."""
    with services.db.reading() as session:
        return reply(locks.list_locks(session, caller.namespace, after, limit))


@router.get(
    "/{name}",
    summary="Show one registered lock",
    **operation(
        "get_lock",
        {
            200: Success("The lock.", artifact_protocol.RegisteredLock, ETAG),
            304: Success("It is unchanged.", headers=ETAG),
        },
        errors=(404,),
        parameters=(IF_NONE_MATCH,),
    ),
)
def show_lock(name: LockName, request: Request, services: ServicesDep, caller: CallerDep) -> Response:
    """The lock with the ids of the artifacts that it pins. With `If-None-Match`, 304 says that it is unchanged."""
    with services.db.reading() as session:
        text = locks.show_lock(session, caller.namespace, name)
    tag = f'"{sha256_hex(text.encode())[:32]}"'
    return not_modified(request, tag) or tagged(reply(text), tag)


@router.put(
    "/{name}",
    summary="Register a lock, or replace what it pins",
    **operation(
        "put_lock",
        {
            200: Success("The lock pins these artifacts instead.", artifact_protocol.RegisteredLock),
            201: Success("The new lock.", artifact_protocol.RegisteredLock, LOCATION),
        },
        takes=artifact_protocol.PutLock,
        errors=(404, 409),
    ),
)
def put_lock(name: LockName, body: LargeBodyDep, services: ServicesDep, caller: CallerDep) -> Response:
    """Pinned artifacts cannot be removed or swept. 404 names the artifacts that do not exist; nothing changes then.

    A publisher changes its own locks; the scope `promote` allows to change each.
    """
    message = decode_body(artifact_protocol.PutLock, body)
    known = (services.db, caller.namespace, name, message.artifacts, caller.principal, _owner(caller))
    return stored_reply(locks.register_lock(*known), "/v1/locks")


@router.delete(
    "/{name}",
    summary="Unregister a lock",
    **operation("remove_lock", {200: Success("The removed lock.", artifact_protocol.RegisteredLock)}, errors=(404,)),
)
def remove_lock(name: LockName, services: ServicesDep, caller: CallerDep) -> Response:
    """Return the removed lock. Its artifacts stay, and can be removed from now on."""
    with services.db.writing() as session:
        return reply(locks.unregister_lock(session, caller.namespace, name, _owner(caller)))


def _owner(caller: Caller) -> str | None:
    return None if caller.may((PROMOTE,)) else caller.owner
