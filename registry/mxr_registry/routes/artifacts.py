"""Routes for artifacts: list, publish, show, promote, remove, and download files."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool

from mxr.protocol import artifacts as artifact_protocol
from mxr_registry.artifacts import blobs, catalog, publication
from mxr_registry.storage.store import ChunkSize

from .bodies import LargeBodyDep, decode_body
from .deps import CallerDep, ServicesDep, reply, stored_reply
from .ranges import bytes_response, not_modified, tagged
from .schemas import request_body

router = APIRouter(prefix="/v1/artifacts", tags=["artifacts"])

FILTERS = [
    {"name": name, "in": "query", "required": False, "schema": {"type": "integer" if name == "limit" else "string"}}
    for name in catalog.ArtifactFilters.__dataclass_fields__
]


@router.get("", summary="List artifacts, newest first", openapi_extra={"parameters": FILTERS})
def list_artifacts(request: Request, services: ServicesDep, caller: CallerDep) -> Response:
    """One page of artifacts, without manifests and descriptions. Pass `next` as `after` to get the next page."""
    filters = catalog.ArtifactFilters.read(request.query_params)
    with services.db.reading() as session:
        return reply(catalog.list_artifacts(session, caller.namespace, filters))


@router.post("", summary="Publish an artifact", openapi_extra=request_body(artifact_protocol.Publish), status_code=201)
async def publish(body: LargeBodyDep, services: ServicesDep, caller: CallerDep) -> Response:
    """Return 201 for a new artifact, and 200 if the same bytes are already published for this key.

    409 if they were published with other attributes; `amend` replaces the attributes of an artifact that you pushed.
    """
    wanted = await run_in_threadpool(decode_body, artifact_protocol.Publish, body)
    known = (services.db, services.store, services.inspect, caller.namespace, caller.principal)
    found = await services.checking.run(caller.address, publication.publish, *known, wanted)
    return stored_reply(found, "/v1/artifacts")


@router.get("/{id}", summary="Show one artifact with its manifest and description")
def show_artifact(id: str, request: Request, services: ServicesDep, caller: CallerDep) -> Response:
    """`id` may be a unique prefix of 8 or more digits. This holds for every route with an artifact id.

    With `If-None-Match`, 304 says that the artifact is still there and unchanged.
    """
    with services.db.reading() as session:
        row = catalog.find_artifact(session, caller.namespace, id)
    tag = catalog.etag_of(row, catalog.fields_of(row, services.db.serve))
    return not_modified(request, tag) or tagged(reply(catalog.show_row(row, services.db.serve)), tag)


@router.post("/{id}/promote", summary="Promote an artifact")
def promote(id: str, services: ServicesDep, caller: CallerDep) -> Response:
    """The artifact promoted last is preferred over all others that serve the same request."""
    with services.db.writing() as session:
        return reply(catalog.promote_artifact(session, caller.namespace, id))


@router.delete("/{id}", summary="Remove an artifact")
def remove(id: str, services: ServicesDep, caller: CallerDep) -> Response:
    """Return the removed artifact. Its blobs stay until a sweep. 403 names the registered locks that pin it."""
    with services.db.writing() as session:
        return reply(catalog.remove_artifact(session, caller.namespace, id))


@router.head("/{id}/files/{name:path}", include_in_schema=False)
@router.get("/{id}/files/{name:path}", summary="Download one file of an artifact")
def file_bytes(id: str, name: str, request: Request, services: ServicesDep, caller: CallerDep) -> Response:
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
