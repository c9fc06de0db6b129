"""Routes for artifacts: list, publish, show, promote, remove, and download files."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool

from mxr.artifact import matching
from mxr.errors import NotAllowedError
from mxr.protocol import artifacts as artifact_protocol
from mxr_registry.artifacts import blobs, catalog, publication
from mxr_registry.artifacts.checked_publication import PublicationSource
from mxr_registry.database.paging import MAX_ROWS
from mxr_registry.openapi.operations import (
    AFTER,
    ARTIFACT_FILTERS,
    BYTES,
    DOWNLOAD,
    ETAG,
    IF_NONE_MATCH,
    LOCATION,
    RANGES,
    Success,
    limit_query,
    operation,
    query,
)
from mxr_registry.storage.store import ChunkSize

from .bodies import LargeBodyDep, decode_body
from .deps import ArtifactId, CallerDep, FileName, RequesterDep, ServicesDep, reply, scoped_router, stored_reply
from .ranges import bytes_response, not_modified, tagged

router = scoped_router(prefix="/v1/artifacts", tags=["artifacts"])

FILTERS = (
    *ARTIFACT_FILTERS,
    query("digest", "The digest of the key."),
    query("name", "How the name of the model begins."),
    query("precision", "The precision, such as `fp16`."),
    query("input", "The name of an input."),
    AFTER,
    limit_query(MAX_ROWS, 100),
)


@router.get(
    "",
    summary="List artifacts, newest first",
    **operation("list_artifacts", {200: Success("One page.", artifact_protocol.Artifacts)}, parameters=FILTERS),
)
def list_artifacts(request: Request, services: ServicesDep, caller: CallerDep) -> Response:
    """One page of artifacts, without manifests and descriptions. Pass `next` as `after` to get the next page."""
    filters = catalog.ArtifactFilters.read(request.query_params)
    with services.db.reading() as session:
        return reply(catalog.list_artifacts(session, caller.namespace, filters))


@router.post(
    "",
    summary="Publish an artifact",
    **operation(
        "publish_artifact",
        {
            200: Success("The same bytes are published for this key already.", artifact_protocol.Artifact),
            201: Success("The new artifact.", artifact_protocol.Artifact, LOCATION),
        },
        takes=artifact_protocol.Publish,
        errors=(404, 409, 429),
    ),
)
async def publish(body: LargeBodyDep, services: ServicesDep, caller: CallerDep, client: RequesterDep) -> Response:
    """Return 201 for a new artifact, and 200 if the same bytes are already published for this key.

    409 if they were published with other attributes, or for another model, or if the artifact was removed. `intent`
    says that it is meant.
    """
    message = await run_in_threadpool(decode_body, artifact_protocol.Publish, body)
    source = PublicationSource(matching.PUSHED, caller.principal, admin=caller.owner is None)
    known = (services.db, services.store, services.inspect, caller.namespace, source)
    found = await services.checking.run(client, publication.publish, *known, message)
    return stored_reply(found, "/v1/artifacts")


@router.get(
    "/{id}",
    summary="Show one artifact with its manifest and description",
    **operation(
        "get_artifact",
        {
            200: Success("The artifact.", artifact_protocol.Artifact, ETAG),
            304: Success("It is still there and unchanged.", headers=ETAG),
        },
        errors=(404,),
        parameters=(IF_NONE_MATCH,),
    ),
)
def show_artifact(id: ArtifactId, request: Request, services: ServicesDep, caller: CallerDep) -> Response:
    """`id` may be a unique prefix of 8 or more digits. This holds for every route with an artifact id.

    With `If-None-Match`, 304 says that the artifact is still there and unchanged.
    """
    with services.db.reading() as session:
        row = catalog.find_artifact(session, caller.namespace, id)
    tag = catalog.etag_of(row, catalog.fields_of(row, services.db.serve))
    return not_modified(request, tag) or tagged(reply(catalog.show_row(row, services.db.serve)), tag)


@router.post(
    "/{id}/promote",
    summary="Promote an artifact",
    **operation("promote_artifact", {200: Success("The artifact.", artifact_protocol.Artifact)}, errors=(404,)),
)
def promote(id: ArtifactId, services: ServicesDep, caller: CallerDep) -> Response:
    """The artifact promoted last is preferred over all others that serve the same request."""
    with services.db.writing() as session:
        return reply(catalog.promote_artifact(session, caller.namespace, id))


@router.delete(
    "/{id}",
    summary="Remove an artifact",
    **operation(
        "remove_artifact",
        {200: Success("The removed artifact.", artifact_protocol.Artifact)},
        errors=(404,),
        parameters=(query("force", "`yes`: take it out of the locks that pin it.", enum=["yes", "no"], default="no"),),
    ),
)
def remove(id: ArtifactId, request: Request, services: ServicesDep, caller: CallerDep) -> Response:
    """Return the removed artifact. Its blobs stay until a sweep. 403 names the registered locks that pin it.

    A publisher removes what it pushed; an administrator everything, with `force=yes` also what locks pin.
    """
    force = request.query_params.get("force") == "yes"
    if force and not caller.is_admin:
        raise NotAllowedError(
            f"Only an administrator may remove what locks pin, and {caller.principal} is none.",
            hint="Remove it without `force`, or ask an administrator.",
        )
    by = (caller.principal, caller.owner)
    with services.db.writing() as session:
        return reply(catalog.remove_artifact(session, caller.namespace, id, *by, force=force))


@router.head("/{id}/files/{name:path}", operation_id="download_artifact_file", include_in_schema=False)
@router.get(
    "/{id}/files/{name:path}",
    summary="Download one file of an artifact",
    **operation(
        "download_artifact_file",
        {
            200: Success("The whole file.", headers=DOWNLOAD, media_type=BYTES),
            206: Success("The range.", headers={**DOWNLOAD, "Content-Range": "The range."}, media_type=BYTES),
            304: Success("The file has this entity tag.", headers=ETAG),
        },
        errors=(404, 416),
        parameters=RANGES,
    ),
)
def file_bytes(id: ArtifactId, name: FileName, request: Request, services: ServicesDep, caller: CallerDep) -> Response:
    """The whole file or one range of it. The entity tag is the sha256 of the file."""
    with services.db.reading() as session:
        row = catalog.find_artifact(session, caller.namespace, id)
    file = catalog.file_of(row, name)
    if request.method == "GET" and "range" not in request.headers:
        services.usage.count(caller.namespace, row.id)

    def chunks(start: int, length: int, chunk: ChunkSize) -> Iterator[bytes]:
        return blobs.file_range(services.store, file, start, length, chunk)

    base_name = quote(file.name.rpartition("/")[2])
    headers = {"content-disposition": f"attachment; filename*=UTF-8''{base_name}"}
    return bytes_response(request, file.sha256, file.size, chunks, headers, services.downloads)
