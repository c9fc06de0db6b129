"""Routes for blobs: find missing ones, upload one, download one."""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import Request, Response
from fastapi.responses import RedirectResponse

from mxr.artifact.manifest import Blob, check_sha256
from mxr.protocol import artifacts as artifact_protocol
from mxr.protocol.access import FETCH, WORK
from mxr.util import codec
from mxr_registry.access.caller import Caller
from mxr_registry.artifacts import blobs
from mxr_registry.openapi.operations import BYTES, DOWNLOAD, ETAG, LOCATION, RANGES, Success, header, operation, query
from mxr_registry.storage.s3_settings import is_loopback
from mxr_registry.storage.store import ChunkSize

from .bodies import LargeBodyDep, decode_body
from .deps import BlobSha256, CallerDep, RequesterDep, ServicesDep, reply, scoped_router, stored_reply
from .methods import fixed_path
from .ranges import bytes_response
from .uploads import receive

router = scoped_router(prefix="/v1/blobs", tags=["blobs"])
fixed_path(router, "/missing", "GET", "HEAD", "PUT")


@router.post(
    "/missing",
    summary="List which of these blobs the registry lacks",
    **operation(
        "find_missing_blobs",
        {200: Success("The blobs to upload.", artifact_protocol.Missing)},
        takes=artifact_protocol.MissingRequest,
    ),
)
def missing(body: LargeBodyDep, services: ServicesDep, caller: CallerDep) -> Response:
    """The blobs to upload: those that it lacks, and those that only others uploaded.

    The registry keeps the other requested blobs for at least `grace` seconds."""
    wanted = decode_body(artifact_protocol.MissingRequest, body)
    found = blobs.missing(services.db, services.store, caller.namespace, caller.owner, wanted.blobs)
    return reply(codec.canonical({"missing": found, "grace": services.settings.grace}))


@router.put(
    "/{sha256}",
    summary="Upload a blob",
    **operation(
        "upload_blob",
        {201: Success("The blob is stored.", Blob, LOCATION)},
        takes=BYTES,
        parameters=(header(artifact_protocol.FOLLOWS_HEADER, "What is before the blob in its file: sha256s."),),
    ),
)
async def upload(
    sha256: BlobSha256, request: Request, services: ServicesDep, caller: CallerDep, client: RequesterDep
) -> Response:
    """The body is the raw bytes, hashed while they arrive. The same bytes may come twice.

    The answer is 201 then, too: it does not tell what other namespaces have.
    """
    return stored_reply(await receive(request, services, caller, client, check_sha256(sha256)), "/v1/blobs")


@router.head("/{sha256}", operation_id="download_blob", include_in_schema=False)
@router.get(
    "/{sha256}",
    summary="Download a blob",
    **operation(
        "download_blob",
        {
            200: Success("The whole blob.", headers=DOWNLOAD, media_type=BYTES),
            206: Success("The range.", headers={**DOWNLOAD, "Content-Range": "The range."}, media_type=BYTES),
            304: Success("The blob is immutable.", headers=ETAG),
            307: Success("The blob is at this signed URL.", headers={"Location": "The signed URL."}),
        },
        errors=(404, 416),
        parameters=(query("direct", "`no`: the registry sends the bytes itself.", enum=["yes", "no"]), *RANGES),
    ),
)
def blob_bytes(sha256: BlobSha256, request: Request, services: ServicesDep, caller: CallerDep) -> Response:
    """The blob or one range of it, or a redirect to a signed URL. `direct=no` in the query disables the redirect.

    The scope `fetch` reads the bytes of artifacts, and `work` those of models and their calibration data.
    """
    size = blobs.size_of(services.db, caller.namespace, check_sha256(sha256), _purposes(caller))
    # The row answers HEAD, and a signed URL is valid for one method only.
    if request.method == "GET" and request.query_params.get("direct") != "no":
        signed_url = services.store.url(sha256, _is_local(request))
        if signed_url is not None:
            return RedirectResponse(signed_url, 307, {"cache-control": "private, no-store"})

    def chunks(start: int, length: int, chunk: ChunkSize) -> Iterator[bytes]:
        reader = blobs.open_blob(services.store, Blob(sha256, size), start, length)
        reader.chunk = chunk
        return iter(reader)

    headers = {"cache-control": "private, max-age=31536000, immutable"}
    return bytes_response(request, sha256, size, chunks, headers, services.downloads)


def _purposes(caller: Caller) -> set[str] | None:
    if caller.is_admin:
        return None
    reads = {FETCH: blobs.PROGRAMS, WORK: blobs.MODELS}
    return {reads[scope] for scope in caller.scopes & reads.keys()}


def _is_local(request: Request) -> bool:
    """Whether the client runs on this machine. The location of a client behind a proxy is unknown."""
    forwarded = any(name in request.headers for name in ("x-forwarded-for", "forwarded", "via"))
    return not forwarded and request.client is not None and is_loopback(request.client.host)
