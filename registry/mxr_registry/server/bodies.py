"""Read the message in the body of a request: bounded in bytes and in values, before any object is built from it.

A body of 8 MiB can hold millions of values, each of which takes up to `VALUE` bytes once it is built. Their number is
bounded by counting characters, and they share the memory of all large bodies (`server.body_memory`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from typing import Annotated, Any, TypeVar, get_args

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from mxr.errors import InterruptionError, TooLargeError, UsageError
from mxr.util import codec
from mxr_registry.decoding_cache import DecodingCache
from mxr_registry.server.memory_budget import RESERVATION

T = TypeVar("T")

VALUE = 256
"""Bytes of memory that a value takes at most on average, with its name and the object that is made from it."""

FREE_VALUES = 2_000
"""Values up to which a body reserves nothing for them. So many bytes are decoded without a thread."""


@dataclass(frozen=True, slots=True)
class BodyLimit:
    """The largest body of a route, in bytes and in JSON values. Fewer bytes if the setting `body` is smaller.

    `repeated`: keep what was decoded.
    """

    size: int
    values: int
    repeated: bool = False


SMALL = BodyLimit(512 << 10, 40_000)
"""For a request about one program: 1,000 inputs with 8,000 dims and 64 KiB of names fit."""

LARGE = BodyLimit(1 << 40, 400_000)
"""For documents with many blobs, requests, jobs or lines of a log."""


REPEATED = BodyLimit(512 << 10, 40_000, repeated=True)

Large = Annotated[T, LARGE]
"""The parameter of a route for a large message. A message without it is small."""

Repeated = Annotated[T, REPEATED]
"""The parameter of a route for a small message that many hosts send alike: it is decoded once."""

MAX_CACHED = 256 << 10
"""Bytes of the bodies whose decoded messages are kept, for each route."""


@dataclass(frozen=True, slots=True)
class Body:
    """The message that a route takes, and how large it may be."""

    limit: BodyLimit
    decode: Callable[[bytes], Any]

    @classmethod
    def _of(cls, kind: Any, limit: BodyLimit) -> Body:
        def decode(body: bytes) -> Any:
            return codec.decode(kind, codec.parse(body, "The body"))

        return cls(limit, DecodingCache(decode, MAX_CACHED).get if limit.repeated else decode)

    @classmethod
    def of(cls, hint: Any) -> Body | None:
        """Return the body that the type of a parameter asks for; None for a parameter that is none."""
        limits = [each for each in getattr(hint, "__metadata__", ()) if isinstance(each, BodyLimit)]
        if limits:
            return cls._of(get_args(hint)[0], limits[0])
        return cls._of(hint, SMALL) if isinstance(hint, type) and is_dataclass(hint) else None

    async def read(self, request: Request, *, lease: bool) -> Any:
        """Return the message in the body of a request. `lease`: decode it in a thread of those who hold leases.

        Raises `TooLargeError`, `UsageError`, `TemporaryError` and `InterruptionError`.
        """
        services = request.app.state.services
        body = await _receive(request, min(self.limit.size, services.settings.limits.body))
        if len(body) <= FREE_VALUES:
            return self.decode(body)
        values = await services.body_threads.run(codec.count_values, body)
        if values > FREE_VALUES:
            reservation = request.scope[RESERVATION]
            if values > (allowed := min(self.limit.values, reservation.largest // VALUE)):
                raise TooLargeError(
                    f"The request body has about {values} values, more than {allowed}.",
                    hint="Split the request into smaller ones.",
                )
            reservation.grow(values * VALUE)
        if lease:
            return await services.lease_threads.run(self.decode, body)
        return await run_in_threadpool(self.decode, body)


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
