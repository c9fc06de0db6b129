"""Receive an uploaded blob: hash and write the body while it arrives, and keep nothing of an interrupted upload.

The code is `async` because it waits for the client. Hashing, writing and syncing run in a thread, one chunk at a time.
An upload opens its file with the first chunk: a client that sends nothing holds a connection only.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import xxhash
from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from mxr.errors import InterruptionError, TooLargeError, UsageError
from mxr.util.hashing import Hasher
from mxr_registry.artifacts import blobs
from mxr_registry.storage.store import Upload

from .deps import Services
from .upload_buffers import UploadBuffers


async def receive(request: Request, services: Services, namespace: str, sha256: str) -> int:
    """Store the request body as the blob `sha256` and return its size in bytes.

    No transaction is open while bytes arrive. Raises `DamagedError` if the bytes have another sha256, `UsageError` for
    an empty or too large body, `DiskFullError`, and `InterruptionError` if the client disconnects.
    """
    limit = services.settings.limits.blob
    announced = _content_length(request, limit)
    upload: Upload | None = None
    threads = services.upload_threads
    quick = xxhash.xxh3_128()
    try:
        with services.uploads as buffers:
            async for chunk in _chunks(request, buffers):
                if upload is None:
                    upload = await threads.run(services.store.begin, sha256, announced)
                if upload.received + len(chunk) > limit:
                    raise _too_large(limit)
                await threads.run(_write, upload, quick, chunk)
        if upload is None:
            raise UsageError("The blob is empty.", hint="Send the bytes of the blob as the request body.")
        size = await threads.run(upload.commit)
    except ClientDisconnect:
        raise InterruptionError(f"The upload of blob {sha256} was interrupted; nothing was stored.") from None
    finally:
        if upload is not None:
            upload.discard()
    xxh3 = quick.hexdigest()
    await run_in_threadpool(blobs.record_upload, services.db, services.store, namespace, sha256, size, xxh3)
    return size


def _write(upload: Upload, quick: Hasher, chunk: bytearray) -> None:
    upload.write(chunk)
    quick.update(chunk)


async def _chunks(request: Request, buffers: UploadBuffers) -> AsyncIterator[bytearray]:
    """The body in chunks of at least the size that `buffers` says, except the last."""
    buffer = bytearray()
    async for part in request.stream():
        buffer += part
        if len(buffer) >= buffers.chunk:
            yield buffer
            buffer = bytearray()
    if buffer:
        yield buffer


def _content_length(request: Request, limit: int) -> int | None:
    text = request.headers.get("content-length")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise UsageError(
            "Content-Length is not a number.", hint="Send the size of the body in bytes, or no such header."
        )
    if int(text) > limit:
        raise _too_large(limit)
    return int(text)


def _too_large(limit: int) -> TooLargeError:
    return TooLargeError(f"The blob exceeds the limit of {limit} bytes.", hint="Split the file into smaller blobs.")
