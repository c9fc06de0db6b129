"""Blobs over HTTP: which are missing, one in, one out."""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from mxr.artifact.manifest import Blob, check_sha256
from mxr.protocol import artifacts as artifact_protocol
from mxr.util import codec
from mxr_registry.artifacts import blobs
from mxr_registry.storage.place import loopback

from .deps import Body, By, InServices, read, reply
from .intake import receive
from .ranges import answer
from .schemas import body

router = APIRouter(prefix="/v1/blobs", tags=["blobs"])


@router.post(
    "/missing", summary="Which of these are not here yet?", openapi_extra=body(artifact_protocol.MissingRequest)
)
def missing(asked: Body, rooms: InServices, by: By) -> Response:
    """The blobs to upload. One that is not named stays at least `grace` seconds."""
    wanted = read(artifact_protocol.MissingRequest, asked)
    found = blobs.missing(rooms.db, rooms.store, by.namespace, wanted.blobs)
    return reply(codec.canonical({"missing": found, "grace": rooms.settings.grace}))


@router.put("/{sha256}", summary="Upload a blob", status_code=201)
async def upload(sha256: str, request: Request, rooms: InServices, by: By) -> Response:
    """The raw bytes as the body, checked while they are read. The same bytes twice is fine."""
    size = await receive(request, rooms, by.namespace, check_sha256(sha256))
    return reply(codec.canonical({"sha256": sha256, "size": size}), 201)


@router.head("/{sha256}", include_in_schema=False)
@router.get("/{sha256}", summary="The bytes of a blob")
def blob_bytes(sha256: str, request: Request, rooms: InServices, by: By) -> Response:
    """The blob or one range of it; or a redirect to a signed URL, unless the query says `direct=no`."""
    size = blobs.size_of(rooms.db, by.namespace, check_sha256(sha256))
    # What HEAD tells the row knows; and a URL is signed for one method.
    if request.method == "GET" and request.query_params.get("direct") != "no":
        elsewhere = rooms.store.url(sha256, _near(request))
        if elsewhere is not None:
            return RedirectResponse(elsewhere, 307, {"cache-control": "private, no-store"})

    def chunks(start: int, length: int) -> Iterator[bytes]:
        blobs.check(rooms.store, Blob(sha256, size))
        return iter(rooms.store.open(sha256, start, length))

    return answer(request, sha256, size, chunks, {"cache-control": "private, max-age=31536000, immutable"})


def _near(request: Request) -> bool:
    """Whether the client is on this machine; whoever comes through a proxy may be anywhere."""
    forwarded = any(name in request.headers for name in ("x-forwarded-for", "forwarded", "via"))
    return not forwarded and request.client is not None and loopback(request.client.host)
