"""Read the JSON body of a request: bounded in bytes and in values, before any object is built from it.

A body of 8 MiB can hold millions of values, each of which takes up to `VALUE` bytes once it is built. Their number is
bounded by counting characters, and they share the memory of all large bodies (`server.body_memory`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeVar

from fastapi import Depends, Request
from starlette.requests import ClientDisconnect

from mxr.errors import InterruptionError, TooLargeError, UsageError
from mxr.util import codec
from mxr_registry.memory_budget import RESERVATION

T = TypeVar("T")

VALUE = 256
"""Bytes of memory that a value takes at most on average, with its name and the object that is made from it."""

FREE_VALUES = 2_000
"""Values up to which a body reserves nothing for them."""


@dataclass(frozen=True, slots=True)
class BodyLimit:
    """The largest body of a route, in bytes and in JSON values. Fewer bytes if the setting `body` is smaller."""

    size: int
    values: int


SMALL = BodyLimit(512 << 10, 40_000)
"""For a request about one program: 1,000 inputs with 8,000 dims and 64 KiB of names fit."""

LARGE = BodyLimit(1 << 40, 400_000)
"""For documents with many blobs, requests, jobs or lines of a log."""


async def small_body(request: Request) -> bytes:
    """Return the body of a request about one program.

    Raises `TooLargeError`, `UsageError`, `TemporaryError` and `InterruptionError`.
    """
    return await _read(request, SMALL)


async def large_body(request: Request) -> bytes:
    """Return the body of a request with a large document. Raises as `small_body` does."""
    return await _read(request, LARGE)


BodyDep = Annotated[bytes, Depends(small_body)]
LargeBodyDep = Annotated[bytes, Depends(large_body)]


def decode_body(kind: type[T], body: bytes) -> T:
    """Decode the JSON body of a request. Raises `UsageError`, which names the invalid field."""
    return codec.decode(kind, codec.parse(body, "The body"))


async def _read(request: Request, limit: BodyLimit) -> bytes:
    most = min(limit.size, request.app.state.services.settings.limits.body)
    body = await _receive(request, most)
    if len(body) <= FREE_VALUES:
        return body
    values = await request.app.state.services.body_threads.run(codec.count_values, body)
    if values > FREE_VALUES:
        reservation = request.scope[RESERVATION]
        if values > (allowed := min(limit.values, reservation.largest // VALUE)):
            raise TooLargeError(
                f"The request body has about {values} values, more than {allowed}.",
                hint="Split the request into smaller ones.",
            )
        reservation.grow(values * VALUE)
    return body


async def _receive(request: Request, most: int) -> bytes:
    declared = request.headers.get("content-length", "")
    if declared and not (declared.isascii() and declared.isdigit() and len(declared) < 20):
        raise UsageError(
            "Content-Length is not a number.", hint="Send the size of the body in bytes, or no such header."
        )
    if declared and int(declared) > most:
        raise _too_large(most)
    parts, size = [], 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > most:
                raise _too_large(most)
            parts.append(part)
    except ClientDisconnect as gone:
        raise InterruptionError("The client closed the connection before the body was complete.") from gone
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(limit: int) -> TooLargeError:
    return TooLargeError(f"The request body exceeds {limit} bytes.", hint="Split the request into smaller ones.")
