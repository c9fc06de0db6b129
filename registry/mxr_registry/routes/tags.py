"""Routes for tags."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query, Response

from mxr.errors import Json
from mxr.protocol.tags import MoveTag, Tag, TagRevision, Tags
from mxr_registry.artifacts import tags
from mxr_registry.openapi import STORED, TAGGED, errors
from mxr_registry.server.bodies import Large
from mxr_registry.server.ranges import IfNoneMatch, not_modified

from .deps import CallerDep, PageQuery, ServicesDep, created, scoped_router

router = scoped_router(prefix="/v1/tags", tags=["tags"])

TagName = Annotated[str, Path(description="The name of the tag.")]
RevisionQuery = Annotated[int | None, Query(description="An earlier revision; without it, what the tag names now.")]


@router.get("", response_model=Tags)
def list_tags(services: ServicesDep, caller: CallerDep, page: PageQuery) -> Json:
    """List tags by name, with what each names now."""
    with services.db.reading() as session:
        return tags.list_tags(session, caller.namespace, page.after, page.limit)


@router.get("/{name}", responses=TAGGED | errors(404))
def get_tag(
    name: TagName,
    response: Response,
    services: ServicesDep,
    caller: CallerDep,
    revision: RevisionQuery = None,
    known: IfNoneMatch = None,
) -> Tag | Response:
    """Show what a tag names, or what it named.

    With the text of the lock. With `If-None-Match`, 304 says that the tag was not moved.
    """
    with services.db.reading() as session:
        found = tags.show_tag(session, caller.namespace, name, revision)
    tag = f'"{found.revision.revision}-{found.revision.sha256[:32]}"'
    response.headers["etag"] = tag
    return not_modified(known, tag) or found


@router.get("/{name}/revisions", response_model=Tags, responses=errors(404))
def list_tag_revisions(name: TagName, services: ServicesDep, caller: CallerDep) -> Json:
    """List the revisions of a tag, the latest first."""
    with services.db.reading() as session:
        return tags.list_revisions(session, caller.namespace, name)


@router.put("/{name}", responses=STORED | errors(404, 409, 410, 429))
def move_tag(
    name: TagName, message: Large[MoveTag], response: Response, services: ServicesDep, caller: CallerDep
) -> TagRevision:
    """Move a tag.

    To a lock, or back to one of its revisions; either is a new revision. Its artifacts are neither removed nor swept
    while a revision that is kept has them. 404 names the artifacts that do not exist; nothing changes then.
    """
    found, new = tags.move_tag(services.db, caller.namespace, name, message, caller.principal)
    created(response, f"/v1/tags/{name}?revision={found.revision}", new=new)
    return found


@router.delete("/{name}", responses=errors(404))
def remove_tag(name: TagName, services: ServicesDep, caller: CallerDep) -> TagRevision:
    """Remove a tag with its revisions.

    Return what it named. Its artifacts stay, and can be removed from now on.
    """

    def remove() -> TagRevision:
        with services.db.writing() as session:
            return tags.remove_tag(session, caller.namespace, name)

    return services.settings.reserve.run(remove)
