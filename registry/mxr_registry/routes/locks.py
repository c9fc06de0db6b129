"""Routes for registered locks."""

from __future__ import annotations

from fastapi import Response

from mxr.errors import Json
from mxr.protocol.access import PROMOTE
from mxr.protocol.artifacts import Locks, PutLock, RegisteredLock
from mxr.util.codec import canonical, encode
from mxr.util.hashing import sha256_hex
from mxr_registry.access.scopes import Caller
from mxr_registry.artifacts import locks
from mxr_registry.openapi import STORED, TAGGED, errors
from mxr_registry.server.bodies import Large
from mxr_registry.server.ranges import IfNoneMatch, not_modified

from .deps import CallerDep, LockName, PageQuery, ServicesDep, created, scoped_router

router = scoped_router(prefix="/v1/locks", tags=["locks"])


@router.get("", response_model=Locks)
def list_locks(services: ServicesDep, caller: CallerDep, page: PageQuery) -> Json:
    """List registered locks by name.

    Each lock comes with the ids of the artifacts that it pins.
    """
    with services.db.reading() as session:
        return locks.list_locks(session, caller.namespace, page.after, page.limit)


@router.get("/{name}", responses=TAGGED | errors(404))
def get_lock(
    name: LockName, response: Response, services: ServicesDep, caller: CallerDep, known: IfNoneMatch = None
) -> RegisteredLock | Response:
    """Show one registered lock.

    The lock with the ids of the artifacts that it pins. With `If-None-Match`, 304 says that it is unchanged.
    """
    with services.db.reading() as session:
        lock = locks.show_lock(session, caller.namespace, name)
    tag = f'"{sha256_hex(canonical(encode(lock)).encode())[:32]}"'
    response.headers["etag"] = tag
    return not_modified(known, tag) or lock


@router.put("/{name}", responses=STORED | errors(404, 409, 429))
def put_lock(
    name: LockName, message: Large[PutLock], response: Response, services: ServicesDep, caller: CallerDep
) -> RegisteredLock:
    """Register a lock, or replace what it pins.

    Pinned artifacts cannot be removed or swept. 404 names the artifacts that do not exist; nothing changes then. A
    publisher changes its own locks; the scope `promote` allows to change each.
    """
    known = (services.db, caller.namespace, name, message.artifacts, caller.principal, _owner(caller))
    lock, new = locks.register_lock(*known)
    created(response, f"/v1/locks/{name}", new=new)
    return lock


@router.delete("/{name}", responses=errors(404))
def remove_lock(name: LockName, services: ServicesDep, caller: CallerDep) -> RegisteredLock:
    """Unregister a lock.

    Return the removed lock. Its artifacts stay, and can be removed from now on.
    """

    def remove() -> RegisteredLock:
        with services.db.writing() as session:
            return locks.unregister_lock(session, caller.namespace, name, _owner(caller))

    return services.settings.reserve.run(remove)


def _owner(caller: Caller) -> str | None:
    return None if caller.may((PROMOTE,)) else caller.owner
