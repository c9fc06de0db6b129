"""Receive an uploaded blob: hash and write the body while it arrives, and keep nothing of an interrupted upload.

The code is `async` because it waits for the client. Hashing, writing and syncing run in a thread, one chunk at a time.
An upload opens its file with the first chunk: a client that sends nothing holds a connection only.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from functools import partial

import xxhash
from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from mxr.artifact.manifest import NO_CHAIN, check_sha256
from mxr.errors import InterruptionError, TooLargeError, UsageError
from mxr.protocol.artifacts import FOLLOWS_HEADER, MAX_FOLLOWED
from mxr.util import codec
from mxr.util.hashing import Hasher
from mxr_registry.access.caller import Caller
from mxr_registry.artifacts import blobs
from mxr_registry.database.stored_object import StoredObject
from mxr_registry.storage.store import Upload

from .deps import Services
from .fair_places import Requester
from .upload_slots import UploadSlots

FLUSH_SECONDS = 5.0
"""Seconds after which a chunk is written however small it is: an S3 server closes a connection that is silent."""


async def receive(request: Request, services: Services, caller: Caller, client: Requester, sha256: str) -> StoredObject:
    """Store the request body as the blob `sha256` and return it.

    No transaction is open while bytes arrive. Raises `DamagedError` if the bytes have another sha256, `UsageError` for
    an empty body or one without its size, `TooLargeError`, `DiskFullError`, and `InterruptionError` if the client
    disconnects, or takes longer than an upload of this size may.
    """
    announced = _content_length(request, services.settings.limits.blob)
    follows = _follows(request)
    upload: Upload | None = None
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
                if upload is None:
                    upload = await threads.run(services.store.begin, sha256, announced)
                await threads.run(_write, upload, hashers, chunk)
            if upload is None:
                raise InterruptionError(f"The upload of blob {sha256} ended before its first byte.")
            size = await threads.run(upload.commit)
            if follows == [NO_CHAIN]:
                # The first blob of a file was hashed by its upload already.
                whole = upload.hashed()
    except ClientDisconnect:
        raise InterruptionError(f"The upload of blob {sha256} was interrupted; nothing was stored.") from None
    finally:
        if upload is not None:
            upload.discard()
    if whole is not None:
        services.store.digests.add(follows, sha256, whole)
    uploaded = (services.db, services.store, caller.namespace, caller.principal, sha256, size, quick.hexdigest())
    await run_in_threadpool(partial(blobs.record_upload, *uploaded, had_row=had_row))
    return StoredObject(codec.canonical({"sha256": sha256, "size": size}), sha256, new=True)


def _write(upload: Upload, hashers: Sequence[Hasher], chunk: bytearray) -> None:
    upload.write(chunk)
    for hasher in hashers:
        hasher.update(chunk)


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


def _follows(request: Request) -> list[str]:
    """What is before the blob in its file; empty if the client does not say it."""
    text = request.headers.get(FOLLOWS_HEADER)
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
