"""Routes for blobs: find missing ones, upload one, download one.

The code of an upload is `async` because it waits for the client. Hashing, writing and syncing run in a thread, one
chunk at a time. It opens its file with the first chunk: a client that sends nothing holds a connection only. Of an
interrupted upload nothing is kept.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from typing import Annotated, Literal

import xxhash
from fastapi import Header, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse
from starlette.requests import ClientDisconnect

from mxr.artifact.manifest import NO_CHAIN, Blob, check_sha256
from mxr.artifact.packed import Unpacker
from mxr.errors import InterruptionError, TooLargeError, UsageError
from mxr.protocol.access import FETCH, WORK
from mxr.protocol.artifacts import FOLLOWS_HEADER, MAX_FOLLOWED, Missing, MissingRequest
from mxr.s3.s3_settings import is_loopback
from mxr.util.hashing import Hasher
from mxr_registry.access.scopes import Caller
from mxr_registry.artifacts import blobs
from mxr_registry.openapi import BODY_OF_BYTES, CREATED, DOWNLOAD, LOCATION, Responses, errors
from mxr_registry.server.bodies import Large
from mxr_registry.server.fair_places import Requester, UploadSlots
from mxr_registry.server.ranges import RangesDep, accepts_zstd, bytes_response, packed_response
from mxr_registry.server.scoped import fixed_path
from mxr_registry.storage.store import ChunkSize, Store, Upload

from .deps import BlobSha256, CallerDep, RequesterDep, Services, ServicesDep, created, scoped_router

REDIRECT: Responses = {307: {"description": "The blob is at this signed URL.", "headers": LOCATION}}

router = scoped_router(prefix="/v1/blobs", tags=["blobs"])
fixed_path(router, "/missing", "GET", "HEAD", "PUT")


@router.post("/missing")
def find_missing_blobs(message: Large[MissingRequest], services: ServicesDep, caller: CallerDep) -> Missing:
    """List which of these blobs the registry lacks.

    The blobs to upload: those that it lacks, and those that only others uploaded. The registry keeps the other
    requested blobs for at least `grace` seconds.
    """
    found = blobs.missing(services.db, services.store, caller.namespace, caller.owner, message.blobs)
    return Missing(tuple(found), services.settings.grace)


@router.put("/{sha256}", responses=CREATED, openapi_extra=BODY_OF_BYTES)
async def upload_blob(
    sha256: BlobSha256,
    request: Request,
    response: Response,
    services: ServicesDep,
    caller: CallerDep,
    client: RequesterDep,
    follows: Annotated[
        str | None, Header(alias=FOLLOWS_HEADER, description="What is before the blob in its file: sha256s.")
    ] = None,
) -> Blob:
    """Upload a blob.

    The body is the raw bytes, hashed while they arrive. The same bytes may come twice. The answer is 201 then, too: it
    does not tell what other namespaces have. `Content-Encoding: zstd` is for bytes in the form in which the registry
    stores them, and which mxr sends.
    """
    blob = await receive(request, services, caller, client, check_sha256(sha256), _followed(follows))
    created(response, f"/v1/blobs/{sha256}")
    return blob


@router.head("/{sha256}", include_in_schema=False)
@router.get("/{sha256}", responses=DOWNLOAD | REDIRECT | errors(404, 416))
def download_blob(
    sha256: BlobSha256,
    request: Request,
    wanted: RangesDep,
    services: ServicesDep,
    caller: CallerDep,
    direct: Annotated[Literal["yes", "no"], Query(description="`no`: the registry sends the bytes itself.")] = "yes",
) -> Response:
    """Download a blob.

    The blob or one range of it, or a redirect to a signed URL. `direct=no` in the query disables the redirect. The
    scope `fetch` reads the bytes of artifacts, and `work` those of models and their calibration data. Bytes that shrink
    are stored in zstd: who accepts it (`Accept-Encoding: zstd`) gets the whole blob so.
    """
    size = blobs.size_of(services.db, caller.namespace, check_sha256(sha256), _purposes(caller))
    unpacks = wanted.range is None and accepts_zstd(request)
    # The row answers HEAD, and a signed URL is valid for one method only.
    if request.method == "GET" and direct == "yes" and (accepts_zstd(request) or not services.store.is_packed(sha256)):
        signed_url = services.store.url(sha256, _is_local(request))
        if signed_url is not None:
            return RedirectResponse(signed_url, 307, {"cache-control": "private, no-store"})

    def chunks(start: int, length: int, chunk: ChunkSize) -> Iterator[bytes]:
        reader = blobs.open_blob(services.store, Blob(sha256, size), start, length)
        reader.chunk = chunk
        return iter(reader)

    headers = {"cache-control": "private, max-age=31536000, immutable", "vary": "accept-encoding"}
    if request.method == "GET" and unpacks and (found := blobs.open_packed(services.store, Blob(sha256, size))):
        return packed_response(sha256, *found, headers, services.downloads)
    return bytes_response(request, wanted, sha256, size, chunks, headers, services.downloads)


def _purposes(caller: Caller) -> set[str] | None:
    if caller.is_admin:
        return None
    reads = {FETCH: blobs.PROGRAMS, WORK: blobs.MODELS}
    return {reads[scope] for scope in caller.scopes & reads.keys()}


def _is_local(request: Request) -> bool:
    """Whether the client runs on this machine. The location of a client behind a proxy is unknown."""
    forwarded = any(name in request.headers for name in ("x-forwarded-for", "forwarded", "via"))
    return not forwarded and request.client is not None and is_loopback(request.client.host)


FLUSH_SECONDS = 5.0
"""Seconds after which a chunk is written however small it is: an S3 server closes a connection that is silent."""


async def receive(
    request: Request, services: Services, caller: Caller, client: Requester, sha256: str, follows: list[str]
) -> Blob:
    """Store the request body as the blob `sha256` and return it. `follows`: the sha256s before it in its file.

    No transaction is open while bytes arrive. Raises `DamagedError` if the bytes have another sha256, `UsageError` for
    an empty body or one without its size, `TooLargeError`, `DiskFullError`, and `InterruptionError` if the client
    disconnects, or takes longer than an upload of this size may.
    """
    most = services.settings.limits.blob
    announced = _content_length(request, most)
    incoming = IncomingBlob(services.store, sha256, announced, Unpacker(most) if _is_packed(request) else None)
    threads = services.upload_threads
    quick = xxhash.xxh3_128()
    try:
        async with services.uploads.slot(client, announced):
            had_row = await run_in_threadpool(blobs.has_row, services.db, sha256)
            whole = None
            if follows and follows != [NO_CHAIN]:
                before = (services.db, services.store, caller.namespace, follows)
                whole = await threads.run(blobs.hash_before, *before)
            hashers = [quick] if whole is None else [quick, whole]
            async for chunk in _chunks(request, services.uploads):
                await threads.run(incoming.write, hashers, chunk)
            upload = await threads.run(incoming.commit)
            size = upload.received
            if follows == [NO_CHAIN]:
                # The first blob of a file was hashed by its upload already.
                whole = upload.hashed()
    except ClientDisconnect:
        raise InterruptionError(f"The upload of blob {sha256} was interrupted; nothing was stored.") from None
    finally:
        incoming.discard()
    if whole is not None:
        services.store.digests.add(follows, sha256, whole)
    uploaded = (services.db, services.store, caller.namespace, caller.principal, sha256, size, quick.hexdigest())
    await run_in_threadpool(partial(blobs.record_upload, *uploaded, had_row=had_row))
    return Blob(sha256, size)


class IncomingBlob:
    """A blob that arrives, packed if there is an `unpacker`. Its upload begins with the first byte."""

    def __init__(self, store: Store, sha256: str, size: int, unpacker: Unpacker | None) -> None:
        self._store, self._sha256, self._size, self._unpacker = store, sha256, size, unpacker
        self._upload: Upload | None = None

    def write(self, hashers: Sequence[Hasher], chunk: bytearray) -> None:
        """Store and hash the plain bytes of a chunk."""
        for data in (chunk,) if self._unpacker is None else self._unpacker.add(chunk):
            if self._upload is None:
                size = self._size if self._unpacker is None else self._unpacker.size
                self._upload = self._store.begin(self._sha256, size or 0)
            self._upload.write(data)
            for hasher in hashers:
                hasher.update(data)

    def commit(self) -> Upload:
        """Store the blob under its sha256. Raises `InterruptionError` for one that ended before its first byte."""
        if self._unpacker is not None:
            self._unpacker.finish()
        if self._upload is None:
            raise InterruptionError(f"The upload of blob {self._sha256} ended before its first byte.")
        self._upload.commit()
        return self._upload

    def discard(self) -> None:
        """Remove what was not committed."""
        if self._upload is not None:
            self._upload.discard()


def _is_packed(request: Request) -> bool:
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "zstd"):
        raise UsageError(
            f"The upload has the encoding {encoding[:40]!r}.", hint="Send the raw bytes, without Content-Encoding."
        )
    return encoding == "zstd"


async def _chunks(request: Request, slots: UploadSlots) -> AsyncIterator[bytearray]:
    """The body in chunks of at least the size that `slots` says, except the last and those of a slow client."""
    buffer, begun = bytearray(), time.monotonic()
    async for part in request.stream():
        buffer += part
        if len(buffer) >= slots.chunk or (buffer and time.monotonic() - begun > FLUSH_SECONDS):
            yield buffer
            buffer, begun = bytearray(), time.monotonic()
    if buffer:
        yield buffer


def _followed(text: str | None) -> list[str]:
    """What is before the blob in its file; empty if the client does not say it."""
    names = text.split(",") if text else []
    if len(names) > MAX_FOLLOWED:
        raise UsageError(f"{FOLLOWS_HEADER} has more than {MAX_FOLLOWED} entries.", hint="Omit the header.")
    return [check_sha256(name.strip(), FOLLOWS_HEADER) for name in names]


def _content_length(request: Request, limit: int) -> int:
    text = request.headers.get("content-length", "")
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise UsageError(
            "The upload of a blob needs its size in the header Content-Length.",
            hint="Send the size of the body in bytes, and do not send it chunked.",
        )
    if int(text) == 0:
        raise UsageError("The blob is empty.", hint="Send the bytes of the blob as the request body.")
    if int(text) > limit:
        raise TooLargeError(f"The blob exceeds the limit of {limit} bytes.", hint="Split the file into smaller blobs.")
    return int(text)
