"""Routes for artifacts: list, publish, show, promote, remove, and download files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal
from urllib.parse import quote

from fastapi import Query, Request, Response

from mxr.artifact import matching
from mxr.errors import Json, NotAllowedError
from mxr.protocol.artifacts import RECALLS_HEADER, Artifact, Artifacts, Publish
from mxr_registry.artifacts import blobs, catalog, publication
from mxr_registry.artifacts.amendment import PublicationSource
from mxr_registry.openapi import DOWNLOAD, STORED, TAGGED, errors
from mxr_registry.server.bodies import Large
from mxr_registry.server.ranges import IfNoneMatch, RangesDep, bytes_response, not_modified
from mxr_registry.storage.store import ChunkSize

from .deps import ArtifactId, CallerDep, FileName, RequesterDep, ServicesDep, created, scoped_router

router = scoped_router(prefix="/v1/artifacts", tags=["artifacts"])


@router.get("", response_model=Artifacts)
def list_artifacts(
    services: ServicesDep, caller: CallerDep, filters: Annotated[catalog.ArtifactFilters, Query()]
) -> Json:
    """List artifacts, newest first.

    One page of artifacts, without manifests and descriptions. Pass `next` as `after` to get the next page.
    """
    with services.db.reading() as session:
        return catalog.list_artifacts(session, caller.namespace, filters)


@router.post("", response_model=Artifact, responses=STORED | errors(404, 409, 429))
async def publish_artifact(
    message: Large[Publish], response: Response, services: ServicesDep, caller: CallerDep, client: RequesterDep
) -> Json:
    """Publish an artifact.

    Return 201 for a new artifact, and 200 if the same bytes are already published for this key. 409 if they were
    published with other attributes, or for another model, or if the artifact was removed. `intent` says that it is
    meant.
    """
    source = PublicationSource(matching.PUSHED, caller.principal, admin=caller.owner is None)
    known = (services.db, services.store, services.inspect, caller.namespace, source)
    artifact, new = await services.checking.run(client, publication.publish, *known, message)
    created(response, f"/v1/artifacts/{artifact['id']}", new=new)
    return artifact


@router.get("/{id}", response_model=Artifact, responses=TAGGED | errors(404))
def get_artifact(
    id: ArtifactId, response: Response, services: ServicesDep, caller: CallerDep, known: IfNoneMatch = None
) -> Json | Response:
    """Show one artifact with its manifest and description.

    `id` may be a unique prefix of 8 or more digits. This holds for every route with an artifact id. With
    `If-None-Match`, 304 says that the artifact is still there and unchanged.
    """
    with services.db.reading() as session:
        row = catalog.find_artifact(session, caller.namespace, id)
    tag = catalog.etag_of(row, services.db.serve)
    told = {"etag": tag, RECALLS_HEADER: str(row.recalls or 0)}
    response.headers.update(told)
    if (same := not_modified(known, tag)) is not None:
        same.headers.update(told)
        return same
    return catalog.show_row(row, services.db.serve)


@router.post("/{id}/promote", response_model=Artifact, responses=errors(404, 429))
def promote_artifact(id: ArtifactId, services: ServicesDep, caller: CallerDep) -> Json:
    """Promote an artifact.

    The artifact promoted last is preferred over all others that serve the same request.
    """
    with services.db.writing() as session:
        return catalog.promote_artifact(session, caller.namespace, id)


@router.delete("/{id}", response_model=Artifact, responses=errors(404, 409))
def remove_artifact(
    id: ArtifactId,
    services: ServicesDep,
    caller: CallerDep,
    force: Annotated[Literal["yes", "no"], Query(description="`yes`: take it out of the locks that pin it.")] = "no",
) -> Json:
    """Remove an artifact.

    Return the removed artifact. Its blobs stay until a sweep. 403 names the registered locks that pin it, and 409 says
    that somebody used it, so that copies live on in caches: yank or quarantine it first. A publisher removes what it
    pushed; an administrator everything, with `force=yes` also what locks pin and what was used.
    """
    if force == "yes" and not caller.is_admin:
        raise NotAllowedError(
            f"Only an administrator may remove what locks pin, and {caller.principal} is none.",
            hint="Remove it without `force`, or ask an administrator.",
        )
    by = (caller.principal, caller.owner)

    def remove() -> Json:
        with services.db.writing() as session:
            return catalog.remove_artifact(
                session, caller.namespace, id, *by, force=force == "yes", counted=services.usage.counted
            )

    return services.settings.reserve.run(remove)


@router.head("/{id}/files/{name:path}", include_in_schema=False)
@router.get("/{id}/files/{name:path}", responses=DOWNLOAD | errors(404, 410, 416))
def download_artifact_file(
    id: ArtifactId, name: FileName, request: Request, wanted: RangesDep, services: ServicesDep, caller: CallerDep
) -> Response:
    """Download one file of an artifact.

    The whole file or one range of it. The entity tag is the sha256 of the file. 410: the artifact is quarantined.
    """
    with services.db.reading() as session:
        row = catalog.find_artifact(session, caller.namespace, id)
    catalog.refuse_quarantined(row)
    file = catalog.file_of(row, name)
    if request.method == "GET" and wanted.range is None:
        services.usage.count(caller.namespace, row.id)

    def chunks(start: int, length: int, chunk: ChunkSize) -> Iterator[bytes]:
        return blobs.file_range(services.store, file, start, length, chunk)

    base_name = quote(file.name.rpartition("/")[2])
    headers = {"content-disposition": f"attachment; filename*=UTF-8''{base_name}"}
    return bytes_response(request, wanted, file.sha256, file.size, chunks, headers, services.downloads)
