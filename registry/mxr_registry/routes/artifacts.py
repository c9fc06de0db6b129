"""Artifacts over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

from fastapi import APIRouter, Request, Response

from mxr.protocol import artifacts as artifact_protocol
from mxr_registry.artifacts import blobs, catalog, publication

from .deps import Body, By, InServices, read, reply
from .ranges import answer
from .schemas import body

router = APIRouter(prefix="/v1/artifacts", tags=["artifacts"])

FILTERS = [
    {"name": name, "in": "query", "required": False, "schema": {"type": "integer" if name == "limit" else "string"}}
    for name in catalog.ArtifactFilters.__dataclass_fields__
]


@router.get("", summary="Artifacts, the newest first", openapi_extra={"parameters": FILTERS})
def list_artifacts(request: Request, rooms: InServices, by: By) -> Response:
    """A page of artifacts without manifests and descriptions; `next` is the `after` of the next page."""
    filters = catalog.ArtifactFilters.read(request.query_params)
    with rooms.db.reading() as session:
        return reply(catalog.listed(session, by.namespace, filters))


@router.post("", summary="Publish an artifact", openapi_extra=body(artifact_protocol.Publish), status_code=201)
def publish(wanted: Body, rooms: InServices, by: By) -> Response:
    """201 for a new one, 200 where the same bytes are published for this key already."""
    publish = read(artifact_protocol.Publish, wanted)
    text, new = publication.publish(rooms.db, rooms.store, rooms.inspect, by.namespace, publish)
    return reply(text, 201 if new else 200)


@router.get("/{id}", summary="One artifact with manifest and description")
def show_artifact(id: str, rooms: InServices, by: By) -> Response:
    """`id` may be cut short to 8 digits or more that no other artifact begins with; so everywhere below."""
    with rooms.db.reading() as session:
        return reply(catalog.show(session, by.namespace, id))


@router.post("/{id}/promote", summary="Make an artifact the first choice")
def promote(id: str, rooms: InServices, by: By) -> Response:
    """The latest promotion comes before all others that serve the same request."""
    with rooms.db.writing() as session:
        return reply(catalog.promote(session, by.namespace, id))


@router.delete("/{id}", summary="Remove an artifact")
def remove(id: str, rooms: InServices, by: By) -> Response:
    """The artifact as it was. Its blobs stay until a sweep. 403 names the registered locks that pin it."""
    with rooms.db.writing() as session:
        return reply(catalog.remove(session, by.namespace, id))


@router.head("/{id}/files/{name:path}", include_in_schema=False)
@router.get("/{id}/files/{name:path}", summary="The bytes of one file")
def file_bytes(id: str, name: str, request: Request, rooms: InServices, by: By) -> Response:
    """The whole file, or one range of it; the entity tag is its sha256."""
    with rooms.db.reading() as session:
        row = catalog.find(session, by.namespace, id)
    file = catalog.file_of(row, name)
    if request.method == "GET" and "range" not in request.headers:
        rooms.tally.count(by.namespace, row.id)

    def chunks(start: int, length: int) -> Iterator[bytes]:
        return blobs.stretch(rooms.store, file, start, length)

    last = quote(file.name.rpartition("/")[2])
    return answer(
        request, file.sha256, file.size, chunks, {"content-disposition": f"attachment; filename*=UTF-8''{last}"}
    )
