"""The way in for bytes: a body of any size, hashed and written while it arrives, and nothing kept of a broken one.

It is `async` because it waits for the client; what works (hash, write, sync) runs in a thread, a good stretch at once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from mxr.errors import Interrupted, Usage
from mxr_registry.artifacts import blobs
from mxr_registry.storage.store import CHUNK

from .deps import Services


async def receive(request: Request, rooms: Services, namespace: str, sha256: str) -> int:
    """Take a body as the blob of this sha256; its size in bytes. No transaction is open while bytes arrive.

    Raises `Damaged` for other bytes, `Usage` for none or too many, `DiskFull`, and `Interrupted` when the client left.
    """
    announced = _announced(request, rooms.settings.limits.blob)
    upload = await run_in_threadpool(rooms.store.begin, sha256, announced)
    try:
        async for stretch in _stretches(request):
            if upload.received + len(stretch) > rooms.settings.limits.blob:
                raise _too_large(rooms.settings.limits.blob)
            await run_in_threadpool(upload.write, stretch)
        if not upload.received:
            raise Usage("A blob has at least one byte.", hint="Send the bytes as the body.")
        size = await run_in_threadpool(upload.commit)
    except ClientDisconnect:
        raise Interrupted(f"The upload of blob {sha256} was cut off; nothing was kept.") from None
    finally:
        upload.discard()
    await run_in_threadpool(blobs.arrived, rooms.db, rooms.store, namespace, sha256, size)
    return size


async def _stretches(request: Request) -> AsyncIterator[bytearray]:
    """The body in stretches of at least `CHUNK` bytes, but for the last."""
    held = bytearray()
    async for part in request.stream():
        held += part
        if len(held) >= CHUNK:
            yield held
            held = bytearray()
    if held:
        yield held


def _announced(request: Request, most: int) -> int | None:
    text = request.headers.get("content-length")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise Usage("Content-Length is not a number.", hint="Send the body as it is.")
    if int(text) > most:
        raise _too_large(most)
    return int(text)


def _too_large(most: int) -> Usage:
    return Usage(f"A blob has at most {most} bytes here.", hint="Cut the file into more blobs.")
